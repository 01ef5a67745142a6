package respond

import (
	"context"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// lookedBack is how many of a session's newest turns are looked through for a call before all of them are.
const lookedBack = 20

// PlaceOutputs notes with each output among messages the turn of the session that makes its call, unless a message
// before it makes the call. It reads all turns only if the call is in none of the newest.
func PlaceOutputs(
	ctx context.Context, read func(context.Context, services.Ask) (services.Reading, error), ids items.Minter,
	sessionID string, messages []conversation.AddedMessage,
) error {
	for _, ask := range []services.Ask{{Shown: lookedBack, Pending: true}, {AllTurns: true}} {
		if len(withoutCall(messages)) == 0 {
			return nil
		}
		ask.SessionID, ask.Own = sessionID, true
		reading, err := read(ctx, ask)
		if err != nil {
			return err
		}
		placeIn(reading, ids, messages)
		if reading.State.Whole {
			break
		}
	}
	return nil
}

// withoutCall returns the indices of the outputs whose call is not known: neither a turn that makes it, nor a message
// before it.
func withoutCall(messages []conversation.AddedMessage) (out []int) {
	made := map[string]bool{}
	for n, m := range messages {
		if m.Makes != "" {
			made[m.Makes] = true
		}
		if m.Takes != "" && m.Answers == uuid.Nil && !made[m.Takes] {
			out = append(out, n)
		}
	}
	return out
}

// placeIn is PlaceOutputs with the turns of a reading. Of two turns that make a call of the same id, the newer counts.
func placeIn(r services.Reading, ids items.Minter, messages []conversation.AddedMessage) {
	for _, n := range withoutCall(messages) {
		makes := func(i message.Item) bool { return i.IsCall() && i.CallID() == messages[n].Takes }
		for _, t := range slices.Backward(r.State.Turns) {
			if slices.ContainsFunc(ids.OfTurn(r.State.SessionID, r.Position.Partition, t), makes) {
				messages[n].Answers = t.ID
				break
			}
		}
	}
}

// SessionOf returns the session that a response stands in.
func (s *Service) SessionOf(ctx context.Context, id string, who Caller) (string, error) {
	st, _, err := s.find(ctx, id, who, ErrResponseNotFound)
	return st.session, err
}

// Place is where a response stands: in a turn of a session, brought by the events of two sequences. Answer is 0 if the
// response has no answer.
type Place struct {
	SessionID     string
	TurnID        uuid.UUID
	Partition     int
	Input, Answer uint64
	// Before are the sequences of the events that the same call appended before Input, by their turns.
	Before map[uuid.UUID][]uint64
}

// Where returns where a response stands.
func (s *Service) Where(ctx context.Context, id string, who Caller) (Place, error) {
	st, found, err := s.find(ctx, id, who, ErrResponseNotFound)
	if err != nil {
		return Place{}, err
	}
	at, _ := st.answerAt(found.Turn)
	place := Place{
		SessionID: st.session, TurnID: st.TurnID, Partition: st.Position.Partition, Input: st.Position.Seq,
		Answer: at.Seq,
	}
	if st.first == st.Position.Seq { // nothing is before it
		return place, nil
	}
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: st.session, AllTurns: true, Own: true})
	if err != nil {
		return Place{}, err
	}
	if st.first == 0 {
		st.first, err = s.firstOf(ctx, st, found.Turn, reading.State)
	}
	place.Before = st.before(reading.State)
	return place, err
}

// before returns the sequences of the events that the call of the step appended before it, by their turns. They stand
// right before it, and nothing between them.
func (st step) before(of *conversation.State) map[uuid.UUID][]uint64 {
	out := map[uuid.UUID][]uint64{}
	for _, t := range of.Turns {
		for seq := range brought(t) {
			if st.first <= seq && seq < st.Position.Seq {
				out[t.ID] = append(out[t.ID], seq)
			}
		}
	}
	return out
}

// firstOf returns the sequence of the first event of a step's call where the step's event does not tell it. What began
// or extended a turn has the call's request in its id. A final does not, but its event says that more of its append
// follows.
func (s *Service) firstOf(
	ctx context.Context, st step, own *conversation.Turn, of *conversation.State,
) (uint64, error) {
	request, first := st.request(own), st.Position.Seq
	for _, t := range of.Turns {
		for seq, id := range brought(t) {
			if request != "" && conversation.RequestOf(id) == request {
				first = min(first, seq)
			}
		}
	}
	at := st.Position
	at.Seq = first - 1
	e, _, err := s.cfg.Log.At(ctx, at)
	if before, after, _ := e.Append(); after > 0 {
		first = e.Position.Seq - before
	}
	return first, err
}

// request returns the request of the step's call; "" if its id does not tell.
func (st step) request(own *conversation.Turn) string {
	for seq, id := range brought(own) {
		if seq == st.Position.Seq {
			return conversation.RequestOf(id)
		}
	}
	return ""
}

// brought yields the sequences of the events that brought a turn's texts, each with the id under which it was asked
// for; a final has none.
func brought(t *conversation.Turn) iter.Seq2[uint64, string] {
	return func(yield func(uint64, string) bool) {
		if !yield(t.Started, t.RequestID) || t.Final != 0 && !yield(t.Final, "") {
			return
		}
		for _, x := range t.Extensions() {
			if x.Half != "" && !yield(x.Seq, x.ID) {
				return
			}
		}
	}
}
