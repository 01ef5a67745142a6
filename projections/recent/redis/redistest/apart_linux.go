package redistest

import "syscall"

// apart keeps Ctrl-C from the server and ends it with the test process, however that ends.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
