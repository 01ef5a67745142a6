package jetlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/convoy"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
	"github.com/turnledger/turnledger/events/room"
)

// Config says what the log must be. The zero value is one partition on one server that syncs by itself.
type Config struct {
	// Partitions is a power of two up to 256, fixed when the log is made.
	Partitions int
	// Replicas of each stream, 1 to 5.
	Replicas int
	// GateDir is the store directory of the embedded server whose writes the durability gate makes durable; empty where
	// the servers sync every write.
	GateDir string
	// Reads is a connection of its own to read sessions over, nil for the log's own. The server reads a session in the
	// order of the connection's requests: over one connection, writes would wait behind a session that is read from the
	// disk.
	Reads *nats.Conn
	// Outside: the server belongs to another process, or is a cluster.
	Outside bool
	// Writable returns why the embedded server takes no writes, or nil if it takes them. The field is nil if there is
	// no such server to ask.
	Writable func() error
	// MaxEvent is the largest event in bytes that the log must take; 1 MiB by default.
	MaxEvent int64
	// ReadBytes bounds what tails hold, all together, beside a floor of 64 KiB or one event each; 32 MiB by default.
	ReadBytes int
	// Deadline of a write whose outcome is unknown; 5 s by default.
	Deadline time.Duration
	// Restoring: the log is opened to end its restore, with operate.Log.Restored.
	Restoring bool
}

func (c Config) withDefaults() (Config, error) {
	c.Partitions, c.Replicas = cmp.Or(c.Partitions, 1), cmp.Or(c.Replicas, 1)
	c.MaxEvent, c.Deadline = cmp.Or(c.MaxEvent, 1<<20), cmp.Or(c.Deadline, 5*time.Second)
	c.ReadBytes = cmp.Or(c.ReadBytes, 32<<20)
	var err error
	if c.Partitions < 0 || c.Partitions > events.Buckets || bits.OnesCount(uint(c.Partitions)) != 1 {
		err = errors.Join(err, fmt.Errorf("%w: partitions must be a power of two from 1 to %d, not %d",
			ErrStream, events.Buckets, c.Partitions))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		err = errors.Join(err, fmt.Errorf("%w: replicas must be 1 to 5, not %d", ErrStream, c.Replicas))
	}
	if c.GateDir != "" && c.Replicas > 1 {
		err = errors.Join(err, fmt.Errorf("%w: the durability gate sees one server's disk "+
			"and can't vouch for %d replicas: set TURNLEDGER_SYNC=always on every server", ErrStream, c.Replicas))
	}
	return c, err
}

// Log is the log. Safe for concurrent use. It does not own its connection.
type Log struct {
	wire       *wire.Conn
	reads      *wire.Conn // for sessions; wire where they have no connection of their own
	cfg        Config
	room       *room.Room
	partitions []*partition
	// stuck: by the last answer to writes, the server takes no writes.
	stuck  atomic.Bool
	writes convoy.Barrier[struct{}]
}

type partition struct {
	number  int
	name    string
	created time.Time
	gate    *await.Gate
	barrier convoy.Barrier[uint64]
	// streamBarrier is a barrier that always asks whether the stream is still the one that this process has read.
	streamBarrier convoy.Barrier[uint64]
	// seen is the highest sequence that the server has shown this process.
	seen atomic.Uint64
	// sent is when the newest append that was acknowledged was sent, and elected when this process last had the leader
	// step down, both in Unix nanoseconds.
	sent, elected atomic.Int64
	// checked is when the stream was last compared with created, in Unix nanoseconds.
	checked    atomic.Int64
	together   convoy.Convoy[*joined]
	witness    witness
	identities identities
	// shared: when last seen, the stream stood in a cluster, so it may have replicas.
	shared atomic.Bool
	// mirrored: when last seen, another stream mirrored this one, or this could not be found out.
	mirrored atomic.Bool
}

// Open makes the streams that are missing, and compares the existing ones with cfg. A stream that differs is ErrStream,
// with what to do. Open waits for servers that do not answer yet, such as a cluster that elects its leaders.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	conn, err := wire.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &Log{wire: conn, reads: conn, cfg: cfg, room: room.New(cfg.ReadBytes)}
	l.writes.Ask = func(context.Context) (struct{}, error) {
		err := l.cfg.Writable()
		l.stuck.Store(err != nil)
		return struct{}{}, err
	}
	if cfg.Reads != nil {
		if l.reads, err = wire.New(cfg.Reads); err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
	}
	if most := nc.MaxPayload(); most < cfg.MaxEvent {
		return nil, fmt.Errorf("%w: the NATS server takes payloads of %d bytes, %d are needed: "+
			"set max_payload: 8MB in its configuration", ErrStream, most, cfg.MaxEvent)
	}
	infos, err := l.openStreams(ctx)
	if err != nil {
		return nil, err
	}
	for k, info := range infos {
		if err := l.checkMark(ctx, info); err != nil {
			return nil, err
		}
		p, err := l.openPartition(ctx, k, info)
		if err != nil {
			return nil, err
		}
		l.partitions = append(l.partitions, p)
	}
	l.lookForMirrors(ctx)
	return l, nil
}

func (l *Log) openPartition(ctx context.Context, k int, info *jetstream.StreamInfo) (*partition, error) {
	p := &partition{number: k, name: info.Config.Name, created: layout.Made(info.Created, info.Config.Metadata)}
	p.shared.Store(clustered(info.Cluster))
	p.barrier.Ask = func(ctx context.Context) (uint64, error) { return l.last(ctx, p) }
	p.streamBarrier.Ask = func(ctx context.Context) (uint64, error) { return l.unreplaced(ctx, p) }
	p.identities.ask.Ask = func(ctx context.Context) (uint64, error) { return l.askIdentities(ctx, p) }
	var err error
	if p.gate, err = l.openGate(p.name, p.name); err != nil {
		return nil, err
	}
	l.remember(ctx, p, info.State.LastSeq)
	return p, nil
}

// openGate opens the durability gate of a stream. It returns nil if the servers sync by themselves. called names the
// stream in errors.
func (l *Log) openGate(stream, called string) (*await.Gate, error) {
	if l.cfg.GateDir == "" {
		return nil, nil
	}
	gate, err := await.OpenGate(filepath.Join(l.cfg.GateDir, "jetstream", "$G", "streams", stream))
	if err != nil {
		return nil, fmt.Errorf("durability gate of %s: %w", called, err)
	}
	return gate, nil
}

// Close frees what the log holds of its connection. Reads and writes fail afterwards.
func (l *Log) Close() {
	l.wire.Close()
	if l.reads != l.wire {
		l.reads.Close()
	}
}

// Partitions returns the number of partitions.
func (l *Log) Partitions() int { return l.cfg.Partitions }

// Partition returns the partition of a session, or of an identity.
func (l *Log) Partition(sessionID string) int { return events.Partition(sessionID, l.cfg.Partitions) }

// Created returns when a partition's stream was made, or restored. A stream that was made anew has another time.
func (l *Log) Created(partition int) time.Time { return l.partitions[partition].created }

// Room bounds what those who read the log hold of it.
func (l *Log) Room() *room.Room { return l.room }

// partition returns a partition by its number, which may come from outside.
func (l *Log) partition(k int) (*partition, error) {
	if k < 0 || k >= len(l.partitions) {
		return nil, fmt.Errorf("%w: %d", ErrNoPartition, k)
	}
	return l.partitions[k], nil
}

func (l *Log) partitionOf(sessionID string) *partition { return l.partitions[l.Partition(sessionID)] }

// Inside serves the packages under this folder. Other packages can't import the type that it returns.
func (l *Log) Inside() inside.Log {
	return inside.Log{
		Wire: l.wire, Layout: l.layout(), Deadline: l.cfg.Deadline, Measure: l.measure,
		Partition: func(k int) (inside.Partition, error) {
			p, err := l.partition(k)
			if err != nil {
				return inside.Partition{}, err
			}
			return inside.Partition{Number: k, Stream: p.name, Gate: p.gate}, nil
		},
		LeaderHead: func(ctx context.Context, k int) (uint64, error) { return l.head(ctx, l.partitions[k]) },
		Publish: func(ctx context.Context, k int, m *nats.Msg) (uint64, error) {
			ack, _, err := l.send(ctx, l.partitions[k], []*nats.Msg{m})
			return ack.Position.Seq, err
		},
	}
}
