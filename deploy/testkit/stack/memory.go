package stack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ResidentMemory returns the memory of the process, in bytes.
func (p *Process) ResidentMemory(t testing.TB) int64 { return MemoryOf(t, p.Cmd.Process.Pid, "VmRSS") }

// MemoryOf returns a field of /proc/PID/status, such as VmRSS, in bytes.
func MemoryOf(t testing.TB, pid int, name string) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no " + name)
	return 0
}
