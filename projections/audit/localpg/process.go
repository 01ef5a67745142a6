package localpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// processInfo is a running process as the system lists it.
type processInfo struct {
	pid  int
	args string
}

// process is a child of ours.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; err is set before
	err  error
}

// prepare sets how a child of this package runs: as the account; in a session of its own, so that Ctrl-C and SIGHUP of
// our terminal don't reach it; with sig as the signal when we die; and without our environment, which holds secrets.
func (a account) prepare(cmd *exec.Cmd, sig syscall.Signal) {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.drop {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)} //nolint:gosec // user ids fit
	}
	dieWithParent(attr, sig)
	cmd.SysProcAttr = attr
	cmd.Dir = "/" // ours may be a folder that the account can't enter
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

// launch starts cmd and returns once it runs. A goroutine waits for its end, locked to the thread that started cmd: the
// kernel treats the end of that *thread* as the death of the parent.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	return p, <-started
}

// run starts cmd and waits for its end. When ctx ends first, cmd and what it started are killed.
func run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := launch(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its session is its process group; gone already is fine
		<-p.done
		return ctx.Err()
	}
}

// stop asks for a fast shutdown (clients are disconnected, a checkpoint is written) and waits. If ctx ends first, the
// server must stop immediately, and the next start recovers from its log.
func (p *process) stop(ctx context.Context) error {
	if ctx.Err() == nil {
		_ = p.cmd.Process.Signal(syscall.SIGINT) // ended already is fine
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
		}
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(killAfter):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return ctx.Err()
}

// killAfter bounds an immediate shutdown, which does almost no work.
const killAfter = 5 * time.Second

// alive reports whether a process of this number exists, whoever owns it.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, os.ErrPermission)
}
