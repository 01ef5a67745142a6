package jetlog

import (
	"context"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

// Made is when a stream came to be what it is.
var Made = made

// Fsync is what a gate syncs a file or folder with.
type Fsync func(*os.File) error

// SetFsync puts another fsync into a partition's gate, between two syncs.
func (l *Log) SetFsync(partition int, f Fsync) {
	g := l.partitions[partition].gate
	g.turn <- struct{}{}
	g.fsync = f
	<-g.turn
}

// SetFsync puts another fsync into the notes' gate, between two syncs.
func (n *Notes) SetFsync(f Fsync) {
	n.gate.turn <- struct{}{}
	n.gate.fsync = f
	<-n.gate.turn
}

// Gate is a gate by itself.
type Gate struct{ g *gate }

// NewGate opens a gate on a stream's folder.
func NewGate(stream string, f Fsync) (*Gate, error) {
	g, err := openGate(stream)
	if err != nil {
		return nil, err
	}
	g.fsync = f
	return &Gate{g}, nil
}

// Wait is gate.wait.
func (g *Gate) Wait(ctx context.Context, seq uint64) error { return g.g.wait(ctx, seq) }

// Barrier is a barrier by itself.
type Barrier struct{ b barrier }

// NewBarrier makes a barrier with a question.
func NewBarrier(ask func(context.Context) (uint64, error)) *Barrier {
	return &Barrier{barrier{ask: ask}}
}

// Wait is barrier.wait.
func (b *Barrier) Wait(ctx context.Context) (uint64, error) { return b.b.wait(ctx) }

// Wanted is the highest sequence that anybody has waited for.
func (g *Gate) Wanted() uint64 { return g.g.wanted.Load() }

// Retry is retry.
var Retry = retry

// HeardMajority is heardMajority.
var HeardMajority = heardMajority

// Give is Log.give on a connection.
func Give(ctx context.Context, nc *nats.Conn, to string, part []byte) error {
	return (&Log{nc: nc}).give(ctx, to, part, chunkDeadline)
}

// Ask is Log.ask on a connection.
func Ask(ctx context.Context, nc *nats.Conn, verb string, out any) error {
	return (&Log{nc: nc, replies: newReplies(nc)}).ask(ctx, verb, nil, out)
}

// Head is Log.head on a connection, of a stream of that name.
func Head(ctx context.Context, nc *nats.Conn, stream string) (uint64, error) {
	return (&Log{nc: nc, replies: newReplies(nc)}).head(ctx, &partition{name: stream})
}

// AnyHead is Log.anyHead over partitions with these questions.
func AnyHead(ctx context.Context, until time.Time, asks ...func(context.Context) (uint64, error)) bool {
	l := &Log{}
	for _, ask := range asks {
		p := &partition{barrier: barrier{ask: ask}}
		p.shared.Store(true)
		l.partitions = append(l.partitions, p)
	}
	return l.anyHead(ctx, until)
}
