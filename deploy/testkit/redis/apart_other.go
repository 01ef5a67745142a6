//go:build unix && !linux

package redis

import "syscall"

// apart keeps Ctrl-C from the server. On this system the server outlives a test process that is killed.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
