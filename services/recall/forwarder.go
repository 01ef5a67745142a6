package recall

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/effects"
)

// Document is a finalized turn as a memory keeps it, under the turn's id. Place is the turn's place in its session, and
// shows whether the turn stands before a boundary.
type Document struct {
	TurnID           uuid.UUID
	SessionID        string
	Place            uint64
	Question, Answer string
}

// Store is an external memory. All its calls may be repeated. An error that a retry can't mend wraps
// projections.Permanent.
type Store interface {
	Put(ctx context.Context, scope string, d Document) error
	// Delete returns nil when the memory has confirmed that the turns are not there.
	Delete(ctx context.Context, scope string, turns []uuid.UUID) error
	// Forget deletes all documents of a scope.
	Forget(ctx context.Context, scope string) error
}

// Forwarder stores finalized turns in a memory, and deletes turns that were redacted, corrected or erased. It is the
// Handler of an effect.
type Forwarder struct {
	store Store
	log   projections.SessionReader
	rules session.Rules
}

var _ effects.Handler = (*Forwarder)(nil)

// NewForwarder makes a forwarder; it does no I/O.
func NewForwarder(store Store, log projections.SessionReader, rules session.Rules) *Forwarder {
	rules.Slim = false
	return &Forwarder{store, log, rules}
}

// Name implements effects.Handler.
func (*Forwarder) Name() string { return "memory" }

// atOnce is how many sessions are handled at the same time.
const atOnce = 8

// Handle implements effects.Handler: it handles sessions in parallel, and the events of each session in order.
func (f *Forwarder) Handle(ctx context.Context, batch []projections.Judged) error {
	bySession := map[string][]*projections.Judged{}
	for i := range batch {
		bySession[batch[i].SessionID] = append(bySession[batch[i].SessionID], &batch[i])
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, list := range bySession {
		g.Go(func() error {
			for _, e := range list {
				if err := f.event(ctx, e); err != nil {
					return fmt.Errorf("forward %s to the memory: %w", e.Position, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *Forwarder) event(ctx context.Context, e *projections.Judged) error {
	scope := Scope(e.Head.Identity, e.SessionID)
	switch e.Change.Kind.Group() {
	case session.GroupText:
		return f.text(ctx, scope, e)
	case session.GroupGone:
		if e.Change.Left() != nil {
			return f.pruned(ctx, scope, e)
		}
		return f.store.Delete(ctx, scope, idsOf(e.Change.Turns))
	case session.GroupSessionGone:
		return f.erase(ctx, scope, e)
	case session.GroupHead:
		if e.Change.Kind == session.Linked {
			return f.move(ctx, scope, e)
		}
	case session.GroupNone:
		if gone, ok := e.Fact.(*events.IdentityErased); ok && e.Change.Kind == session.Noted {
			return f.store.Forget(ctx, IdentityScope(gone.IdentityID))
		}
	}
	return nil
}

// text stores a turn that has its answer now, or another one.
func (f *Forwarder) text(ctx context.Context, scope string, e *projections.Judged) error {
	texts := events.TextsOf(e.Fact)
	switch {
	case texts.Extension != nil:
		return f.extended(ctx, scope, e)
	case texts.Answer == nil:
		return nil
	case texts.Question == nil:
		return f.answered(ctx, scope, e)
	}
	if len(e.Change.Turns) > 0 {
		if err := f.store.Delete(ctx, scope, idsOf(e.Change.Turns)); err != nil {
			return err
		}
	}
	return f.put(ctx, scope, e.SessionID, e.Change.Turn)
}

// answered stores a turn. The event carries the answer; the question is read from the log, with what extended it.
func (f *Forwarder) answered(ctx context.Context, scope string, e *projections.Judged) error {
	turn := *e.Change.Turn
	brings := map[uint64]bool{turn.Started: true}
	last := turn.Started
	for _, x := range turn.Extensions() {
		brings[x.Seq], last = true, x.Seq
	}
	for r, err := range f.log.Session(ctx, e.SessionID, turn.Started-1, last) {
		if err != nil {
			return err
		}
		if brings[r.Position.Seq] {
			f.rules.Fill(&turn, r.Fact)
		}
	}
	return f.put(ctx, scope, e.SessionID, &turn)
}

// extended stores a turn again whose answer has another text.
func (f *Forwarder) extended(ctx context.Context, scope string, e *projections.Judged) error {
	if x := events.TextsOf(e.Fact).Extension; x == nil || x.AnswerNeutral == "" {
		return nil
	}
	state, err := f.fold(ctx, e.SessionID, e.Position.Seq)
	if err != nil {
		return err
	}
	turn := state.Turn(e.Change.Turn.ID)
	if turn == nil || turn.Status != session.Finalized {
		return nil // it was erased since
	}
	return f.put(ctx, scope, e.SessionID, turn)
}

// pruned stores what is left of a turn, and deletes it where that has no text.
func (f *Forwarder) pruned(ctx context.Context, scope string, e *projections.Judged) error {
	turn := e.Change.Turn
	gone := append([]*session.Turn{turn}, e.Change.Turns...)
	if turn.Answer != nil && turn.Question.QuestionNeutral+turn.Answer.AnswerNeutral != "" {
		gone = gone[1:]
	}
	if len(gone) > 0 {
		if err := f.store.Delete(ctx, scope, idsOf(gone)); err != nil {
			return err
		}
	}
	return f.put(ctx, scope, e.SessionID, turn)
}

// put stores a turn if it has texts. A turn that was erased meanwhile has none.
func (f *Forwarder) put(ctx context.Context, scope, sessionID string, t *session.Turn) error {
	if t.Question == nil || t.Answer == nil || t.Question.QuestionNeutral == "" && t.Answer.AnswerNeutral == "" {
		return nil
	}
	return f.store.Put(ctx, scope, Document{
		TurnID: t.ID, SessionID: sessionID, Place: t.Place, Question: t.Question.QuestionNeutral,
		Answer: t.Answer.AnswerNeutral,
	})
}

// move moves the documents of an anonymous session to the identity that the session belongs to now.
func (f *Forwarder) move(ctx context.Context, scope string, e *projections.Judged) error {
	state, err := f.fold(ctx, e.SessionID, e.Position.Seq)
	if err != nil {
		return err
	}
	// Empty the old scope first. In v4, when a document is stored under the same id in the new scope, it moves there,
	// and a later deletion would delete it.
	if err := f.forget(ctx, state); err != nil {
		return err
	}
	for _, t := range state.Turns {
		if t.Status == session.Finalized && t.Place > e.Change.Silence {
			if err := f.put(ctx, scope, e.SessionID, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// erase deletes a session's turns: those that the log still names, and those that tombstones name.
func (f *Forwarder) erase(ctx context.Context, scope string, e *projections.Judged) error {
	state, err := f.fold(ctx, e.SessionID, e.Position.Seq-1)
	if err != nil {
		return err
	}
	if e.Head.Identity == "" {
		return f.forget(ctx, state)
	}
	return f.store.Delete(ctx, scope, idsOf(state.Turns))
}

// Purge deletes the documents of an anonymous session up to a sequence, before a retention removes the events from the
// log. Without these events nobody could find the documents, nor see the silence that separates them from the next
// guest.
func (f *Forwarder) Purge(ctx context.Context, session string, upTo uint64) error {
	state, err := f.fold(ctx, session, upTo)
	if err != nil {
		return err
	}
	return f.forget(ctx, state)
}

// forget empties the scope of an anonymous session. It deletes document by document, since the memory confirms only the
// deletion of single documents.
func (f *Forwarder) forget(ctx context.Context, s *session.State) error {
	scope := AnonymousScope(s.SessionID)
	if err := f.store.Forget(ctx, scope); err != nil {
		return err
	}
	return f.store.Delete(ctx, scope, idsOf(s.Turns))
}

func (f *Forwarder) fold(ctx context.Context, sessionID string, upTo uint64) (*session.State, error) {
	return session.Folded(sessionID, f.rules, f.log.Session(ctx, sessionID, 0, upTo))
}

func idsOf(turns []*session.Turn) (ids []uuid.UUID) {
	for _, t := range turns {
		ids = append(ids, t.ID)
	}
	return slices.Clip(ids)
}
