package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// plan is what a batch does to the tables, each row once with its last state.
type plan struct {
	from, to projections.Checkpoint
	ledger   []ledgerRow
	security []ledgerRow
	// turns are in the order in which they came up; byTurn finds them by id.
	turns  []*turnRow
	byTurn map[uuid.UUID]*turnRow
	// heads of linked and of erased sessions.
	heads map[string]*headRow
	links []*projections.Judged
	// redacted turns and erased sessions take ledger rows with them; each with the event that did so.
	redacted map[named]*projections.Judged
	erased   map[string]*projections.Judged
	// kept has sessions that nobody is linked to yet.
	kept *early
	// again: rows of these events may stand already.
	again bool
}

// plan folds a batch into what it does. Reading for a link happens here, before a transaction is open.
func (a *Audit) plan(ctx context.Context, b projections.Batch, kept *early) (*plan, error) {
	p := &plan{
		from: b.From, to: b.To,
		kept:   kept,
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
	if !linked || e.Change.Kind == conversation.Linked {
		p.kept.fold(e)
	}
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
			// The link took a gap for a silence, and left turns out; the redaction shows that there was none.
			return a.backfill(ctx, p, e)
		}
	case conversation.Erased:
		if p.erased == nil {
			p.erased = map[string]*projections.Judged{}
		}
		p.erased[e.SessionID] = e
	case conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Reset, conversation.Refused,
		conversation.Noted:
	}
	return nil
}

// backfill brings in the session's turns, after its boundary, as they stand at the event. Turns that the batch has
// brought in are there already.
func (a *Audit) backfill(ctx context.Context, p *plan, e *projections.Judged) error {
	state := p.kept.take(e.SessionID)
	if e.First {
		return nil
	}
	if state == nil {
		var err error
		if state, err = a.read(ctx, e.SessionID, e.Position.Seq); err != nil {
			return fmt.Errorf("read the session's earlier turns: %w", err)
		}
	}
	boundary := max(state.Boundary, e.Head.Boundary)
	for _, t := range state.Turns {
		if t.Place > boundary {
			p.bringIn(e, t)
		}
	}
	return nil
}

// read folds a session, with texts, up to and with a sequence of its partition.
func (a *Audit) read(ctx context.Context, sessionID string, upTo uint64) (*conversation.State, error) {
	if a.cfg.Log == nil {
		return nil, errors.New("nothing is configured to read the log with (Config.Log)")
	}
	return conversation.Folded(sessionID, a.cfg.Rules, a.cfg.Log.Session(ctx, sessionID, 0, upTo))
}
