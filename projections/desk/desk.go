// Package desk keeps what all views and effects need beside their rows, once for all of them, in the log's
// notes: the dead letters of what could not be applied, the runners that share the partitions of a store, and
// the lease of a rebuild.
//
// A checkpoint stays with its rows, so a letter and the checkpoint that passes its event are two writes. The letter is
// durable first, and counts once the checkpoint stands (Queue). A process that claims a partition takes its letters
// over (Own). From then on no former owner can write a letter. Own removes the letters of events that the checkpoint
// has not passed, since the new owner applies these events itself.
package desk

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
)

// Notes is where a desk writes; *jetlog.Notes is one.
type Notes interface {
	Read(ctx context.Context, key string, into any) (revision uint64, err error)
	Write(ctx context.Context, key string, value any, revision uint64) (uint64, error)
	Put(ctx context.Context, key string, value any) error
	Commit(ctx context.Context, key string, value any, guard string, revision uint64) error
	Each(ctx context.Context, filter string, f func(jetlog.Note[json.RawMessage]) error) error
	Drop(ctx context.Context, key string) error
}

var _ Notes = (*jetlog.Notes)(nil)

// Desk is the desk of one log. Safe for concurrent use.
type Desk struct {
	// open returns the notes, which are made when they are first needed.
	open func(ctx context.Context) (Notes, error)
}

// New makes a desk on notes.
func New(notes Notes) *Desk {
	return &Desk{func(context.Context) (Notes, error) { return notes, nil }}
}

// Of makes the desk of a log, whose notes are opened when they are first needed.
func Of(log *jetlog.Log) *Desk {
	gate := make(chan struct{}, 1)
	var notes *jetlog.Notes
	return &Desk{func(ctx context.Context) (Notes, error) {
		select {
		case gate <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-gate }()
		if notes == nil {
			// A server goes on making what a caller has given up, into its own end.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openDeadline)
			defer cancel()
			var err error
			if notes, err = log.Notes(ctx); err != nil {
				return nil, err
			}
		}
		return notes, nil
	}}
}

// openDeadline bounds one try to open the notes.
const openDeadline = 5 * time.Second

// key joins the parts of a key; what names a store is taken as one part.
func key(parts ...string) string { return strings.Join(parts, ".") }

// storeKey names a store in keys; one without an id is named as well.
func storeKey(store string) string {
	if store == "" {
		return "-"
	}
	return strings.NewReplacer(".", "_", "*", "_", ">", "_", " ", "_").Replace(store)
}
