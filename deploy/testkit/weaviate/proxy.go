package weaviate

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "github.com/weaviate/weaviate/grpc/generated/protocol/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections/index/weaviate"
)

// Proxy stands between clients and the gRPC API of a server. It can hold batches of objects back: their callers are
// told that the server does not answer, and the batches come once they are released.
type Proxy struct {
	pb.UnimplementedWeaviateServer
	server  *Server
	api     pb.WeaviateClient
	address string

	mu      sync.Mutex
	holding bool
	held    []func(context.Context) error
	arrived chan struct{}
}

// Proxy runs a proxy to the server until the test ends.
func (s *Server) Proxy() *Proxy {
	s.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.GRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	l := must.Get((&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0"))(s.t)
	p := &Proxy{server: s, api: pb.NewWeaviateClient(conn), address: l.Addr().String()}
	listener := grpc.NewServer()
	pb.RegisterWeaviateServer(listener, p)
	done := make(chan error, 1)
	go func() { done <- listener.Serve(l) }()
	s.t.Cleanup(func() {
		listener.Stop()
		_ = conn.Close()
		assert.NoError(s.t, <-done)
	})
	return p
}

// Client returns a client that reaches the server by the proxy, and is closed when the test ends.
func (p *Proxy) Client() *weaviate.Weaviate {
	p.server.t.Helper()
	c := p.server.Config()
	c.GRPC = p.address
	w := must.Get(weaviate.New(c))(p.server.t)
	p.server.t.Cleanup(w.Close)
	return w
}

// Hold holds batches back from now on.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding, p.arrived = true, make(chan struct{})
}

// AwaitHeld waits until a batch is held back.
func (p *Proxy) AwaitHeld() {
	p.mu.Lock()
	arrived := p.arrived
	p.mu.Unlock()
	<-arrived
}

// Release lets all held batches come, and holds no more back. It returns how many there were.
func (p *Proxy) Release(t testing.TB) int {
	t.Helper()
	p.mu.Lock()
	held := p.held
	p.held, p.holding = nil, false
	p.mu.Unlock()
	for _, batch := range held {
		assert.NoError(t, batch(t.Context()))
	}
	return len(held)
}

// forwarded returns a context that carries what a caller's context does.
func forwarded(from, ctx context.Context) context.Context {
	sent, _ := metadata.FromIncomingContext(from)
	return metadata.NewOutgoingContext(ctx, sent.Copy())
}

// BatchObjects implements pb.WeaviateServer. A batch with texts is held; canaries pass.
func (p *Proxy) BatchObjects(ctx context.Context, in *pb.BatchObjectsRequest) (*pb.BatchObjectsReply, error) {
	p.mu.Lock()
	if p.holding && len(in.GetObjects()[0].GetVectors()) > 0 {
		if len(p.held) == 0 {
			close(p.arrived)
		}
		p.held = append(p.held, func(later context.Context) error {
			_, err := p.api.BatchObjects(forwarded(ctx, later), in)
			return err
		})
		p.mu.Unlock()
		return nil, status.Error(codes.Unavailable, "the answer was lost")
	}
	p.mu.Unlock()
	return p.api.BatchObjects(forwarded(ctx, ctx), in)
}

// BatchDelete implements pb.WeaviateServer.
func (p *Proxy) BatchDelete(ctx context.Context, in *pb.BatchDeleteRequest) (*pb.BatchDeleteReply, error) {
	return p.api.BatchDelete(forwarded(ctx, ctx), in)
}

// Search implements pb.WeaviateServer.
func (p *Proxy) Search(ctx context.Context, in *pb.SearchRequest) (*pb.SearchReply, error) {
	return p.api.Search(forwarded(ctx, ctx), in)
}
