package jetlog

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"golang.org/x/sync/singleflight"

	"github.com/turnledger/turnledger/events"
)

// Config says what the log must be. The zero value is one partition on one server
// that syncs by itself.
type Config struct {
	// Partitions is a power of two up to 256, fixed when the log is made.
	Partitions int
	Replicas   int
	// GateDir is the store directory of the embedded server whose writes the
	// durability gate makes durable; empty where the servers sync every write.
	GateDir string
	// Outside: the server is another process's, or a cluster of its own.
	Outside bool
	// Writable tells why the embedded server takes no writes, if it takes none; nil where
	// nobody knows.
	Writable func() error
	// Account names the JetStream account below GateDir.
	Account string
	// MaxEvent is the largest event in bytes that the log must take; 1 MiB by default.
	MaxEvent int64
	// Deadline of a write whose outcome is unknown; 5 s by default.
	Deadline time.Duration
	// Restoring: the log is opened to end its restore, with Restored.
	Restoring bool
	// Now gives ce-time; it decides nothing.
	Now func() time.Time
}

func (c Config) withDefaults() (Config, error) {
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Account == "" {
		c.Account = "$G"
	}
	if c.MaxEvent == 0 {
		c.MaxEvent = 1 << 20
	}
	if c.Deadline == 0 {
		c.Deadline = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	var err error
	if c.Partitions < 0 || c.Partitions > events.Buckets || bits.OnesCount(uint(c.Partitions)) != 1 {
		err = errors.Join(err, fmt.Errorf("%w: partitions must be a power of two from 1 to %d, not %d", ErrStream, events.Buckets, c.Partitions))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		err = errors.Join(err, fmt.Errorf("%w: replicas must be 1 to 5, not %d", ErrStream, c.Replicas))
	}
	if c.GateDir != "" && c.Replicas > 1 {
		err = errors.Join(err, fmt.Errorf("%w: the durability gate sees one server's disk and can't vouch for %d replicas: set TURNLEDGER_SYNC=always on every server", ErrStream, c.Replicas))
	}
	return c, err
}

// Log is the log. Safe for concurrent use. It does not own its connection.
type Log struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	cfg        Config
	partitions []*partition
	replies    *replies
	// stuck: Writable told last that the server takes no writes. It is asked once for all
	// who want to know.
	stuck  atomic.Bool
	asking singleflight.Group
}

type partition struct {
	number  int
	name    string
	created time.Time
	gate    *gate
	barrier barrier
	// whole is a barrier whose question always is whether the stream is still the same.
	whole barrier
	// seen is the highest sequence that the server has shown this process.
	seen atomic.Uint64
	// checked is when the stream was last held against created, in Unix nanoseconds.
	checked    atomic.Int64
	shown      shown
	identities identities
	// shared: it stands in a cluster, as was last seen, and may have replicas.
	shared atomic.Bool
	// mirrored: another stream mirrors it, as was last seen, or nobody can tell.
	mirrored atomic.Bool
}

// startTime is how long a process that starts waits for servers that don't answer: as long
// as a cluster may take of which all were killed.
const startTime = 30 * time.Second

// Open makes the streams that are missing and holds those that are there against
// cfg. One that differs is ErrStream with what to do. It waits for servers that are slow to
// answer, such as those of a cluster that makes all its streams for the first time.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &Log{nc: nc, js: js, cfg: cfg, replies: newReplies(nc)}
	if most := nc.MaxPayload(); most < cfg.MaxEvent {
		return nil, fmt.Errorf("%w: the NATS server takes payloads of %d bytes, %d are needed: set max_payload: 8MB in its configuration", ErrStream, most, cfg.MaxEvent)
	}
	infos, err := l.openStreams(ctx)
	for began := time.Now(); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && time.Since(began) < startTime; {
		infos, err = l.openStreams(ctx)
	}
	if err != nil {
		return nil, err
	}
	for k, info := range infos {
		if err := l.checkMark(ctx, info); err != nil {
			return nil, err
		}
		p := &partition{number: k, name: info.Config.Name, created: made(info.Created, info.Config.Metadata)}
		p.shared.Store(clustered(info.Cluster))
		p.barrier.ask = func(ctx context.Context) (uint64, error) { return l.last(ctx, p) }
		p.whole.ask = func(ctx context.Context) (uint64, error) { return l.head(ctx, p) }
		p.identities.ask.ask = func(ctx context.Context) (uint64, error) { return l.askIdentities(ctx, p) }
		if cfg.GateDir != "" {
			if p.gate, err = openGate(l.storeDir(p.name)); err != nil {
				return nil, fmt.Errorf("durability gate of %s: %w", p.name, err)
			}
		}
		l.remember(ctx, p, info.State.LastSeq)
		l.partitions = append(l.partitions, p)
	}
	l.lookForMirrors(ctx)
	return l, nil
}

// Close lets go of what the log holds of its connection. Reads and writes fail afterwards.
func (l *Log) Close() { l.replies.close() }

// storeDir is the folder that the embedded server keeps a stream in.
func (l *Log) storeDir(stream string) string {
	return filepath.Join(l.cfg.GateDir, "jetstream", l.cfg.Account, "streams", stream)
}

// Partitions is the number of partitions.
func (l *Log) Partitions() int { return l.cfg.Partitions }

// Partition is the partition of a session.
func (l *Log) Partition(sessionID string) int { return events.Partition(sessionID, l.cfg.Partitions) }

// Created is when a partition's stream was made, or restored: a stream made anew has another.
func (l *Log) Created(partition int) time.Time { return l.partitions[partition].created }

// partition gives a partition by its number, which may come from outside.
func (l *Log) partition(k int) (*partition, error) {
	if k < 0 || k >= len(l.partitions) {
		return nil, fmt.Errorf("%w: there is no partition %d", ErrNotReached, k)
	}
	return l.partitions[k], nil
}

func (l *Log) of(sessionID string) *partition { return l.partitions[l.Partition(sessionID)] }
