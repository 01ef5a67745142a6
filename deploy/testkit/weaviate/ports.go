package weaviate

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
)

// freePorts returns ports of loopback that are free now, in pairs of neighbours: a node expects the port of its calls
// right behind the one of Raft, and its data right behind its gossip. The system gives none of them to a connection, so
// that they stay free while the server is away. Until the test ends, the ports of UDP of those that are reached from
// outside tell other tests in all processes that they are taken: see ports.FreeAddress.
func freePorts(t testing.TB, n int) (ports []string) {
	t.Helper()
	for tries := 0; len(ports) < n; tries++ {
		if tries == 1000 {
			t.Fatal("no port of loopback is free")
		}
		port := 12_000 + rand.IntN(20_000)
		pair := []net.PacketConn{take(t, port), take(t, port+1)}
		free := !slices.Contains(pair, nil)
		for _, taken := range pair {
			switch {
			case taken == nil:
			case free && len(ports) < outsidePorts:
				t.Cleanup(func() { _ = taken.Close() })
			default: // gossip needs it
				defer func() { _ = taken.Close() }()
			}
		}
		if free {
			ports = append(ports, strconv.Itoa(port), strconv.Itoa(port+1))
		}
	}
	return ports
}

// take marks a port as taken, or returns nil if it is not free. It listens only on a port that it has marked: one that
// another test has marked must be free whenever that test's server starts.
func take(t testing.TB, port int) net.PacketConn {
	taken := mark(t, port)
	if taken == nil {
		return nil
	}
	l := listen(t, port)
	if l == nil {
		_ = taken.Close()
		return nil
	}
	_ = l.Close()
	return taken
}

// mark takes a port of UDP, or returns nil if it is taken.
func mark(t testing.TB, port int) net.PacketConn {
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil
	}
	return c
}

// listen returns a listener, or nil if the port is taken.
func listen(t testing.TB, port int) net.Listener {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil
	}
	return l
}
