package desk

import (
	"context"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// Members is the group of the runners that feed one store (projections.Group). It goes by the clock of the notes'
// servers.
type Members struct {
	desk  *Desk
	name  string
	store func(context.Context) (string, error)
}

var _ projections.Group = (*Members)(nil)

// Members returns the group of a projection's runners. It calls store for the store's id at each beat: runners that
// follow one log into two databases share nothing. If the projection has no store of its own, store is nil.
func (d *Desk) Members(name string, store func(context.Context) (string, error)) *Members {
	return &Members{d, name, store}
}

// keys returns the notes, and the prefix of the members' keys.
func (m *Members) keys(ctx context.Context) (notes Notes, prefix string, err error) {
	prefix = key("members", m.name, "")
	if m.store != nil {
		var store string
		store, err = m.store(ctx)
		prefix = key("members", m.name, storeKey(store), "")
	}
	if err == nil {
		notes, err = m.desk.open(ctx)
	}
	return notes, prefix, err
}

// Beat implements projections.Group. It also removes members that died.
func (m *Members) Beat(ctx context.Context, member string, alive time.Duration) (living []string, err error) {
	defer projections.Wrap(&err, "meet the other runners")
	notes, prefix, err := m.keys(ctx)
	if err == nil {
		err = notes.Put(ctx, prefix+member, true)
	}
	seen := map[string]time.Time{}
	if err == nil {
		err = jetlog.EachNote(ctx, notes, prefix+">", func(n jetlog.Note[bool]) {
			seen[strings.TrimPrefix(n.Key, prefix)] = n.At
		})
	}
	if err != nil {
		return nil, err
	}
	for other, at := range seen {
		switch silent := seen[member].Sub(at); {
		case other == member, silent <= alive:
			living = append(living, other)
		case silent > forgetAfter*alive:
			_ = notes.Drop(ctx, prefix+other) // the next beat tries again
		}
	}
	return living, nil
}

// forgetAfter, times the silence that makes a member dead, is when the member's key is removed. The delay spares a
// member that was only paused from writing its key again.
const forgetAfter = 10

// Leave implements projections.Group.
func (m *Members) Leave(ctx context.Context, member string) (err error) {
	defer projections.Wrap(&err, "leave the other runners")
	notes, prefix, err := m.keys(ctx)
	if err == nil {
		err = notes.Drop(ctx, prefix+member)
	}
	return err
}
