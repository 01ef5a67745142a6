//go:build unix && !linux

package redistest

import "syscall"

// apart keeps Ctrl-C from the server; a test process that is killed leaves it behind here.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
