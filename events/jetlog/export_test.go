package jetlog

import (
	"context"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events/convoy"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// SetFsync puts another fsync into the notes' gate, between two syncs.
func (n *Notes) SetFsync(ctx context.Context, fsync func(*os.File) error) error {
	return n.gate.Alone(ctx, func() error {
		n.gate.Fsync = fsync
		return nil
	})
}

// Retry is retry.
var Retry = retry

// HeardMajority is heardMajority.
var HeardMajority = heardMajority

// Head is Log.head on a connection, of a stream of that name.
func Head(ctx context.Context, nc *nats.Conn, stream string) (uint64, error) {
	conn, err := wire.New(nc)
	if err != nil {
		return 0, err
	}
	return (&Log{wire: conn}).head(ctx, &partition{name: stream})
}

// Missing asks for the event at a sequence of a stream of that name, of which sequences up to seen were shown.
func Missing(ctx context.Context, nc *nats.Conn, stream string, seen, seq uint64) (bool, error) {
	conn, err := wire.New(nc)
	if err != nil {
		return false, err
	}
	p := &partition{name: stream}
	p.saw(seen)
	m, err := (&Log{wire: conn}).surely(ctx, p, map[string]any{"seq": seq}, seq, seq)
	return m == nil, err
}

// AnyHead is Log.anyHead over partitions with these questions.
func AnyHead(ctx context.Context, until time.Time, asks ...func(context.Context) (uint64, error)) bool {
	l := &Log{}
	for _, ask := range asks {
		p := &partition{barrier: convoy.Barrier[uint64]{Ask: ask}}
		p.shared.Store(true)
		l.partitions = append(l.partitions, p)
	}
	return l.anyHead(ctx, until)
}

// Messages returns what an append publishes.
func (l *Log) Messages(a Append) ([]*nats.Msg, error) {
	msgs, _, err := l.encode(a)
	return msgs, err
}

// Batch publishes the messages of appends as one atomic batch, and returns the sequence of the last.
func (l *Log) Batch(ctx context.Context, appends ...[]*nats.Msg) (uint64, error) {
	var group []*joined
	for _, msgs := range appends {
		group = append(group, &joined{msgs: msgs})
	}
	return l.publishBatch(ctx, l.partitions[0], group)
}

// Whole reports whether a batch with this first message is there, at a sequence.
func (l *Log) Whole(ctx context.Context, first *nats.Msg, at uint64) error {
	return l.whole(ctx, l.partitions[0], first, at)
}
