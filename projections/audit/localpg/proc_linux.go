package localpg

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// descriptorPath is where a process finds the first file it was handed down, or "" where the system has no such path.
// Opening it follows the descriptor itself and so needs no right to enter the folders above.
const descriptorPath = "/proc/self/fd/3"

// dieWithParent makes the kernel send sig to the child when the thread that started the child ends. Go sets it after
// the change of user, which would clear it. PostgreSQL's binaries are not setuid, which would clear it too.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// processes lists the account's processes with their command lines. It reads only what /proc shows to everyone: a
// container's root may not look at the working directory of another user's process.
func (a account) processes() ([]processInfo, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []processInfo
	for _, dir := range dirs {
		if uid, exists, err := ownerOf(dir); err != nil || !exists || uid != a.uid {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline")) //nolint:gosec // below /proc
		if err != nil || len(line) == 0 {
			continue // gone meanwhile, or a zombie
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		args := strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		out = append(out, processInfo{pid: pid, args: args})
	}
	return out, nil
}
