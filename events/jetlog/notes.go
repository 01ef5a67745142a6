package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// NotesBucket is the name of the notes' key-value bucket.
const NotesBucket = "TURNLEDGER"

// Notes is a bucket beside the log, on the same servers. It holds the dead letters and the runners of views, the
// progress of side effects, which chat process took over a turn last, and keys that the operator has not set: that of
// hashes, and that of the ids of items. A value of Commit or Once is durable when they return; all other values may be
// lost in a power cut, and are rebuilt from the log. Keys are of [-/_=.a-zA-Z0-9]. Safe for concurrent use.
type Notes struct {
	kv   jetstream.KeyValue
	js   jetstream.JetStream
	gate *await.Gate // nil if the servers sync every write
}

// Notes opens the notes, and creates them if they are missing. Like Open it waits for servers that do not answer yet.
func (l *Log) Notes(ctx context.Context) (*Notes, error) {
	kv, err := wire.Patiently(ctx, l.openNotes)
	if err != nil {
		return nil, Unavailable("open notes", err)
	}
	return l.gated(kv)
}

// FindNotes returns the notes of a log that other processes have open, without a durability gate. While there are none
// it fails with ErrUnavailable.
func FindNotes(ctx context.Context, nc *nats.Conn) (*Notes, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, NotesBucket)
	if err != nil {
		return nil, Unavailable("open notes", err)
	}
	return &Notes{kv: kv, js: js}, nil
}

// gated puts the notes behind a durability gate of their own, if the log has gates.
func (l *Log) gated(kv jetstream.KeyValue) (*Notes, error) {
	gate, err := l.openGate("KV_"+NotesBucket, "the notes")
	return &Notes{kv: kv, js: l.wire.JS, gate: gate}, err
}

func (l *Log) openNotes(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := l.wire.JS.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: NotesBucket, Description: "What Turnledger's views and side effects remember outside the log",
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

// Read reads the value of a key, and returns its revision, or 0 if the key has no value.
func (n *Notes) Read(ctx context.Context, key string, into any) (revision uint64, err error) {
	entry, err := n.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, Unavailable("read a note", err)
	}
	if err := json.Unmarshal(entry.Value(), into); err != nil {
		return 0, fmt.Errorf("read a note: %w", err)
	}
	return entry.Revision(), nil
}

// Write writes the value of a key whose revision is still the given one, and returns the new revision. It fails with
// ErrConflict if another process has written the key.
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
	return revision, notWritten(err)
}

// Once returns the value of a key. If the key has none, Once first writes the value that draw returns. So all processes
// agree on one value for ever: it is durable when Once returns.
func (n *Notes) Once(ctx context.Context, key string, draw func() string) (value string, err error) {
	for {
		revision, err := n.Read(ctx, key, &value)
		if err == nil && revision == 0 {
			value = draw()
			revision, err = n.Write(ctx, key, value, 0)
		}
		if err == nil {
			err = n.gate.Wait(ctx, await.Mark(revision))
		}
		if !errors.Is(err, ErrConflict) { // on a conflict, read the other process's value
			return value, err
		}
	}
}

// Put writes a value under a key, whatever value the key had.
func (n *Notes) Put(ctx context.Context, key string, value any) error {
	raw, err := json.Marshal(value)
	if err == nil {
		_, err = n.kv.Put(ctx, key, raw)
	}
	return notWritten(err)
}

// Commit writes the value of a key durably. If the key guard no longer has the given revision, Commit changes nothing
// and fails with ErrConflict.
func (n *Notes) Commit(ctx context.Context, key string, value any, guard string, revision uint64) error {
	m := nats.NewMsg(noteSubject(key))
	var err error
	if m.Data, err = json.Marshal(value); err != nil {
		return err
	}
	return n.guarded(ctx, m, guard, revision)
}

// Remove deletes a key durably, under the same condition as Commit.
func (n *Notes) Remove(ctx context.Context, key, guard string, revision uint64) error {
	m := nats.NewMsg(noteSubject(key))
	m.Header.Set("KV-Operation", "PURGE")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	return n.guarded(ctx, m, guard, revision)
}

// guarded sends a message if the key guard still has a revision, and waits until it is durable.
func (n *Notes) guarded(ctx context.Context, m *nats.Msg, guard string, revision uint64) error {
	ack, err := n.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequenceForSubject(revision, noteSubject(guard)))
	if err != nil {
		return notWritten(err)
	}
	return n.gate.Wait(ctx, await.Mark(ack.Sequence))
}

// notWritten returns the error of a note that was not written, nil for nil.
func notWritten(err error) error {
	switch code := wire.APIError(err).ErrorCode; {
	case err == nil:
		return nil
	case code == codeWrongLastSequence, code == codeWrongLastConstant, errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("write a note: %w", ErrConflict)
	default:
		return Unavailable("write a note", err)
	}
}

func noteSubject(key string) string { return "$KV." + NotesBucket + "." + key }

// Note is the value of a key, written at At by the servers' clock.
type Note[T any] struct {
	Key      string
	Value    T
	Revision uint64
	At       time.Time
}

// EachNote calls f with the notes whose keys match a filter ("a.>"), in the order of their revisions.
func EachNote[T any](ctx context.Context, n notesReader, filter string, f func(Note[T])) error {
	return n.Each(ctx, filter, func(raw Note[json.RawMessage]) error {
		var value T
		if err := json.Unmarshal(raw.Value, &value); err != nil {
			return fmt.Errorf("read a note: %w", err)
		}
		f(Note[T]{raw.Key, value, raw.Revision, raw.At})
		return nil
	})
}

// notesReader is Notes, or what stands in for them.
type notesReader interface {
	Each(ctx context.Context, filter string, f func(Note[json.RawMessage]) error) error
}

// Each is EachNote with undecoded values; an error of f ends it.
func (n *Notes) Each(ctx context.Context, filter string, f func(Note[json.RawMessage]) error) error {
	all, err := n.kv.Watch(ctx, filter, jetstream.IgnoreDeletes())
	if err != nil {
		return Unavailable("read notes", err)
	}
	defer func() { _ = all.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return Unavailable("read notes", ctx.Err())
		case entry, open := <-all.Updates():
			switch {
			case !open:
				return fmt.Errorf("read notes: %w: the connection was lost", ErrUnavailable)
			case entry == nil: // all notes were read
				return err
			case err == nil:
				err = f(Note[json.RawMessage]{entry.Key(), entry.Value(), entry.Revision(), entry.Created()})
			}
		}
	}
}

// Drop deletes a key.
func (n *Notes) Drop(ctx context.Context, key string) error {
	if err := n.kv.Purge(ctx, key); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return Unavailable("drop a note", err)
	}
	return nil
}
