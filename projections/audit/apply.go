package audit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// Apply implements projections.Projection.
func (a *Audit) Apply(ctx context.Context, b projections.Batch) error {
	kept := a.early[b.From.Partition].Load()
	for i := range b.Parked {
		// The letter may be retried before or after a link comes, so a link must read this session from the log.
		kept.take(b.Parked[i].SessionID)
	}
	for {
		p, err := a.plan(ctx, a.pool, b, kept)
		if err == nil {
			err = a.index(ctx, a.pool, p)
		}
		if err != nil {
			return err
		}
		err = a.inTx(ctx, b, func(tx pgx.Tx) error { return a.write(ctx, tx, p) })
		if codeOf(err) == uniqueViolation {
			a.cfg.Logger.Warn("the audit tables hold rows of these events already; they are written over",
				"position", b.From.Position())
			err = a.inTx(ctx, b, func(tx pgx.Tx) error { return a.overwrite(ctx, tx, p) })
		}
		if !errors.Is(err, errRestored) {
			return failure("apply to the audit", err)
		}
	}
}

// errRestored: a dead letter was retried while a batch was planned, and the plan read rows without its event.
var errRestored = errors.New("rows were restored meanwhile")

// unchanged fails with errRestored if rows that the plan read have changed since. The lock on the checkpoint's row
// keeps them as they are until the end of the transaction.
func (a *Audit) unchanged(ctx context.Context, tx pgx.Tx, p *plan) error {
	if len(p.read) == 0 {
		return nil
	}
	now := map[uuid.UUID]string{}
	for id := range p.read {
		now[id] = ""
	}
	found, err := tx.Query(ctx, a.sql(`select turn_id, `+writtenBy+`
		from {s}.questions q left join {s}.answers a using (turn_id) where turn_id = any($1)`),
		slices.Collect(maps.Keys(p.read)))
	if err != nil {
		return err
	}
	var id uuid.UUID
	var by string
	_, err = pgx.ForEachRow(found, []any{&id, &by}, func() error { now[id] = by; return nil })
	if err == nil && !maps.Equal(now, p.read) {
		err = errRestored
	}
	return err
}

// overwrite writes rows that may exist already: those of a turn whose past retention has removed from the log, so that
// it begins anew, or those behind a checkpoint that was set back by hand.
func (a *Audit) overwrite(ctx context.Context, tx pgx.Tx, p *plan) error {
	for _, r := range p.turns {
		switch r.mode {
		case copied:
			r.mode = merged
		case answered:
			r.mode = answeredAgain
		case merged, answeredAgain, untouched: // may be written twice
		}
	}
	p.mayStand = true
	return a.write(ctx, tx, p)
}

// step is a part of what a batch does to the tables.
type step func(context.Context, pgx.Tx, *plan) error

func inTurn(ctx context.Context, tx pgx.Tx, p *plan, steps ...step) error {
	for _, do := range steps {
		if err := do(ctx, tx, p); err != nil {
			return err
		}
	}
	return nil
}

func (a *Audit) write(ctx context.Context, tx pgx.Tx, p *plan) error {
	if err := inTurn(ctx, tx, p, a.unchanged, a.forget, a.leaveOut); err != nil {
		return err
	}
	half, rest := []step{a.copyEvents, a.copyAnswers}, []step{a.writeQuestions, a.replaceTurns, a.writeSessions}
	if !a.second.take() {
		return inTurn(ctx, tx, p, append(half, rest...)...)
	}
	defer a.second.busy.Unlock()
	return pgx.BeginTxFunc(ctx, a.second.conn, a.writing(), func(other pgx.Tx) error {
		var g errgroup.Group // no shared cancellation, since that would break a connection
		g.Go(func() error { return inTurn(ctx, other, p, half...) })
		g.Go(func() error { return inTurn(ctx, tx, p, rest...) })
		return g.Wait()
	})
}

// second is a connection besides the transaction's. It writes about half of a batch while a generation is filled. One
// half may then become visible a moment before the other, which is harmless while nobody reads. It is nil for tables
// that are served.
type second struct {
	busy sync.Mutex
	conn *pgx.Conn
}

// take reports whether the connection exists and no other partition uses it now.
func (s *second) take() bool { return s != nil && s.busy.TryLock() }

// forget removes what erasures and redactions withdraw from earlier batches.
func (a *Audit) forget(ctx context.Context, tx pgx.Tx, p *plan) error {
	do := &pgx.Batch{}
	if len(p.erased) > 0 {
		var sessions []string
		var links []uint64
		for s, by := range p.erased {
			sessions, links = append(sessions, s), append(links, by.Head.LinkedAt)
		}
		do.Queue(a.sql(`delete from {s}.answers a using {s}.questions q
			where q.session_id = any($1) and a.turn_id = q.turn_id`), sessions)
		do.Queue(a.sql(`delete from {s}.questions where session_id = any($1)`), sessions)
		do.Queue(a.sql(`delete from {s}.event_ledger l
			using unnest($3::text[], $4::bigint[]) as gone (session_id, link)
			where l.partition = $1 and l.seq <= $2 and l.session_id = gone.session_id and l.seq <> gone.link
				and (l.type <> $5 or exists (select from {s}.security_events v
					where v.partition = l.partition and v.seq = l.seq))`),
			p.from.Partition, p.from.Seq, sessions, links, events.TypeSessionBranched)
	}
	if len(p.redacted) > 0 {
		var sessions []string
		var turns []uuid.UUID
		for n := range p.redacted {
			sessions, turns = append(sessions, n.session), append(turns, n.turn)
		}
		do.Queue(a.sql(`with gone as materialized (
				select * from unnest($3::text[], $4::uuid[]) as g (session_id, turn_id))
			delete from {s}.event_ledger l where l.partition = $1 and l.seq <= $2 and l.session_id = any($3)
			and ((l.session_id, l.turn_id) in (select * from gone)
				or (l.session_id, l.replaces_turn_id) in (select * from gone))`),
			p.from.Partition, p.from.Seq, sessions, turns)
	}
	if len(p.described) > 0 {
		do.Queue(a.sql(`delete from {s}.event_ledger where partition = $1 and seq <= $2 and session_id = any($3)
			and type = $4`),
			p.from.Partition, p.from.Seq, slices.Collect(maps.Keys(p.described)), events.TypeSessionDescribed)
	}
	if do.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, do).Close()
}

// leaveOut drops answers to turns that are not in the tables, because a link has left the turn out or its question was
// parked. A later erasure would not find an answer without its turn.
func (a *Audit) leaveOut(ctx context.Context, tx pgx.Tx, p *plan) error {
	stand := map[uuid.UUID]bool{}
	for _, r := range p.turns {
		if r.needs != uuid.Nil {
			stand[r.needs] = false
		}
	}
	if len(stand) == 0 {
		return nil
	}
	found, err := tx.Query(ctx, a.sql(`select turn_id from {s}.questions where turn_id = any($1)`),
		slices.Collect(maps.Keys(stand)))
	if err != nil {
		return err
	}
	var id uuid.UUID
	_, err = pgx.ForEachRow(found, []any{&id}, func() error { stand[id] = true; return nil })
	for _, r := range p.turns {
		r.drop = r.drop || r.needs != uuid.Nil && !stand[r.needs]
	}
	return err
}

func (a *Audit) copyEvents(ctx context.Context, tx pgx.Tx, p *plan) error {
	for _, table := range []string{"event_ledger", "security_events"} {
		if !p.mayStand {
			break
		}
		_, err := tx.Exec(ctx, a.sql("delete from {s}."+table+" where partition = $1 and seq > $2 and seq <= $3"),
			p.from.Partition, p.from.Seq, p.to.Seq)
		if err != nil {
			return err
		}
	}
	if err := ledgerTable.Copy(ctx, tx, a.cfg.Schema, p.ledger); err != nil {
		return err
	}
	return securityTable.Copy(ctx, tx, a.cfg.Schema, p.security)
}

// copyAnswers writes the answers that are new; writeQuestions merges the others.
func (a *Audit) copyAnswers(ctx context.Context, tx pgx.Tx, p *plan) error {
	return answerTable.Copy(ctx, tx, a.cfg.Schema, p.answers(copied, answered))
}

func (a *Audit) writeQuestions(ctx context.Context, tx pgx.Tx, p *plan) error {
	if err := questionTable.Copy(ctx, tx, a.cfg.Schema, p.going(copied)); err != nil {
		return err
	}
	if err := questionTable.Merge(ctx, tx, a.cfg.Schema, p.going(merged)); err != nil {
		return err
	}
	return answerTable.Merge(ctx, tx, a.cfg.Schema, p.answers(merged, answeredAgain))
}

// replaceTurns writes into turns of earlier batches which turns replace them.
func (a *Audit) replaceTurns(ctx context.Context, tx pgx.Tx, p *plan) error {
	var turns, by []uuid.UUID
	for _, r := range p.going(answered, answeredAgain, untouched) {
		if r.turn.ReplacedBy != uuid.Nil {
			turns, by = append(turns, r.turn.ID), append(by, r.turn.ReplacedBy)
		}
	}
	if len(turns) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, a.sql(`update {s}.questions q set replaced_by_turn_id = r.by
		from unnest($1::uuid[], $2::uuid[]) as r (turn_id, by) where q.turn_id = r.turn_id`), turns, by)
	return err
}

func (a *Audit) writeSessions(ctx context.Context, tx pgx.Tx, p *plan) error {
	if err := linkTable.Merge(ctx, tx, a.cfg.Schema, p.links); err != nil {
		return err
	}
	var whole, active []*projections.Judged
	for _, h := range p.heads {
		if h.whole {
			whole = append(whole, h.last)
		} else {
			active = append(active, h.last)
		}
	}
	if err := sessionTable.Merge(ctx, tx, a.cfg.Schema, whole); err != nil {
		return err
	}
	return activityTable.Update(ctx, tx, a.cfg.Schema, active)
}
