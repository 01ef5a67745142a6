// Package identities lists sessions, and the turns of an identity across its sessions. It reads them from the audit
// tables, which follow the log. A listing waits until the tables hold all that was acknowledged before the request, and
// never shows less.
package identities

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/services"
)

// Tables are the audit tables.
type Tables interface {
	Applied(ctx context.Context, partition int) (events.Position, error)
	IdentityTurns(
		ctx context.Context, identityID string, since, until time.Time, limit int, cursor string,
	) (turns []audit.Turn, next string, err error)
	Sessions(
		ctx context.Context, filter projections.SessionFilter, limit int, cursor string,
	) (page []projections.ListedSession, next string, err error)
	Counts(ctx context.Context, f projections.CountsFilter) ([]projections.Counts, []events.Position, error)
	Anomalies(ctx context.Context, f projections.CountsFilter) ([]projections.Anomalies, error)
	Search(
		ctx context.Context, f projections.SearchFilter, limit int, cursor string,
	) (hits []projections.Hit, at []events.Position, next string, err error)
	TurnsByID(ctx context.Context, ids []uuid.UUID) ([]audit.Turn, error)
}

// Log is the log that the tables follow.
type Log interface {
	Partitions() int
	Head(ctx context.Context, partition int) (events.Position, error)
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
	projections.Erasures
}

// defaultPatience bounds how long a listing waits for the tables.
const defaultPatience = 2 * time.Second

// pollPause is the pause between two looks at the tables' position.
const pollPause = 10 * time.Millisecond

// Reader reads from the tables. Safe for concurrent use.
type Reader struct {
	tables   func() (Tables, error)
	log      Log
	patience time.Duration
	// sessions, where not nil, reads anonymous sessions that were active within ttl.
	sessions services.SessionReader
	ttl      time.Duration
}

var _ services.IdentityReader = (*Reader)(nil)

// New makes a reader. It calls tables at each listing, since the tables may be unavailable. patience is 2 s by default.
func New(tables func() (Tables, error), log Log, patience time.Duration) *Reader {
	return &Reader{tables: tables, log: log, patience: cmp.Or(patience, defaultPatience)}
}

// IdentityTurns implements services.IdentityReader.
func (r *Reader) IdentityTurns(ctx context.Context, ask services.IdentityAsk) (services.IdentityPage, error) {
	erasures := projections.ErasureCheck{Log: r.log}
	return projections.Unerased(ctx, erasures, ask.IdentityID, func() (page services.IdentityPage, err error) {
		tables, err := r.tables()
		if err != nil {
			return page, err
		}
		if err := r.reached(ctx, tables, ask.MinPosition); err != nil {
			return page, err
		}
		turns, next, err := tables.IdentityTurns(ctx, ask.IdentityID, ask.Since, ask.Until, ask.Limit, ask.Cursor)
		page.NextCursor = next
		// The view's row is no services.Turn: that one also says what a write did, which no view knows.
		for _, t := range turns {
			page.Turns = append(page.Turns, services.Turn{
				Turn: t.Turn, SessionID: t.SessionID, IdentityID: t.IdentityID,
				Position: events.Position{Partition: t.Partition, Seq: t.Started},
			})
		}
		return page, err
	})
}

// CaughtUp waits until the tables hold all that the log holds. Its errors are projections.ErrUnavailable,
// services.ErrBehind and those of the log.
func (r *Reader) CaughtUp(ctx context.Context) error {
	tables, err := r.tables()
	if err != nil {
		return err
	}
	return r.reached(ctx, tables, nil)
}

// reached waits until the log holds the positions least, and then until the tables hold all that the log holds.
func (r *Reader) reached(ctx context.Context, tables Tables, least []events.Position) error {
	waiting, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	heads, err := r.heads(ctx, waiting, least)
	if err != nil {
		return err
	}
	for _, head := range heads {
		if err := r.follow(waiting, tables, head); err != nil {
			return err
		}
	}
	return nil
}

// heads returns the ends of the log's partitions, once the log has reached all positions in least. The wait ends with
// the context waiting.
func (r *Reader) heads(ctx, waiting context.Context, least []events.Position) (heads []events.Position, err error) {
	if slices.ContainsFunc(least, func(p events.Position) bool { return p.Partition >= r.log.Partitions() }) {
		return nil, fmt.Errorf("%w: the log has %d partitions", services.ErrPositionNotReached, r.log.Partitions())
	}
	for k := range r.log.Partitions() {
		head, err := r.log.Head(ctx, k)
		for ; err == nil && !holds(head, least); head, err = r.log.Head(ctx, k) {
			if !pause.For(waiting, pollPause) {
				return nil, fmt.Errorf("%w: partition %d ends at %s", services.ErrPositionNotReached, k, head)
			}
		}
		if err != nil {
			return nil, err
		}
		heads = append(heads, head)
	}
	return heads, nil
}

// holds reports whether head has reached all positions of its partition.
func holds(head events.Position, least []events.Position) bool {
	return !slices.ContainsFunc(least, func(p events.Position) bool {
		return p.Partition == head.Partition && p.Seq > head.Seq
	})
}

// follow waits until the tables hold all events up to a head of the log.
func (r *Reader) follow(ctx context.Context, tables Tables, head events.Position) error {
	for {
		at, err := tables.Applied(ctx, head.Partition)
		switch {
		case ctx.Err() != nil: // the pause was cut short
		case err != nil:
			return fmt.Errorf("%w: %w", projections.ErrUnavailable, err)
		case at.Seq >= head.Seq:
			return nil
		case at.Seq > 0:
			// The missing events may have been erased, and then they never reach the tables.
			if still, err := r.log.Still(ctx, head.Partition, at.Seq, head.Seq); err == nil && still {
				return nil
			}
		}
		if !pause.For(ctx, pollPause) {
			return fmt.Errorf("%w: the audit tables are at %s of %s", services.ErrBehind, at, head)
		}
	}
}
