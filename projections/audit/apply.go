package audit

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
)

// Apply implements projections.Projection.
func (a *Audit) Apply(ctx context.Context, b projections.Batch) error {
	kept := a.early.in(b.From.Partition)
	for i := range b.Parked {
		// Whether the letter is retried before a link comes is not known here: a link reads that session from the log.
		kept.forget(b.Parked[i].SessionID)
	}
	p, err := a.plan(ctx, b, kept)
	if err != nil {
		return err
	}
	err = a.inTx(ctx, b, func(tx pgx.Tx) error { return a.write(ctx, tx, b, p) })
	if collides(err) {
		a.cfg.Logger.Warn("the audit tables hold rows of these events already; they are written over", "position", b.From.Position())
		err = a.inTx(ctx, b, func(tx pgx.Tx) error { return a.overwrite(ctx, tx, b, p) })
	}
	return failure("apply to the audit", err)
}

// overwrite is for rows that stand already: a turn of which the log lost the past to retention, and that begins anew; or a
// checkpoint that was set back by hand.
func (a *Audit) overwrite(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan) error {
	for _, r := range p.turns {
		switch r.way {
		case copied:
			r.way = merged
		case answered:
			r.way = answeredAgain
		case merged, answeredAgain, untouched: // may be written twice
		}
	}
	p.again = true
	return a.write(ctx, tx, b, p)
}

// step is a part of what a batch does to the tables.
type step func(context.Context, pgx.Tx, projections.Batch, *plan) error

func inTurn(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan, steps ...step) error {
	for _, do := range steps {
		if err := do(ctx, tx, b, p); err != nil {
			return err
		}
	}
	return nil
}

func (a *Audit) write(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan) error {
	if err := inTurn(ctx, tx, b, p, a.forget, a.leaveOut); err != nil {
		return err
	}
	half, rest := []step{a.writeEvents, a.copyAnswers}, []step{a.copyQuestions, a.mergeTurns, a.replaceTurns, a.writeSessions}
	if !a.second.take() {
		return inTurn(ctx, tx, b, p, append(half, rest...)...)
	}
	defer a.second.give()
	return pgx.BeginTxFunc(ctx, a.second.conn, pgx.TxOptions{BeginQuery: a.sql.begin}, func(other pgx.Tx) error {
		var g errgroup.Group // neither breaks the other off: a connection does not outlive that
		g.Go(func() error { return inTurn(ctx, other, b, p, half...) })
		g.Go(func() error { return inTurn(ctx, tx, b, p, rest...) })
		return g.Wait()
	})
}

// second is a connection beside the transaction's, that takes about half of what a batch writes: where nobody reads yet, one
// half may come a moment before the other. Nil for tables that are served.
type second struct {
	busy sync.Mutex
	conn *pgx.Conn
}

// take tells whether the connection is there, and not another partition's just now.
func (s *second) take() bool { return s != nil && s.busy.TryLock() }

func (s *second) give() { s.busy.Unlock() }

// forget takes out what erasures and redactions take out of earlier batches.
func (a *Audit) forget(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan) error {
	if len(p.erased) > 0 {
		var sessions []string
		var links []uint64
		for s, by := range p.erased {
			sessions, links = append(sessions, s), append(links, by.Head.LinkedAt)
		}
		for _, forget := range []string{a.sql.forgetAnswers, a.sql.forgetQuestions} {
			if _, err := tx.Exec(ctx, forget, sessions); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, a.sql.forgetSessions, b.From.Partition, b.From.Seq, sessions, links); err != nil {
			return err
		}
	}
	if len(p.redacted) == 0 {
		return nil
	}
	var sessions []string
	var turns []uuid.UUID
	for n := range p.redacted {
		sessions, turns = append(sessions, n.session), append(turns, n.turn)
	}
	_, err := tx.Exec(ctx, a.sql.forgetRedacted, b.From.Partition, b.From.Seq, sessions, turns)
	return err
}

// leaveOut drops what came to turns that are not in the tables: a link has left them out, or the question was parked.
// An answer alone would be out of reach of a later erasure.
func (a *Audit) leaveOut(ctx context.Context, tx pgx.Tx, _ projections.Batch, p *plan) error {
	var needed []uuid.UUID
	for _, r := range p.turns {
		if r.needs != uuid.Nil {
			needed = append(needed, r.needs)
		}
	}
	stand, err := ids(ctx, tx, a.sql.stand, needed)
	if err != nil {
		return err
	}
	for _, r := range p.turns {
		r.drop = r.drop || r.needs != uuid.Nil && !stand[r.needs]
	}
	return nil
}

// ids gives those of some turns that a query finds.
func ids(ctx context.Context, tx pgx.Tx, sql string, turns []uuid.UUID) (map[uuid.UUID]bool, error) {
	if len(turns) == 0 {
		return nil, nil
	}
	found, err := tx.Query(ctx, sql, turns)
	if err != nil {
		return nil, err
	}
	out := map[uuid.UUID]bool{}
	var id uuid.UUID
	_, err = pgx.ForEachRow(found, []any{&id}, func() error { out[id] = true; return nil })
	return out, err
}

func (a *Audit) writeEvents(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan) error {
	if p.again {
		for _, clear := range []string{a.sql.clearLedger, a.sql.clearSecurity} {
			if _, err := tx.Exec(ctx, clear, b.From.Partition, b.From.Seq, b.To.Seq); err != nil {
				return err
			}
		}
	}
	err := copyRows(ctx, tx, a.sql.copyLedger, len(p.ledger), func(r *rowBuffer, i int) { p.ledger[i].encode(r) })
	if err != nil {
		return err
	}
	return copyRows(ctx, tx, a.sql.copySecurity, len(p.security), func(r *rowBuffer, i int) { p.security[i].encode(r) })
}

func (a *Audit) copyQuestions(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan) error {
	rows := p.of(copied)
	return copyRows(ctx, tx, a.sql.copyQuestions, len(rows), func(r *rowBuffer, i int) { rows[i].encodeQuestion(r, b.From.Partition) })
}

func (a *Audit) copyAnswers(ctx context.Context, tx pgx.Tx, _ projections.Batch, p *plan) error {
	rows := p.answers(copied, answered)
	return copyRows(ctx, tx, a.sql.copyAnswers, len(rows), func(r *rowBuffer, i int) { rows[i].encodeAnswer(r) })
}

func (a *Audit) mergeTurns(ctx context.Context, tx pgx.Tx, b projections.Batch, p *plan) error {
	questions, answers := p.of(merged), p.answers(merged, answeredAgain)
	err := withRows(ctx, tx, a.sql.mergeQuestions, len(questions), func(r *rowBuffer, i int) { questions[i].encodeQuestion(r, b.From.Partition) })
	if err != nil {
		return err
	}
	return withRows(ctx, tx, a.sql.mergeAnswers, len(answers), func(r *rowBuffer, i int) { answers[i].encodeAnswer(r) })
}

// replaceTurns tells turns of earlier batches what replaces them.
func (a *Audit) replaceTurns(ctx context.Context, tx pgx.Tx, _ projections.Batch, p *plan) error {
	var turns, by []uuid.UUID
	for _, r := range p.of(answered, answeredAgain, untouched) {
		if r.turn.ReplacedBy != uuid.Nil {
			turns, by = append(turns, r.turn.ID), append(by, r.turn.ReplacedBy)
		}
	}
	if len(turns) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, a.sql.replace, turns, by)
	return err
}

func (a *Audit) writeSessions(ctx context.Context, tx pgx.Tx, _ projections.Batch, p *plan) error {
	err := withRows(ctx, tx, a.sql.link, len(p.links), func(r *rowBuffer, i int) { encodeLink(r, p.links[i]) })
	if err != nil {
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
	err = withRows(ctx, tx, a.sql.mergeSessions, len(whole), func(r *rowBuffer, i int) { encodeSession(r, whole[i]) })
	if err != nil {
		return err
	}
	return withRows(ctx, tx, a.sql.moveSessions, len(active), func(r *rowBuffer, i int) { encodeActivity(r, active[i]) })
}
