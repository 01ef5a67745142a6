// Package identities lists sessions, and the turns of an identity across its sessions. It reads them from the audit
// tables, which follow the log. A listing waits until the tables hold all that was acknowledged before the request, and
// never shows less: what they hold is asked in the transaction that reads them.
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

// Tables are the audit tables. Each reading says at which position of each partition it was made.
type Tables interface {
	Applied(ctx context.Context, partition int) (events.Position, error)
	IdentityTurns(
		ctx context.Context, identityID string, since, until time.Time, limit int, cursor string,
	) (turns []audit.Turn, at []events.Position, next string, err error)
	Sessions(
		ctx context.Context, filter projections.SessionFilter, limit int, cursor string,
	) (page []projections.ListedSession, at []events.Position, next string, err error)
	Counts(ctx context.Context, f projections.CountsFilter) ([]projections.Counts, []events.Position, error)
	Anomalies(ctx context.Context, f projections.CountsFilter) ([]projections.Anomalies, []events.Position, error)
	Search(
		ctx context.Context, f projections.SearchFilter, limit int, cursor string,
	) (hits []projections.Hit, at []events.Position, next string, err error)
	TurnsByID(ctx context.Context, ids []uuid.UUID) ([]audit.Turn, []events.Position, error)
	Recall(ctx context.Context, identityID, query string, limit int) ([]audit.Recalled, []events.Position, error)
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
		var turns []audit.Turn
		err = r.exactly(ctx, tables, ask.MinPosition, func() (at []events.Position, err error) {
			turns, at, page.NextCursor, err = tables.IdentityTurns(ctx, ask.IdentityID, ask.Since, ask.Until,
				ask.Limit, ask.Cursor)
			return at, err
		})
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

// Recall returns turns of an identity as audit.Audit.Recall does, from tables that hold all that the log holds. Its
// errors are projections.ErrUnavailable, services.ErrBehind and those of the log.
func (r *Reader) Recall(
	ctx context.Context, identityID, query string, limit int,
) (found []audit.Recalled, err error) {
	tables, err := r.tables()
	if err != nil {
		return nil, err
	}
	err = r.exactly(ctx, tables, nil, func() (at []events.Position, err error) {
		found, at, err = tables.Recall(ctx, identityID, query, limit)
		return at, err
	})
	return found, err
}

// exactly reads from tables that hold all that the log holds, once the log holds the positions least.
func (r *Reader) exactly(
	ctx context.Context, tables Tables, least []events.Position, read func() ([]events.Position, error),
) error {
	waiting, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	heads, err := r.heads(ctx, waiting, least)
	if err != nil {
		return err
	}
	return r.from(ctx, waiting, tables, heads, read)
}

// from waits until the tables hold all events up to some positions, and reads. read returns the positions of the tables
// in its own transaction, and counts only if they have reached what was waited for: another server may have answered
// the wait, since PostgreSQL fails over to a standby that may lag. Then from waits again.
func (r *Reader) from(
	ctx, waiting context.Context, tables Tables, bar []events.Position, read func() ([]events.Position, error),
) error {
	for {
		for _, least := range bar {
			if err := r.follow(waiting, tables, least); err != nil {
				return err
			}
		}
		at, err := read()
		if err != nil {
			return err
		}
		behind := slices.IndexFunc(bar, func(least events.Position) bool { return !r.hold(ctx, at, least) })
		if behind < 0 {
			return nil
		}
		if !pause.For(waiting, pollPause) {
			return fmt.Errorf("%w: the audit tables were read at %v, before %s", services.ErrBehind, at, bar[behind])
		}
	}
}

// hold reports whether tables at some positions hold all events up to a position of the log. Events that were erased
// never reach them.
func (r *Reader) hold(ctx context.Context, at []events.Position, least events.Position) bool {
	var seq uint64
	for _, p := range at {
		if p.Partition == least.Partition {
			seq = p.Seq
		}
	}
	if seq >= least.Seq || seq == 0 {
		return seq >= least.Seq
	}
	still, err := r.log.Still(ctx, least.Partition, seq, least.Seq)
	return err == nil && still
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
		case r.hold(ctx, []events.Position{at}, head):
			return nil
		}
		if !pause.For(ctx, pollPause) {
			return fmt.Errorf("%w: the audit tables are at %s of %s", services.ErrBehind, at, head)
		}
	}
}
