package redis_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// A Redis without a connection to spare says so before it is asked. The client panicked over that where a
// caller's time was over right after the dial: the words met a reader that nobody had asked anything of.
func TestAConnectionRefusedToACallerInAHurry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.load(t, "s")
	f.raw.Close()
	f.server.Stop()
	refuse(t, strings.TrimPrefix(f.server.URL(), "unix://"))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 500 {
				hurry, cancel := context.WithTimeout(t.Context(), time.Duration(i%100)*10*time.Microsecond)
				require.Error(t, must.Err(f.view.Load(hurry, "s", 0, 10)))
				cancel()
			}
		})
	}
	callers.Wait()
}

// refuse answers every connection with what Redis says when it has as many as it may.
func refuse(t *testing.T, socket string) {
	t.Helper()
	listener := must.Get(net.Listen("unix", socket))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = conn.Close()
		}
	}()
}
