package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// plan is what a batch does to the tables, each row once with its last state.
type plan struct {
	ledger   []ledgerRow
	security []securityRow
	// turns in the order in which they came up; byTurn finds them.
	turns  []*turnRow
	byTurn map[uuid.UUID]*turnRow
	// heads of linked and of erased sessions.
	heads map[string]*headRow
	links []*projections.Judged
	// redacted turns and erased sessions take ledger rows with them; by what they came.
	redacted map[named]*projections.Judged
	erased   map[string]*projections.Judged
}

// headRow is a session as the last event that changed it left it. It is written whole where more than its activity may have
// changed, or it has no row yet.
type headRow struct {
	last  *projections.Judged
	whole bool
}

// named is a turn as a fact of its own session names it.
type named struct {
	session string
	turn    uuid.UUID
}

// way of a turn into the tables.
type way uint8

const (
	// copied: the turn is new.
	copied way = iota
	// merged: its rows are written whole, whether or not they stand already.
	merged
	// answered: the question stands, if the turn belongs to the audit, and gets its answer.
	answered
	// answeredAgain: the answer may stand already, too.
	answeredAgain
	// untouched: nothing but the turn that replaces it is new.
	untouched
)

// whole tells whether both halves of the turn, as far as there are two, are in the batch.
func (w way) whole() bool { return w == copied || w == merged }

type turnRow struct {
	way     way
	session string
	owner   string
	turn    conversation.Turn
	// needs is a turn that must stand in the table for this one to belong there.
	needs uuid.UUID
	drop  bool
}

// plan folds a batch into what it does. Reading for a link happens here, before a transaction is open.
func (a *Audit) plan(ctx context.Context, b projections.Batch) (*plan, error) {
	p := &plan{
		ledger: make([]ledgerRow, 0, len(b.Events)),
		byTurn: make(map[uuid.UUID]*turnRow, len(b.Events)),
		heads:  make(map[string]*headRow, len(b.Events)/4),
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

// apply takes one event in.
func (a *Audit) apply(ctx context.Context, p *plan, e *projections.Judged) error {
	linked := e.Head.Identity != ""
	if e.Change.Kind.Applied() && (linked || e.Change.Kind == conversation.Erased) && e.SessionID != "" {
		p.head(e)
	}
	switch e.Change.Kind {
	case conversation.Started:
		if linked {
			p.put(e, e.Change.Turn, copied)
		}
	case conversation.Answered:
		if linked {
			p.answer(e)
		}
	case conversation.Corrected:
		if linked {
			p.correct(e)
		}
	case conversation.Linked:
		p.links = append(p.links, e)
		return a.backfill(ctx, p, e)
	case conversation.TurnGone:
		p.redact(e, linked)
		if linked && e.Change.NewBoundary {
			// The link came behind a silence that was none: the redaction knows better.
			return a.backfill(ctx, p, e)
		}
	case conversation.Erased:
		p.erase(e)
	case conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Reset, conversation.Refused, conversation.Noted:
	}
	return nil
}

// head notes what a session is after the event.
func (p *plan) head(e *projections.Judged) {
	h := p.heads[e.SessionID]
	if h == nil {
		h = new(headRow)
		p.heads[e.SessionID] = h
	}
	h.last = e
	switch e.Change.Kind {
	case conversation.Started, conversation.Answered, conversation.Corrected, conversation.Refused:
		h.whole = h.whole || e.Change.NewBoundary
	default:
		h.whole = true
	}
}

// backfill brings in the session's turns, after its boundary, as they stand at the event. Those that the batch has brought
// in are there already.
func (a *Audit) backfill(ctx context.Context, p *plan, e *projections.Judged) error {
	if e.First {
		return nil
	}
	if a.cfg.Backfill == nil {
		return errors.New("the session's earlier turns are needed, and nothing is configured to read them (Config.Backfill)")
	}
	state, err := a.cfg.Backfill(ctx, e.SessionID, e.Position.Seq)
	if err != nil {
		return fmt.Errorf("read the session's earlier turns: %w", err)
	}
	boundary := max(state.Boundary, e.Head.Boundary)
	for _, t := range state.Turns {
		if t.Place > boundary {
			p.bringIn(e, t)
		}
	}
	return nil
}

func (p *plan) bringIn(e *projections.Judged, t *conversation.Turn) {
	r := p.byTurn[t.ID]
	switch {
	case r == nil && e.Change.Kind == conversation.Linked:
		p.put(e, t, copied)
	case r == nil:
		p.put(e, t, merged)
	case !r.way.whole() || r.needs != uuid.Nil:
		r.way, r.needs, r.turn = merged, uuid.Nil, *t
	}
}

// put notes a whole row.
func (p *plan) put(e *projections.Judged, t *conversation.Turn, how way) *turnRow {
	r := &turnRow{way: how, session: e.SessionID, owner: e.Head.Identity, turn: *t}
	p.turns = append(p.turns, r)
	p.byTurn[t.ID] = r
	return r
}

// answer completes a turn of the batch, or notes the answer to an earlier one. A turn from before the link belongs to the
// audit only if the link has brought it in; the table knows.
func (p *plan) answer(e *projections.Judged) {
	t := e.Change.Turn
	r := p.byTurn[t.ID]
	if r == nil {
		r = p.put(e, t, answered)
		if t.Place < e.Head.LinkedAt {
			r.needs = t.ID
		}
		return
	}
	question := r.turn.Question
	r.turn = *t
	r.turn.Question = question
}

// correct notes the new version, and that it replaces the old one. Where the link left the old one out, the new one stays out
// too.
func (p *plan) correct(e *projections.Judged) {
	t, old := e.Change.Turn, e.Change.Turns[0]
	r := p.byTurn[old.ID]
	if r == nil {
		r = p.put(e, old, untouched)
	}
	r.turn.Status, r.turn.ReplacedBy = old.Status, old.ReplacedBy
	next := p.put(e, t, copied)
	switch {
	case r.way.whole():
		next.needs = r.needs
	case old.Place < e.Head.LinkedAt:
		next.needs = old.ID
	}
}

// redact notes the tombstones. They come from the redaction, so that they don't depend on what else the log still holds.
func (p *plan) redact(e *projections.Judged, linked bool) {
	if p.redacted == nil {
		p.redacted = map[named]*projections.Judged{}
	}
	for _, t := range e.Change.Turns {
		p.redacted[named{e.SessionID, t.ID}] = e
		if !linked {
			continue
		}
		r := p.byTurn[t.ID]
		if r == nil {
			p.put(e, t, merged)
			continue
		}
		r.turn = *t
		if !r.way.whole() || r.needs != uuid.Nil {
			r.way, r.needs = merged, uuid.Nil
		}
	}
}

func (p *plan) erase(e *projections.Judged) {
	if p.erased == nil {
		p.erased = map[string]*projections.Judged{}
	}
	p.erased[e.SessionID] = e
}

// settle takes out what a later event of the batch made void.
func (p *plan) settle() {
	if p.erased == nil && p.redacted == nil {
		return
	}
	for _, r := range p.turns {
		r.drop = p.erased[r.session] != nil
	}
	kept := p.ledger[:0]
	for _, l := range p.ledger {
		if !p.takenOut(l) {
			kept = append(kept, l)
		}
	}
	p.ledger = kept
}

// takenOut tells whether a redaction or an erasure that stands behind an event takes it out of the log.
func (p *plan) takenOut(l ledgerRow) bool {
	session, seq := l.e.SessionID, l.e.Position.Seq
	for _, turn := range []uuid.UUID{l.turn, l.replaces} {
		if by := p.redacted[named{session, turn}]; by != nil && seq < by.Position.Seq {
			return true
		}
	}
	by := p.erased[session]
	return by != nil && seq < by.Position.Seq && seq != by.Head.LinkedAt
}

// of gives the turns that go one of some ways.
func (p *plan) of(ways ...way) []*turnRow {
	var out []*turnRow
	for _, r := range p.turns {
		if !r.drop && slices.Contains(ways, r.way) {
			out = append(out, r)
		}
	}
	return out
}

// answers gives those of them that have one.
func (p *plan) answers(ways ...way) []*turnRow {
	return slices.DeleteFunc(p.of(ways...), func(r *turnRow) bool { return r.turn.FinalizedAt.IsZero() })
}

// turnsNamed are the turns that a fact names.
func turnsNamed(f events.Fact) (turn, replaces uuid.UUID) {
	switch f := f.(type) {
	case *events.TurnStarted:
		return f.TurnID, uuid.Nil
	case *events.TurnFinalized:
		return f.TurnID, uuid.Nil
	case *events.TurnRedacted:
		return f.TurnID, uuid.Nil
	case *events.TurnCorrected:
		return f.TurnID, f.ReplacesTurnID
	default:
		return uuid.Nil, uuid.Nil
	}
}
