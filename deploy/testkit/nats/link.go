package nats

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// link is a wire from one server to another that can be cut and mended. A cut wire is silent, like a network that lost
// a switch: no connection is closed, and nothing arrives. Data on its way arrives when the wire is mended, if anybody
// still listens.
type link struct {
	from, to int
	listener net.Listener
	target   string
	over     chan struct{}
	all      sync.WaitGroup
	// delay of all traffic on the wire, in nanoseconds.
	delay atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	// whole is closed while the wire is not cut.
	whole chan struct{}
	isCut bool
}

func newLink(t testing.TB, from, to int, target string) *link {
	t.Helper()
	l := &link{from: from, to: to, target: target, over: make(chan struct{}), whole: make(chan struct{})}
	close(l.whole)
	l.listener = must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isCut {
		l.isCut, l.whole = true, make(chan struct{})
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		l.isCut = false
		close(l.whole)
	}
}

// hangUp closes the wire's connections, as the end of a process at one of its ends does.
func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// carries waits until the wire is whole. It returns false if the link was closed first.
func (l *link) carries() bool {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-l.over:
		return false
	}
}

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
	select {
	case <-l.over:
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	default:
	}
	l.conns = append(l.conns, conns...)
	return true
}

func (l *link) carry(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if delay := l.delay.Load(); delay > 0 {
			<-time.After(time.Duration(delay))
		}
		if !l.carries() {
			return
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
	close(l.over)
	l.mu.Unlock()
	l.hangUp()
	l.all.Wait()
}

// wires are the links between the servers of a cluster.
type wires []*link

// isolate cuts a server off from the others.
func (w wires) isolate(t testing.TB, i int) {
	t.Helper()
	require.NotEmpty(t, w, "the cluster was not started as a fragile one")
	for _, l := range w.of(i) {
		l.cut()
	}
}

// of returns the wires that end at a server.
func (w wires) of(i int) (out wires) {
	for _, l := range w {
		if l.from == i || l.to == i {
			out = append(out, l)
		}
	}
	return out
}

func (w wires) hangUp() {
	for _, l := range w {
		l.hangUp()
	}
}

// mend mends all wires.
func (w wires) mend() {
	for _, l := range w {
		l.mend()
	}
}
