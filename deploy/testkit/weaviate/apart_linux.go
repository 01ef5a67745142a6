package weaviate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// apart keeps Ctrl-C from the server, and ends the server with the test process, whatever ends that.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// Apart reports whether servers run in a network namespace of their own. It tries once. Some systems grant user
// namespaces without the rights in them.
var Apart = sync.OnceValue(func() bool {
	cmd := exec.Command("true")
	return alone(cmd, nil) == nil && cmd.Run() == nil
})

// alone makes a command run in a network of its own, in which its listeners, the files from number 3 on, lead to these
// ports.
func alone(cmd *exec.Cmd, ports []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args = append([]string{self, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = self
	cmd.Env = append(cmd.Environ(), insideVariable+"="+strings.Join(ports, " "))
	cmd.SysProcAttr = apart()
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	return nil
}

// insideVariable makes a test program run a server and pass connections on to it, in place of its tests. Its value is
// the ports.
const insideVariable = "TURNLEDGER_WEAVIATE_INSIDE"

// init runs in each program with this package, before its tests.
func init() {
	ports, is := os.LookupEnv(insideVariable)
	if !is {
		return
	}
	if err := inside(strings.Fields(ports), os.Args[1], os.Args[2:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "a Weaviate in a network of its own:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inside runs a server in a network of its own until it ends.
func inside(ports []string, program string, args []string) error {
	runtime.LockOSThread() // when this thread ends, Linux takes that for the death of the server's parent
	if err := loopbackUp(); err != nil {
		return err
	}
	for n, port := range ports {
		f := os.NewFile(uintptr(3+n), "listener")
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		_ = f.Close()
		go relay(l, port)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// loopbackUp starts the loopback interface, which a new network has, but not yet in use.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
	}
	return errors.Join(err, unix.Close(s))
}

// relay passes the connections of a listener on to a port of the server.
func relay(l net.Listener, port string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				return // the server does not listen yet
			}
			defer func() { _ = to.Close() }()
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}
