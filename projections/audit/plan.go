package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// plan is the changes that a batch makes to the tables, each row once in its last state.
type plan struct {
	// tables is what the plan reads them with; nil if the events are all those of their session, so that no turn that
	// they extend can be known from before.
	tables   queries
	from, to projections.Checkpoint
	ledger   []ledgerRow
	security []ledgerRow
	// turns are in the order in which the batch first names them; byTurn finds them by id.
	turns  []*turnRow
	byTurn map[uuid.UUID]*turnRow
	// read has the turns that the plan looked up in the tables, each with what wrote its rows; "" for none.
	read map[uuid.UUID]string
	// heads of sessions, of erased ones too.
	heads map[string]*headRow
	links []*projections.Judged
	// redacted holds redacted turns and erased sessions, whose ledger rows are removed, each with the event that
	// redacted or erased it.
	redacted map[named]*projections.Judged
	erased   map[string]*projections.Judged
	// described sessions lose the ledger's rows of earlier descriptions, each with the event that replaces them.
	described map[string]*projections.Judged
	// unlinked holds sessions that are not linked to an identity yet.
	unlinked *unlinkedSessions
	// mayStand: rows of these events may exist already.
	mayStand bool
}

// plan folds a batch into changes. What a link needs from the log, and an extension from the tables, is read here,
// before a transaction is open.
func (a *Audit) plan(
	ctx context.Context, tables queries, b projections.Batch, kept *unlinkedSessions,
) (*plan, error) {
	p := &plan{
		tables: tables,
		from:   b.From, to: b.To,
		unlinked: kept,
		ledger:   make([]ledgerRow, 0, len(b.Events)),
		byTurn:   make(map[uuid.UUID]*turnRow, len(b.Events)),
		read:     map[uuid.UUID]string{},
		heads:    make(map[string]*headRow, len(b.Events)/4),
	}
	for i := range b.Events {
		e := &b.Events[i]
		p.record(e)
		if err := a.apply(ctx, p, e); err != nil {
			return nil, fmt.Errorf("audit: event %s: %w", e.Position, err)
		}
	}
	p.settle()
	return p, nil
}

// apply adds one event to the plan.
func (a *Audit) apply(ctx context.Context, p *plan, e *projections.Judged) error {
	linked := e.Head.Identity != ""
	if !linked || e.Change.Kind == session.Linked {
		p.unlinked.fold(e)
	}
	known := linked || e.Head.Erased != 0 || !e.Head.CreatedAt.IsZero()
	if e.Change.Kind.ChangesView() && known && e.SessionID != "" {
		p.head(e)
	}
	switch e.Change.Kind.Group() {
	case session.GroupText:
		if linked {
			return a.text(ctx, p, e)
		}
	case session.GroupGone:
		p.gone(e, linked)
	case session.GroupSessionGone:
		if p.erased == nil {
			p.erased = map[string]*projections.Judged{}
		}
		p.erased[e.SessionID] = e
	case session.GroupHead:
		if events.WithdrawalOf(e.Type) == events.WithdrawsDescription {
			if p.described == nil {
				p.described = map[string]*projections.Judged{}
			}
			p.described[e.SessionID] = e
		}
		if e.Change.Kind == session.Linked {
			p.links = append(p.links, e)
			return a.backfill(ctx, p, e)
		}
	case session.GroupNone:
	}
	if linked && e.Change.BackAgain() {
		// The link had taken a gap for a silence, and left turns out. What moved the boundary back shows that there was
		// no silence, or undoes it.
		return a.backfill(ctx, p, e)
	}
	return nil
}

// text adds the texts that an event brought to a turn.
func (a *Audit) text(ctx context.Context, p *plan, e *projections.Judged) error {
	texts := events.TextsOf(e.Fact)
	switch {
	case texts.Extension != nil:
		return a.extend(ctx, p, e)
	case texts.Question == nil:
		p.answer(e)
	case e.Change.Turn.Corrects():
		p.correct(e)
	default:
		p.put(e, e.Change.Turn, copied)
	}
	return nil
}

// gone adds the tombstones of a turn's versions, and what a prune has left of it.
func (p *plan) gone(e *projections.Judged, linked bool) {
	if e.Change.Left() != nil {
		p.prune(e, linked)
	} else {
		p.redact(e, linked)
	}
}

// backfill adds the session's turns after its last silence, as they are at the event. It skips turns that the batch has
// added already.
func (a *Audit) backfill(ctx context.Context, p *plan, e *projections.Judged) error {
	state := p.unlinked.take(e.SessionID)
	if e.First {
		return nil
	}
	if state == nil {
		var err error
		if state, err = a.read(ctx, e.SessionID, e.Position.Seq); err != nil {
			return fmt.Errorf("read the session's earlier turns: %w", err)
		}
	}
	for _, t := range state.Turns {
		if t.Place > e.Change.Silence {
			p.bringIn(e, t)
		}
	}
	return nil
}

var errNoLog = errors.New("nothing is configured to read the log with (Config.Log)")

// read folds a session, with texts, up to a sequence of its partition, inclusive.
func (a *Audit) read(ctx context.Context, sessionID string, upTo uint64) (*session.State, error) {
	if a.cfg.Log == nil {
		return nil, errNoLog
	}
	return session.Folded(sessionID, a.cfg.Rules, a.cfg.Log.Session(ctx, sessionID, 0, upTo))
}
