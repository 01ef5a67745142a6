package answer

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// ask is a request for a response. missed: the same one came before, and its caller hung up.
type ask struct {
	services.StepAsk

	missed bool
}

// again reports whether the request says that it may have come before.
func (a ask) again() bool { return a.Call.Key != "" || a.Call.Repeats }

// named reports whether an item came with an id.
func (a ask) named() bool {
	return slices.ContainsFunc(a.IDs, func(id string) bool { return id != "" })
}

func (a ask) hasOutput() bool { return slices.ContainsFunc(a.Input, message.Item.IsOutput) }

// hasTurns reports whether an input goes on behind an answer, as a history does.
func (a ask) hasTurns() bool {
	answer := slices.IndexFunc(a.Input, func(i message.Item) bool { return !i.Asks() })
	return answer > 0 && slices.ContainsFunc(a.Input[answer:], message.Item.Asks) && a.hasOutput()
}

// mayHave reports whether an input may have items that its history has: by their ids, or beside an output.
func (a ask) mayHave() bool { return a.named() || len(a.Input) > 1 && a.hasOutput() }

// place is where an input belongs: in a session that there is not yet, at the end of a conversation, or behind a turn.
type place struct {
	session string
	kind    events.SessionKind
	// begins: there is no such session yet.
	begins bool
	// turn is the last one of the history, as it was at end, where the input does not go to the end of a conversation.
	// If the turn is inherited, end is the session's.
	turn      uuid.UUID
	inherited bool
	end       events.Position
	// after is the session's last event of the history, or of what only took from it since; 0 if all is inherited. The
	// history may be tombstones, and have no turn.
	after uint64
	// rest is the input without what the history has of it.
	rest []message.Item
	// fork is the branch that such an input makes, for a history that came again.
	fork *decide.ForkSession
	// reading is what was read of the session, if it was.
	reading services.Reading
}

// place finds where a request belongs. What is not recorded shares no history with a session that it does not name.
func (s *Service) place(ctx context.Context, a ask) (place, error) {
	switch {
	case a.Conversation != "":
		return s.inConversation(ctx, a)
	case a.Previous != "":
		return s.behind(ctx, a)
	case !a.Store:
		return place{session: "none." + strings.ReplaceAll(uuid.NewString(), "-", ""), rest: a.Input}, nil
	}
	at, err := s.shared(ctx, a)
	if errors.Is(err, errNoHistory) {
		return place{session: ownSession(a.Call), begins: true, rest: at.rest}, nil
	}
	return at, err
}

// inConversation finds what is new of an input for the conversation that the request names.
func (s *Service) inConversation(ctx context.Context, a ask) (at place, err error) {
	if decide.ValidIDs("conversation", a.Conversation) != nil {
		return at, services.ErrNoConversation
	}
	if err := may(ctx, a.Caller, a.Conversation, services.ErrNoConversation); err != nil {
		return at, err
	}
	at = place{session: a.Conversation, rest: a.Input}
	if a.Store && !a.mayHave() && !a.hasOutput() {
		return at, nil // it does not matter what stands in the conversation
	}
	at.reading, err = s.recent(ctx, a, at.session)
	switch {
	case err != nil:
		return at, err
	case !a.Store && (!at.reading.State.Found() || at.reading.State.Erased != 0):
		return at, services.ErrNoConversation
	}
	at.rest = s.fresh(a, at.reading, math.MaxUint64)
	return at, nil
}

// behind finds what is new of an input for the history that ends with the response that the request names. What stands
// before the last reset of its session is history for nobody any more.
func (s *Service) behind(ctx context.Context, a ask) (at place, err error) {
	st, found, err := s.find(ctx, a.Previous, a.Caller, services.ErrNoPrevious)
	if err == nil && found.Turn.Place <= found.Head.Boundary {
		err = services.ErrNoPrevious
	}
	if err != nil {
		return at, err
	}
	end, answered := st.answerAt(found.Turn)
	if !answered {
		return at, services.ErrUnanswered
	}
	at = place{
		session: st.session, kind: found.Head.Description().Kind, turn: st.TurnID, end: end, rest: a.Input,
		after: max(end.Seq, prunedAfter(found.Turn, end)),
	}
	late := a.Store && st.Position.Seq > found.Turn.Final // newer turns may stand before the step
	if !a.mayHave() && !late {
		return at, nil
	}
	if at.reading, err = s.recent(ctx, a, at.session); err == nil && at.reading.State.Turn(st.TurnID) == nil {
		at.reading, err = s.cfg.Sessions.Read(ctx, services.Ask{SessionID: at.session, AllTurns: true, Pending: true})
	}
	if err != nil {
		return at, err
	}
	if a.mayHave() {
		at.rest = s.fresh(a, at.reading, end.Seq)
	}
	if late {
		at.turn = lastBefore(at.reading.State, st, found.Turn)
	}
	return at, nil
}

// lastBefore returns the last turn of the history of a step of the turn t. It is newer than t if the step answers a
// call that t made before.
func lastBefore(state *session.State, st step, t *session.Turn) uuid.UUID {
	last := t
	for _, newer := range state.Turns {
		if newer.Status == session.Finalized && state.Shown(newer) &&
			newer.Place > last.Place && newer.Place < st.Position.Seq {
			last = newer
		}
	}
	return last.ID
}

// with reads a session from a turn on, or all of it if that is not among the turns that are asked for.
func (s *Service) with(ctx context.Context, ask services.Ask, turn uuid.UUID) (services.Reading, error) {
	reading, err := s.cfg.Sessions.Read(ctx, ask)
	if err == nil && reading.State.Turn(turn) == nil {
		ask.AllTurns = true
		return s.cfg.Sessions.Read(ctx, ask)
	}
	return reading, err
}

// prunedAfter returns the sequence of the prune that came after a turn's answer, which ends at a position, if nothing
// else did; else 0.
func prunedAfter(t *session.Turn, end events.Position) uint64 {
	if t.Final > end.Seq || slices.ContainsFunc(t.Extensions(), func(x session.Extended) bool {
		return x.Half != "" && x.Seq > end.Seq
	}) {
		return 0
	}
	return t.PrunedAt()
}
