package natstest

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is a wire from one server to another that can be cut. A cut wire is silent,
// as a network is that lost a switch: no connection is closed, nothing arrives.
type link struct {
	from, to int
	listener net.Listener
	target   string
	silent   chan struct{}
	once     sync.Once
	all      sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

func newLink(t testing.TB, from, to int, target string) *link {
	t.Helper()
	l := &link{from: from, to: to, target: target, silent: make(chan struct{})}
	var err error
	l.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) cut() { l.once.Do(func() { close(l.silent) }) }

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !l.hold(in, out) {
			return
		}
		l.all.Go(func() { l.carry(out, in) })
		l.all.Go(func() { l.carry(in, out) })
	}
}

func (l *link) hold(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	l.conns = append(l.conns, conns...)
	return true
}

func (l *link) carry(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-l.silent:
			return
		default:
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.all.Wait()
}
