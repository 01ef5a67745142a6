package audit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// SessionTurns gives the newest turns of a linked session, with its head: so many that at least limit finalized ones that
// prompts may show are among them, or all after the boundary if there are fewer; all that the tables hold if limit < 0.
// Tombstones and replaced turns in between are among them. The state is the caller's own and holds all events up to the
// position, and none after; it is Whole only if no turn was left out. It is nil for a session that has no row; an erased
// session has one, and no turns. The cost grows with limit and not with the session.
//
// Errors: ErrUnavailable.
func (a *Audit) SessionTurns(ctx context.Context, sessionID string, limit int) (*conversation.State, events.Position, error) {
	var state *conversation.State
	var at events.Position
	err := pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{BeginQuery: a.sql.read}, func(tx pgx.Tx) error {
		var err error
		if state, at, err = a.head(ctx, tx, sessionID); err != nil || state == nil {
			return err
		}
		return a.fill(ctx, tx, state, limit)
	})
	if err != nil {
		return nil, events.Position{}, unavailable("read a session's turns", err)
	}
	return state, at, nil
}

// head gives the session without turns, and the position of its partition.
func (a *Audit) head(ctx context.Context, tx pgx.Tx, sessionID string) (*conversation.State, events.Position, error) {
	var h conversation.Head
	var at events.Position
	var linked, reset, erased *uint64
	var created, active, gone *time.Time
	var createdNs, activeNs, goneNs int
	var identity *string
	err := tx.QueryRow(ctx, a.sql.head, sessionID, projection).Scan(&linked, &h.Boundary, &reset, &erased, &created, &active, &gone,
		&h.Finalized, &h.Pending, &h.ShownFinalized, &h.ShownPending, &at.Partition, &createdNs, &activeNs, &goneNs,
		new(string), &identity, &at.Seq)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, events.Position{}, nil
	}
	if err != nil {
		return nil, events.Position{}, err
	}
	h.Identity, h.LinkedAt, h.ResetAt, h.Erased = zeroIfNull(identity), zeroIfNull(linked), zeroIfNull(reset), zeroIfNull(erased)
	h.CreatedAt, h.LastActive, h.ErasedAt = exact(created, createdNs), exact(active, activeNs), exact(gone, goneNs)
	state := conversation.New(sessionID, a.cfg.Rules)
	state.Adopt(h)
	state.Applied = at.Seq
	return state, at, nil
}

// fill gives the state its turns.
func (a *Audit) fill(ctx context.Context, tx pgx.Tx, state *conversation.State, limit int) error {
	from := uint64(0)
	if limit >= 0 {
		// A turn that nothing is asked of is left out, too.
		from = state.Boundary + 1
		err := tx.QueryRow(ctx, a.sql.cut, state.SessionID, state.Boundary, max(limit-1, 0)).Scan(&from)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	turns, err := collectTurns(tx.Query(ctx, a.sql.sessionTurns, state.SessionID, from))
	if err != nil {
		return err
	}
	live := 0
	for i := range turns {
		t := &turns[i].Turn
		state.Turns = append(state.Turns, t)
		if t.Status == conversation.Pending || t.Status == conversation.Finalized {
			live++
		}
	}
	// Without a boundary no link has left anything out, and the counts tell what the limit did.
	state.Whole = state.Boundary == 0 && from <= 1 && live == state.Finalized+state.Pending
	return nil
}
