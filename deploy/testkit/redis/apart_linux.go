package redis

import "syscall"

// apart keeps Ctrl-C from the server, and ends the server with the test process, whatever ends that.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
