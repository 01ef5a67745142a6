package stack

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Exit statuses of the command line.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// commandLimit ends a command line that does not end by itself, such as a server that should have refused to start.
const commandLimit = 5 * time.Minute

// Run runs a command line to its end, and returns its status and output.
func Run(t testing.TB, args ...string) (code int, out, errs string) {
	t.Helper()
	return run(t, Binary(t), nil, args)
}

// Run runs a verb of the process's binary against the process, to its end.
func (p *Process) Run(t testing.TB, args ...string) (code int, out, errs string) {
	t.Helper()
	binary := Binary(t)
	if p.Cmd != nil {
		binary = p.Cmd.Path
	}
	return run(t, binary, []string{"TURNLEDGER_URL=" + p.URL}, args)
}

// Done runs a verb that must succeed, and returns what it prints.
func (p *Process) Done(t testing.TB, args ...string) (out string) {
	t.Helper()
	code, out, errs := p.Run(t, args...)
	require.Equal(t, ExitDone, code, "%v: %s%s\n%s", args, out, errs, p.Log)
	return out
}

// Fails runs a verb that must fail, though not as wrong use, and returns what it says.
func (p *Process) Fails(t testing.TB, args ...string) (errs string) {
	t.Helper()
	code, out, errs := p.Run(t, args...)
	require.Equal(t, ExitFailed, code, "%v: %s%s", args, out, errs)
	return errs
}

func run(t testing.TB, binary string, env, args []string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(environment(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// Command returns a verb against the process. The test starts it itself.
func (p *Process) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Binary(t), args...)
	cmd.Env = append(environment(), "TURNLEDGER_URL="+p.URL)
	return cmd
}
