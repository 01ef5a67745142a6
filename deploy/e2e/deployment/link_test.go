package deployment_test

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// link is the network between a deployment and a store, which can be made slow or be cut.
type link struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

// newLink returns a link to a store behind a unix socket.
func newLink(t *testing.T, socket string) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	w := &link{t: t, proxy: toxiproxy.NewProxy(server, socket, stack.FreeAddress(t), listenFor(t, socket))}
	require.NoError(t, w.proxy.Start())
	t.Cleanup(w.proxy.Stop)
	return w
}

func (w *link) address() string { return w.proxy.Listen }

// degrade makes the link as a toxic says, until mend is called.
func (w *link) degrade(toxic string) (mend func()) {
	w.t.Helper()
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	require.NoError(w.t, err)
	return func() { w.proxy.Toxics.ResetToxics(w.t.Context()) }
}

// cut closes the link and all connections on it, until back is called.
func (w *link) cut() (back func()) {
	w.proxy.Stop()
	return func() { w.t.Helper(); require.NoError(w.t, w.proxy.Start()) }
}

// listenFor listens on a port for a unix socket, since toxiproxy knows only ports.
func listenFor(t *testing.T, socket string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close()
				continue
			}
			carry := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // a link that is cut ends both
				_, _ = to.Close(), from.Close()
			}
			all.Go(func() { carry(out, in) })
			all.Go(func() { carry(in, out) })
		}
	})
	t.Cleanup(func() { _ = l.Close() }) // the connections end with the processes
	return l.Addr().String()
}

// socketPath returns the file behind the address of a local PostgreSQL.
func socketPath(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u.Query().Get("host") + "/.s.PGSQL." + u.Query().Get("port")
}
