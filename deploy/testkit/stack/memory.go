package stack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// ResidentMemory returns the memory of the process, in bytes.
func (p *Process) ResidentMemory(t testing.TB) int64 { return MemoryOf(t, p.Cmd.Process.Pid, "VmRSS") }

// MemoryOf returns a field of /proc/PID/status, such as VmRSS, in bytes.
func MemoryOf(t testing.TB, pid int, name string) int64 {
	t.Helper()
	raw := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb := must.Get(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(t)
			return kb << 10
		}
	}
	t.Fatal("no " + name)
	return 0
}
