// Package desk keeps, in the log's notes, what all views and effects need besides their rows: the dead letters of
// events that could not be applied, the runners that share the partitions of a store, and the lease of a rebuild.
//
// A checkpoint is stored with its rows, so a letter and the checkpoint that passes its event are two writes. The letter
// is durable first, and counts once the checkpoint has passed its event (Queue). A process that claims a partition
// takes over its letters (ClaimLetters). From then on no runner with an older claim can write a letter. ClaimLetters
// removes the letters of events that the checkpoint has not passed, since the new runner applies these events itself.
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
	Remove(ctx context.Context, key, guard string, revision uint64) error
	Each(ctx context.Context, filter string, f func(jetlog.Note[json.RawMessage]) error) error
	Drop(ctx context.Context, key string) error
}

var _ Notes = (*jetlog.Notes)(nil)

// Desk is the desk of one log. Safe for concurrent use.
type Desk struct {
	// open returns the notes, and creates them when they are first needed.
	open func(ctx context.Context) (Notes, error)
	// most bounds the letters that are kept of a partition; 0: no bound.
	most int
}

// Bounded returns the desk with a bound on the letters of a partition: beyond it, the oldest are removed. 0: no bound.
func (d *Desk) Bounded(letters int) *Desk { return &Desk{d.open, letters} }

// New makes a desk on notes.
func New(notes Notes) *Desk {
	return &Desk{open: func(context.Context) (Notes, error) { return notes, nil }}
}

// Of makes the desk of a log. It opens the log's notes when they are first needed.
func Of(log *jetlog.Log) *Desk {
	opening := make(chan struct{}, 1)
	var notes *jetlog.Notes
	return &Desk{open: func(ctx context.Context) (Notes, error) {
		select {
		case opening <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-opening }()
		if notes == nil {
			// The server continues to create the bucket after its caller has given up, so the caller's end must not
			// abandon it.
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

// key joins the parts of a key; a store's name counts as one part.
func key(parts ...string) string { return strings.Join(parts, ".") }

// storeKey returns a store's name for keys; a store without an id has a name too.
func storeKey(store string) string {
	if store == "" {
		return "-"
	}
	return strings.NewReplacer(".", "_", "*", "_", ">", "_", " ", "_").Replace(store)
}
