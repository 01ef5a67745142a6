package cutfstest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// watchdogScript ends the mount $2 once process $1 is gone, or is a zombie that cannot go.
const watchdogScript = `while grep -qs '^State:.[^ZX]' "/proc/$1/status"; do sleep 1; done; umount -f -l "$2"`

// watchdog ends a mount whose process dies without Unmount: by a panic, a test timeout, a kill. It
// must be a process of its own, because a process that dies while one of its threads waits for an
// answer of its own FUSE server can't be killed until somebody aborts the connection.
type watchdog struct{ cmd *exec.Cmd }

func watch(dir string) (*watchdog, error) {
	// Without a context: it must outlive every one.
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "cutfstest-watchdog", strconv.Itoa(os.Getpid()), dir)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	return &watchdog{cmd}, nil
}

func (w *watchdog) stop() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}
