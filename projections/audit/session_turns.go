package audit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// SessionTurns returns the newest turns of a linked session, with its head: enough turns that at least limit finalized
// turns are among them that prompts may show, or all turns after the boundary if there are fewer. With limit < 0 it
// returns all turns that the tables hold. Tombstones and replaced turns in between are among them. The state is the
// caller's own and holds all events up to the position, and none after; it is Whole only if no turn was left out. It is
// nil for a session without a row; an erased session has a row, but no turns. The cost grows with limit, not with the
// session's length.
//
// Errors: ErrUnavailable.
func (a *Audit) SessionTurns(
	ctx context.Context, sessionID string, limit int,
) (state *session.State, at events.Position, err error) {
	err = pgx.BeginTxFunc(ctx, a.pool, a.reading(), func(tx pgx.Tx) error {
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

// forkColumns are the columns of a session that say where a branch comes from, as session.Fork has them.
const forkColumns = `coalesce(forked_position, 0), coalesce(fork_request, ''), coalesce(forked_from, ''),
			coalesce(fork_root, ''), coalesce(fork_segments, '')`

// head returns the session without turns, and the position that the tables have reached in its partition.
func (a *Audit) head(
	ctx context.Context, tx pgx.Tx, sessionID string,
) (_ *session.State, at events.Position, err error) {
	var h session.Head
	var created, active, gone stamp
	var is session.Description
	var fork session.Fork
	var metadata map[string]string
	err = tx.QueryRow(ctx, a.sql(`select coalesce(linked_position, 0), boundary, coalesce(reset_position, 0),
			coalesce(erased_position, 0), created_at, created_ns, last_active_at, last_active_ns, erased_at, erased_ns,
			finalized, pending, shown_finalized, shown_pending, identity_id, partition, c.seq,
			coalesce(described_position, 0), coalesce(title, ''), metadata, coalesce(kind, ''),
			coalesce(current_branch, ''),
			`+forkColumns+`
		from {s}.sessions s join {s}.projection_checkpoints c using (partition)
		where s.session_id = $1 and c.projection = $2
			and (s.identity_id is not null or s.erased_position is not null)`), sessionID, Name).Scan(
		&h.LinkedAt, &h.Boundary, &h.ResetAt, &h.Erased,
		&created.at, &created.ns, &active.at, &active.ns, &gone.at, &gone.ns,
		&h.Finalized, &h.Pending, &h.ShownFinalized, &h.ShownPending, (*zeronull.Text)(&h.Identity),
		&at.Partition, &at.Seq, &is.DescribedAt, &is.Title, &metadata, &is.Kind, &is.CurrentBranch,
		&fork.ForkedAt, &fork.RequestID, &fork.From, &fork.Root, &fork.Lineage)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, events.Position{}, nil
	}
	h.CreatedAt, h.LastActive, h.ErasedAt = created.time(), active.time(), gone.time()
	is.Metadata = session.MetadataText(rows.FromTexts(metadata))
	h.HeldDescription = session.DescribedBy(is).ForkedBy(fork)
	state := session.New(sessionID, a.cfg.Rules)
	state.Adopt(h)
	state.Applied = at.Seq
	return state, at, err
}

// fill reads the turns of the state.
func (a *Audit) fill(ctx context.Context, tx pgx.Tx, state *session.State, limit int) error {
	from := uint64(0)
	if limit >= 0 {
		from = state.Boundary + 1
		err := tx.QueryRow(ctx, a.sql(`select q.place from {s}.questions q join {s}.answers a using (turn_id)
			where q.session_id = $1 and q.place > $2 and q.deleted_at is null and q.replaced_by_turn_id is null
			order by q.place desc, q.record_version desc offset $3 limit 1`),
			state.SessionID, state.Boundary, max(limit-1, 0)).Scan(&from)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	found, _ := tx.Query(ctx, a.sql(`select `+turnColumns+`, null::timestamptz from {s}.turns
		where session_id = $1 and place >= $2 order by place, record_version`), state.SessionID, from)
	turns, err := pgx.CollectRows(found, scanTurn)
	live := 0
	for i := range turns {
		t := &turns[i].Turn
		state.Turns = append(state.Turns, t)
		if t.Status == session.Pending || t.Status == session.Finalized {
			live++
		}
	}
	// Without a boundary no link has left turns out, and the counts show what the limit has left out.
	state.Whole = state.Boundary == 0 && from <= 1 && live == state.Finalized+state.Pending
	return err
}

// Guarded is the tables for readers. While Readable returns an error, every use fails with ErrUnavailable; the tables
// catch up from the log later. A nil *Guarded stands for a process without PostgreSQL.
type Guarded struct {
	Tables   *Audit
	Readable func() error
}

var errNone = errors.Join(ErrUnavailable, errors.New("no PostgreSQL is configured: set TURNLEDGER_POSTGRES_URL"))

// Get returns the tables.
func (g *Guarded) Get() (*Audit, error) {
	if g == nil {
		return nil, errNone
	}
	if err := g.Readable(); err != nil {
		return nil, errors.Join(ErrUnavailable, err)
	}
	return g.Tables, nil
}

// SessionTurns calls the tables' SessionTurns.
func (g *Guarded) SessionTurns(
	ctx context.Context, sessionID string, limit int,
) (*session.State, events.Position, error) {
	tables, err := g.Get()
	if err != nil {
		return nil, events.Position{}, err
	}
	return tables.SessionTurns(ctx, sessionID, limit)
}

// ForgetEvents calls the tables' ForgetEvents. Without tables it only purges.
func (g *Guarded) ForgetEvents(
	ctx context.Context, partition int, seqs []uint64, purge func(context.Context) error,
) error {
	if g == nil {
		return purge(ctx)
	}
	tables, err := g.Get()
	if err != nil {
		return err
	}
	return tables.ForgetEvents(ctx, partition, seqs, purge)
}

// ForgetEvent calls the tables' ForgetEvent, if there are tables.
func (g *Guarded) ForgetEvent(ctx context.Context, at events.Position) error {
	if g == nil {
		return nil
	}
	tables, err := g.Get()
	if err != nil {
		return err
	}
	return tables.ForgetEvent(ctx, at)
}
