package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// notesBucket is the key-value bucket of what side effects remember.
const notesBucket = "TURNLEDGER"

// Notes is what a side effect remembers outside the log, in the same servers: how far it
// is, and who is at it; which chat took a turn over last; and the key of hashes that nobody
// has set. It decides nothing that the log says, and but for that key is rebuilt from the log where it is lost. Keys are of [-/_=.a-zA-Z0-9]. Safe for concurrent use.
type Notes struct{ kv jetstream.KeyValue }

// Notes opens the notes, and makes them where they are missing. It waits for a server that
// is slow to answer, and for a cluster that is about to elect leaders: a process may start
// in the middle of that.
func (l *Log) Notes(ctx context.Context) (*Notes, error) {
	for began := time.Now(); ; pause(ctx, 50*time.Millisecond) {
		kv, err := l.openNotes(ctx)
		switch {
		case err == nil:
			return &Notes{kv}, nil
		case time.Since(began) > startTime, ctx.Err() != nil,
			!l.partitions[0].shared.Load() && !errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("open notes: %w: %w", ErrUnavailable, err)
		}
	}
}

func (l *Log) openNotes(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := l.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: notesBucket, Description: "What Turnledger's side effects remember; made anew from the log",
		History: 1, Storage: jetstream.FileStorage, Replicas: l.cfg.Replicas,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	// A bucket that was just made has no leader yet to ask.
	if _, err := kv.Get(ctx, "probe"); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, err
	}
	return kv, nil
}

// Read gives what stands under a key, and its revision, which is 0 where nothing does.
func (n *Notes) Read(ctx context.Context, key string, into any) (revision uint64, err error) {
	entry, err := n.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read a note: %w: %w", ErrUnavailable, err)
	}
	if err := json.Unmarshal(entry.Value(), into); err != nil {
		return 0, fmt.Errorf("read a note: %w", err)
	}
	return entry.Revision(), nil
}

// Write puts a value under a key if its revision is still the one given, and gives the
// new one. ErrConflict where somebody else has written.
func (n *Notes) Write(ctx context.Context, key string, value any, revision uint64) (uint64, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		revision, err = n.kv.Create(ctx, key, raw)
	} else {
		revision, err = n.kv.Update(ctx, key, raw, revision)
	}
	switch code, _ := apiError(err); {
	case err == nil:
		return revision, nil
	case code == codeWrongLastSequence, code == codeWrongLastConstant, errors.Is(err, jetstream.ErrKeyExists):
		return 0, fmt.Errorf("write a note: %w", ErrConflict)
	default:
		return 0, fmt.Errorf("write a note: %w: %w", ErrUnavailable, err)
	}
}

// Put puts a value under a key, whatever stands there.
func (n *Notes) Put(ctx context.Context, key string, value any) error {
	raw, err := json.Marshal(value)
	if err == nil {
		_, err = n.kv.Put(ctx, key, raw)
	}
	if err != nil {
		return fmt.Errorf("write a note: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// Note is what stands under a key, since At by the servers' clock.
type Note[T any] struct {
	Value    T
	Revision uint64
	At       time.Time
}

// EachNote hands on what stands under the keys that match a filter ("a.>"), in the order
// of their revisions.
func EachNote[T any](ctx context.Context, n *Notes, filter string, f func(Note[T])) error {
	return n.each(ctx, filter, func(entry jetstream.KeyValueEntry) error {
		var value T
		if err := json.Unmarshal(entry.Value(), &value); err != nil {
			return fmt.Errorf("read a note: %w", err)
		}
		f(Note[T]{value, entry.Revision(), entry.Created()})
		return nil
	})
}

func (n *Notes) each(ctx context.Context, filter string, f func(jetstream.KeyValueEntry) error) error {
	all, err := n.kv.Watch(ctx, filter, jetstream.IgnoreDeletes())
	if err != nil {
		return fmt.Errorf("read notes: %w: %w", ErrUnavailable, err)
	}
	defer func() { _ = all.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("read notes: %w: %w", ErrUnavailable, ctx.Err())
		case entry, open := <-all.Updates():
			switch {
			case !open:
				return fmt.Errorf("read notes: %w: the connection was lost", ErrUnavailable)
			case entry == nil: // that is all there is
				return err
			case err == nil:
				err = f(entry)
			}
		}
	}
}

// Drop takes a key away.
func (n *Notes) Drop(ctx context.Context, key string) error {
	if err := n.kv.Purge(ctx, key); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("drop a note: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// Members is a group of runners that is kept in the notes (projections.Group).
type Members struct {
	notes  *Notes
	prefix string
}

// Members gives the group of a name.
func (n *Notes) Members(name string) *Members { return &Members{n, "members." + name + "."} }

// Beat implements projections.Group, by the servers' clock.
func (m *Members) Beat(ctx context.Context, member string, alive time.Duration) ([]string, error) {
	if err := m.notes.Put(ctx, m.prefix+member, true); err != nil {
		return nil, err
	}
	seen := map[string]time.Time{}
	err := m.notes.each(ctx, m.prefix+"*", func(entry jetstream.KeyValueEntry) error {
		seen[strings.TrimPrefix(entry.Key(), m.prefix)] = entry.Created()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("meet the others: %w", err)
	}
	var out []string
	for other, at := range seen {
		if seen[member].Sub(at) < alive {
			out = append(out, other)
		}
	}
	return out, nil
}

// Leave implements projections.Group.
func (m *Members) Leave(ctx context.Context, member string) error {
	return m.notes.Drop(ctx, m.prefix+member)
}
