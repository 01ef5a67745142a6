package jetlog

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	// Account names the JetStream account below GateDir.
	Account string
	// MaxEvent is the largest event in bytes that the log must take; 1 MiB by default.
	MaxEvent int64
	// Deadline of a write whose outcome is unknown; 5 s by default.
	Deadline time.Duration
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
	if c.Partitions < 0 || c.Partitions > events.Buckets || bits.OnesCount(uint(c.Partitions)) != 1 { //nolint:gosec // not negative here
		return c, fmt.Errorf("%w: partitions must be a power of two from 1 to %d, not %d", ErrStream, events.Buckets, c.Partitions)
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		return c, fmt.Errorf("%w: replicas must be 1 to 5, not %d", ErrStream, c.Replicas)
	}
	return c, nil
}

// Log is the log. Safe for concurrent use. It does not own its connection.
type Log struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	cfg        Config
	partitions []*partition
	replies    *replies
}

type partition struct {
	number  int
	name    string
	created time.Time
	gate    *gate
	barrier barrier
	// seen is the highest sequence that the server has shown this process.
	seen atomic.Uint64
}

// Open makes the streams that are missing and holds those that are there against
// cfg. One that differs is ErrStream with what to do.
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
	for k := range cfg.Partitions {
		p, err := l.openPartition(ctx, k)
		if err != nil {
			return nil, err
		}
		p.barrier.ask = func(ctx context.Context) (uint64, error) { return l.last(ctx, p) }
		l.partitions = append(l.partitions, p)
	}
	return l, nil
}

// Partitions is the number of partitions.
func (l *Log) Partitions() int { return l.cfg.Partitions }

// Partition is the partition of a session.
func (l *Log) Partition(sessionID string) int { return events.Partition(sessionID, l.cfg.Partitions) }

// Created is when a partition's stream was made: a stream made anew has another.
func (l *Log) Created(partition int) time.Time { return l.partitions[partition].created }

func (l *Log) openPartition(ctx context.Context, k int) (*partition, error) {
	want := l.streamConfig(k)
	stream, err := l.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = l.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = l.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w: %w", want.Name, ErrUnavailable, err)
	}
	info := stream.CachedInfo()
	if err := fits(info.Config, want); err != nil {
		return nil, err
	}
	p := &partition{number: k, name: want.Name, created: info.Created}
	if l.cfg.GateDir == "" {
		return p, nil
	}
	p.gate, err = openGate(filepath.Join(l.cfg.GateDir, "jetstream", l.cfg.Account, "streams", want.Name))
	if err != nil {
		return nil, fmt.Errorf("durability gate of %s: %w", want.Name, err)
	}
	return p, nil
}

const partitionsKey = "turnledger.partitions"

func (l *Log) streamConfig(k int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               events.StreamName(k),
		Description:        "Turnledger's log, partition " + strconv.Itoa(k),
		Subjects:           events.StreamSubjects(k, l.cfg.Partitions),
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Replicas:           l.cfg.Replicas,
		Duplicates:         2 * time.Minute,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{partitionsKey: strconv.Itoa(l.cfg.Partitions)},
	}
}

// fits holds a stream that is there against the one wanted.
func fits(have, want jetstream.StreamConfig) error {
	var err error
	complain := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("%w: stream %s "+format, append([]any{ErrStream, have.Name}, args...)...))
	}
	if n := have.Metadata[partitionsKey]; n != want.Metadata[partitionsKey] {
		if n == "" {
			complain("was not made by Turnledger: give Turnledger a NATS account of its own")
			return err
		}
		complain("was made with %s partitions, which is fixed for ever: set TURNLEDGER_PARTITIONS=%s (or start a new log in an empty data directory)", n, n)
		return err
	}
	if have.Storage != want.Storage {
		complain("is kept in %s, not in files: an acknowledged turn would not survive a restart; make the log anew on file storage", have.Storage)
	}
	if have.Replicas != want.Replicas {
		complain("has %d replicas, not %d: set TURNLEDGER_REPLICAS=%d, or change the stream with: nats stream edit %s --replicas %d",
			have.Replicas, want.Replicas, have.Replicas, have.Name, want.Replicas)
	}
	a, b := slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects))
	if !slices.Equal(a, b) {
		complain("captures other subjects than its partition owns: restore them, or make the log anew")
	}
	if !have.AllowAtomicPublish || !have.AllowDirect || have.MaxMsgsPerSubject > 0 || have.MaxAge > 0 || have.MaxMsgs > 0 || have.MaxBytes > 0 {
		complain("was changed (limits, atomic publish or direct get): a log without limits is needed; undo it with: nats stream edit %s", have.Name)
	}
	return err
}
