//go:build unix && !linux

package weaviate

import (
	"os/exec"
	"syscall"
)

// apart keeps Ctrl-C from the server. On this system the server outlives a test process that is killed.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// Apart returns false: on this system the server shares the network of the tests.
func Apart() bool { return false }

func alone(*exec.Cmd, []string) error { return nil }
