package cutfs

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// watchdogScript unmounts $2 once process $1 is gone, or is a zombie that can't end.
const watchdogScript = `while grep -qs '^State:.[^ZX]' "/proc/$1/status"; do sleep 1; done; umount -f -l "$2"`

// watchdog ends a mount whose process dies without Unmount, by a panic, a test timeout or a kill. It must be a process
// of its own: if a process dies while one of its threads waits for its own FUSE server, it can't be killed until
// somebody aborts the connection.
type watchdog struct{ cmd *exec.Cmd }

func watch(dir string) (*watchdog, error) {
	// No context: it must outlive them all.
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "cutfs-watchdog", strconv.Itoa(os.Getpid()), dir)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	return &watchdog{cmd}, nil
}

func (w *watchdog) stop() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}
