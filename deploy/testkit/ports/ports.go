// Package ports chooses addresses for servers of tests that come and go.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// FreeAddress returns an unused loopback address. Its port is below the ports that Linux gives to outgoing connections,
// since other tests make many of these meanwhile. Until the test ends, its port of UDP, which nobody uses, tells other
// tests in all processes that it is taken, also while no server listens at it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(22_000))
		taken, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address)
		if err != nil {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			_ = taken.Close()
			continue
		}
		_ = l.Close()
		t.Cleanup(func() { _ = taken.Close() })
		return address
	}
	t.Fatal("no port is free")
	return ""
}

// Free returns an unused port of 127.0.0.1, as FreeAddress does.
func Free(t testing.TB) string {
	t.Helper()
	_, port := must.Two(net.SplitHostPort(FreeAddress(t)))(t)
	return port
}
