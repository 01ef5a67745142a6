//go:build unix && !linux

package localpg

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// descriptorPath: see the Linux file. /dev/fd does not open folders the way that is needed here.
const descriptorPath = ""

// dieWithParent does nothing on this system. The next Start finds and stops servers that outlived their process.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func (a account) processes() ([]processInfo, error) {
	list, err := exec.Command("ps", "-axww", "-o", "pid=,uid=,command=").Output() //nolint:noctx // ends at once
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []processInfo
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || fields[1] != strconv.Itoa(a.uid) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			out = append(out, processInfo{pid: pid, args: strings.Join(fields[2:], " ")})
		}
	}
	return out, nil
}
