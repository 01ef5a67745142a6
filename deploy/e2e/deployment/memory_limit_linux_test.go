package deployment_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A process takes the limit of its control group up, and of the groups above it, whatever the group is called. The
// process sees files of our own in place of /proc/self/cgroup and of the groups, as in a container.
func TestAProcessStaysBelowTheMemoryLimitOfItsControlGroup(t *testing.T) {
	t.Parallel()
	if !maySeeOtherGroups() {
		t.Skip("this machine lets a test mount nothing over the files of /proc")
	}
	serve, own := []string{"serve", "--roles", "api,context"}, "1000000000\n"
	for name, c := range map[string]struct {
		args, env []string
		limits    map[string]string // memory.max, by the folder of a group
		want      float64
	}{
		"serve": {args: serve, limits: map[string]string{"box/own": own}, want: 900e6},
		"dev":   {args: []string{"dev"}, limits: map[string]string{"box/own": own}, want: 700e6},
		"the group above": {
			args: serve, limits: map[string]string{"box": "700000000\n", "box/own": "max\n"}, want: 630e6,
		},
		"no limit": {args: serve, limits: map[string]string{"box": "max\n", "box/own": "max\n"}, want: 1<<63 - 1},
		"GOMEMLIMIT wins": {
			args: serve, env: []string{"GOMEMLIMIT=300MiB"}, limits: map[string]string{"box/own": own}, want: 300 << 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := amongGroups(t, c.limits)
			p := stack.LaunchProgram(t, program, stack.FreeAddress(t), c.env,
				append(c.args, "--data-dir", stack.DataDir(t))...)
			p.WaitReady(t)
			require.InEpsilon(t, c.want, memoryLimit(t, p), 1e-9)
			p.Stop(t)
		})
	}
}

// memoryLimit returns the limit that the Go runtime of a process keeps to.
func memoryLimit(t testing.TB, p *stack.Process) float64 {
	t.Helper()
	line := regexp.MustCompile(`(?m)^go_gc_gomemlimit_bytes (\S+)$`).FindStringSubmatch(p.Metrics(t))
	require.NotEmpty(t, line)
	limit, err := strconv.ParseFloat(line[1], 64)
	require.NoError(t, err)
	return limit
}

// apart runs a shell's command in a namespace of mounts of its own, with the same process id.
func apart(script string, args ...string) []string {
	command := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		command = append(command, "--map-root-user")
	}
	return append(append(command, "sh", "-c", script), args...)
}

func maySeeOtherGroups() bool {
	command := apart("mount --bind /proc/version /proc/$$/mountinfo && mount --bind /proc/version /proc/$$/cgroup")
	return exec.Command(command[0], command[1:]...).Run() == nil
}

// amongGroups returns a program that is turnledger in the group /box/own, where groups of version 2 have these limits.
func amongGroups(t testing.TB, limits map[string]string) string {
	t.Helper()
	dir := stack.DataDir(t)
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for group, limit := range limits {
		write(filepath.Join("groups", group, "memory.max"), limit)
	}
	write("mountinfo", fmt.Sprintf("29 23 0:26 / %s rw,nosuid - cgroup2 cgroup2 rw\n", filepath.Join(dir, "groups")))
	write("cgroup", "0::/box/own\n")
	return program(t, dir, apart(`mount --bind "$0/mountinfo" /proc/$$/mountinfo &&
		mount --bind "$0/cgroup" /proc/$$/cgroup && exec "$@"`, dir, stack.Binary(t)))
}

// program returns a program that runs a command with its own arguments behind.
func program(t testing.TB, dir string, command []string) string {
	t.Helper()
	for i, word := range command {
		command[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	name := filepath.Join(dir, "program")
	text := "#!/bin/sh\nexec " + strings.Join(command, " ") + ` "$@"` + "\n"
	must.Program(t, name, text)
	return name
}

// A process in a control group of the kernel lives through calls that make more garbage than the group has memory. It
// takes both processors of a small machine, so nothing else of the package runs beside it.
func TestTheKernelEndsNoProcessForItsGarbage(t *testing.T) { //nolint:paralleltest // see above
	if stack.Long() {
		t.Skip("the long form's race detector takes more memory than the group has")
	}
	const limit = 160 << 20
	dir := stack.DataDir(t)
	group := newGroup(t, limit)
	name := program(t, dir, []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, stack.Binary(t)})
	p := stack.LaunchProgram(t, name, stack.FreeAddress(t), nil,
		"serve", "--roles", "api,context", "--data-dir", stack.DataDir(t))
	p.WaitReady(t)
	buildLongContexts(t, p)
	require.InEpsilon(t, 0.9*limit, memoryLimit(t, p), 1e-9)
	p.Stop(t)
}

// buildLongContexts asks for contexts of long messages, of which the process keeps nothing.
func buildLongContexts(t testing.TB, p *stack.Process) {
	t.Helper()
	text := strings.Repeat("word ", 160_000)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for n := range 200 {
		g.Go(func() error {
			body := map[string]any{"message": text}
			status, out, err := p.Call(ctx, http.MethodPost, stack.SessionPath(fmt.Sprint("s", n))+"/context", body)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%d %v", status, out["code"])
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

// newGroup makes a control group with a memory limit, or skips the test where it may not.
func newGroup(t testing.TB, limit int) string {
	t.Helper()
	for _, in := range []struct{ hierarchy, file string }{
		{"/sys/fs/cgroup", "memory.max"}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	} {
		dir, err := os.MkdirTemp(in.hierarchy, "turnledger-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			// A group whose last process has just ended may be busy.
			hang.Until(t, func() bool { return os.Remove(dir) == nil })
		})
		file, err := os.OpenFile(filepath.Join(dir, in.file), os.O_WRONLY, 0)
		if err != nil {
			continue // the hierarchy does not count memory
		}
		_, err = file.WriteString(strconv.Itoa(limit))
		require.NoError(t, err)
		require.NoError(t, file.Close())
		return dir
	}
	t.Skip("this machine lets a test make no control group with a memory limit")
	return ""
}
