package weaviate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/weaviate/weaviate/grpc/generated/protocol/v1"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// Config of a Weaviate.
type Config struct {
	// URL of its REST API, such as http://127.0.0.1:8080. With https, gRPC is encrypted, too.
	URL string
	// GRPC is host:port of its gRPC API; the URL's host and port 50051 by default.
	GRPC string
	// Key is an API key; empty where Weaviate admits anonymous callers.
	Key string
	// WithoutTexts keeps texts of turns out of the objects: only ids, filters and vectors are stored.
	WithoutTexts bool
}

// Weaviate is a server, or a cluster. Safe for concurrent use.
type Weaviate struct {
	cfg  Config
	conn *grpc.ClientConn
	api  pb.WeaviateClient
	rest *http.Client
}

var (
	_ index.Collections = (*Weaviate)(nil)
	_ index.Objects     = (*Weaviate)(nil)
)

const (
	defaultPort = "50051"
	// largest bounds an answer: a page of objects with their vectors.
	largest = 256 << 20
	// restDeadline bounds a call of the REST API.
	restDeadline = 10 * time.Second
	// mostBackoff bounds the pause before a lost connection is tried again, and connectDeadline one try.
	mostBackoff     = time.Second
	connectDeadline = 5 * time.Second
)

// New makes a client; it connects at the first call.
func New(cfg Config) (*Weaviate, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" {
		return nil, errors.New("weaviate: the URL can't be read: want http://host:port")
	}
	safe := insecure.NewCredentials()
	if u.Scheme == "https" {
		safe = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	target := cmp.Or(cfg.GRPC, net.JoinHostPort(u.Hostname(), defaultPort))
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(safe),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectDeadline, Backoff: backoff.Config{
			BaseDelay: mostBackoff / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: mostBackoff,
		}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest), grpc.MaxCallSendMsgSize(largest)))
	if err != nil {
		return nil, fmt.Errorf("weaviate: connect to %s: %w", target, err)
	}
	return &Weaviate{cfg, conn, pb.NewWeaviateClient(conn), &http.Client{Timeout: restDeadline}}, nil
}

// Store returns the store of an index.
func (w *Weaviate) Store() index.Store { return index.Store{Collections: w, Objects: w} }

// Close ends the connections.
func (w *Weaviate) Close() {
	_ = w.conn.Close()
	w.rest.CloseIdleConnections()
}

func (w *Weaviate) signed(ctx context.Context) context.Context {
	if w.cfg.Key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.cfg.Key)
}

// failure returns an error of a gRPC call without what Weaviate said, which may repeat a text.
func failure(attempted string, err error) error {
	if err == nil {
		return nil
	}
	return projections.Unavailable(fmt.Errorf("weaviate: %s: %s", attempted, status.Code(err)))
}
