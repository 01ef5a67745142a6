package read

import (
	"cmp"
	"context"
	"fmt"
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

// ListsLog is the log that the tables follow.
type ListsLog interface {
	Ends
	Gaps
	projections.Erasures
}

// ListsConfig of Lists.
type ListsConfig struct {
	// Tables is called at each listing, since the tables may be unavailable.
	Tables func() (Tables, error)
	// Sessions reads anonymous sessions, of which lists show the last turn if they were active within TTL. If it is
	// nil, such sessions are listed without a turn.
	Sessions services.SessionReader
	TTL      time.Duration
	// Patience bounds how long a listing waits for the tables; 2 s by default.
	Patience time.Duration
}

// Lists lists sessions and turns of all sessions, and counts and finds turns by their words. It reads them from the
// audit tables, which follow the log. A listing waits until the tables hold all that was acknowledged before the
// request, and never shows less: what they hold is asked in the transaction that reads them. Safe for concurrent use.
type Lists struct {
	log ListsLog
	cfg ListsConfig
}

var (
	_ services.IdentityReader = (*Lists)(nil)
	_ services.SessionLister  = (*Lists)(nil)
	_ services.Searcher       = (*Lists)(nil)
	_ services.TurnCounter    = (*Lists)(nil)
	_ services.TurnFinder     = (*Lists)(nil)
)

// NewLists makes lists; it does no I/O.
func NewLists(log ListsLog, cfg ListsConfig) *Lists {
	cfg.Patience = cmp.Or(cfg.Patience, 2*time.Second)
	return &Lists{log, cfg}
}

// IdentityTurns implements services.IdentityReader.
func (l *Lists) IdentityTurns(ctx context.Context, ask services.IdentityAsk) (services.IdentityPage, error) {
	return exactly(ctx, l, ask.IdentityID, ask.MinPosition, func(tables Tables) (
		page services.IdentityPage, at []events.Position, err error,
	) {
		turns, at, next, err := tables.IdentityTurns(ctx, ask.IdentityID, ask.Since, ask.Until, ask.Limit, ask.Cursor)
		page.NextCursor = next
		// The view's row is no services.Turn: that one also says what a write did, which no view knows.
		for _, t := range turns {
			page.Turns = append(page.Turns, services.Turn{
				Turn: t.Turn, SessionID: t.SessionID, IdentityID: t.IdentityID,
				Position: events.Position{Partition: t.Partition, Seq: t.Started},
			})
		}
		return page, at, err
	})
}

// Search implements services.Searcher.
func (l *Lists) Search(ctx context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	return exactly(ctx, l, ask.IdentityID, ask.MinPosition, func(tables Tables) (
		services.SearchPage, []events.Position, error,
	) {
		hits, at, next, err := tables.Search(ctx, ask.SearchFilter, ask.Limit, ask.Cursor)
		return services.SearchPage{Mode: services.SearchWords, Hits: hits, Positions: at, NextCursor: next}, at, err
	})
}

// Recall returns turns of an identity as audit.Audit.Recall does, from tables that hold all that the log holds. Its
// errors are projections.ErrUnavailable, services.ErrBehind and those of the log.
func (l *Lists) Recall(ctx context.Context, identityID, query string, limit int) ([]audit.Recalled, error) {
	return exactly(ctx, l, "", nil, func(tables Tables) ([]audit.Recalled, []events.Position, error) {
		return tables.Recall(ctx, identityID, query, limit)
	})
}

// exactly reads from tables that hold all that the log holds, once the log holds the positions least. It returns
// nothing of an identity that was erased by then.
func exactly[T any](
	ctx context.Context, l *Lists, identityID string, least []events.Position,
	read func(Tables) (T, []events.Position, error),
) (T, error) {
	erasures := projections.ErasureCheck{Log: l.log}
	return projections.Unerased(ctx, erasures, identityID, func() (out T, err error) {
		tables, err := l.cfg.Tables()
		if err != nil {
			return out, err
		}
		waiting, cancel := context.WithTimeout(ctx, l.cfg.Patience)
		defer cancel()
		heads, err := l.heads(ctx, waiting, least)
		if err != nil {
			return out, err
		}
		return from(ctx, waiting, l, tables, heads, func() (T, []events.Position, error) { return read(tables) })
	})
}

// heads returns the ends of the log's partitions, once the log has reached all positions in least. The wait ends with
// the context waiting.
func (l *Lists) heads(ctx, waiting context.Context, least []events.Position) (heads []events.Position, err error) {
	if err := Reached(ctx, waiting, l.log, least); err != nil {
		return nil, err
	}
	for k := range l.log.Partitions() {
		head, err := l.log.Head(ctx, k)
		if err != nil {
			return nil, err
		}
		heads = append(heads, head)
	}
	return heads, nil
}

// from waits until the tables hold all events up to some positions, and reads. read returns the positions of the tables
// in its own transaction, and counts only if they have reached what was waited for: another server may have answered
// the wait, since PostgreSQL fails over to a standby that may lag. Then from waits again.
func from[T any](
	ctx, waiting context.Context, l *Lists, tables Tables, bar []events.Position,
	read func() (T, []events.Position, error),
) (out T, err error) {
	for {
		for _, least := range bar {
			if err := l.follow(waiting, tables, least); err != nil {
				return out, err
			}
		}
		out, at, err := read()
		if err != nil {
			return out, err
		}
		behind := Behind(ctx, l.log, at, bar)
		if behind == nil {
			return out, nil
		}
		if !pause.For(waiting, PollPause) {
			return out, fmt.Errorf("%w: the audit tables were read at %v, before %s", services.ErrBehind, at, behind)
		}
	}
}

// follow waits until the tables hold all events up to a head of the log. Tables that have not begun hold none.
func (l *Lists) follow(ctx context.Context, tables Tables, head events.Position) error {
	for {
		at, err := tables.Applied(ctx, head.Partition)
		switch {
		case ctx.Err() != nil: // the pause was cut short
		case err != nil:
			return fmt.Errorf("%w: %w", projections.ErrUnavailable, err)
		case head.Seq == 0, at.Seq > 0 && Behind(ctx, l.log, []events.Position{at}, []events.Position{head}) == nil:
			return nil
		}
		if !pause.For(ctx, PollPause) {
			return fmt.Errorf("%w: the audit tables are at %s of %s", services.ErrBehind, at, head)
		}
	}
}
