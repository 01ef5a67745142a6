package answer

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// lookedBack is how many of a session's newest turns are looked through for a call before all of them are.
const lookedBack = 20

// AddItems implements services.ItemAdder.
func (s *Service) AddItems(
	ctx context.Context, sessionID, requestID string, given []message.Item, call services.Call,
) (services.AddedMessages, error) {
	add := decide.AddMessages{
		SessionID: sessionID, RequestID: requestID, Messages: items.AllAdded(given), Now: s.cfg.Now(),
	}
	if err := s.placeOutputs(ctx, services.Reading{}, add); err != nil {
		return services.AddedMessages{}, err
	}
	return s.cfg.Messages.AddMessages(ctx, add, call)
}

// placeOutputs notes with each output among messages the turn of the session that makes its call, unless a message
// before it makes the call. It reads all turns only if the call is in none of the newest, and not in what was read.
func (s *Service) placeOutputs(ctx context.Context, read services.Reading, add decide.AddMessages) (err error) {
	if read.State != nil {
		s.placeIn(read, add.Messages)
	}
	for _, ask := range []services.Ask{{Shown: lookedBack, Pending: true}, {AllTurns: true}} {
		if len(withoutCall(add.Messages)) == 0 {
			return nil
		}
		ask.SessionID, ask.Own = add.SessionID, true
		if read, err = s.cfg.Sessions.Read(ctx, ask); err != nil {
			return err
		}
		if s.placeIn(read, add.Messages); read.State.Whole {
			break
		}
	}
	return nil
}

// withoutCall returns the indices of the outputs whose call is not known: neither a turn that makes it, nor a message
// before it.
func withoutCall(messages []decide.AddedMessage) (out []int) {
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

// placeIn is placeOutputs with the turns of a reading. Of two turns that make a call of the same id, the newer counts.
func (s *Service) placeIn(r services.Reading, messages []decide.AddedMessage) {
	for _, n := range withoutCall(messages) {
		makes := func(i message.Item) bool { return i.IsCall() && i.CallID() == messages[n].Takes }
		for _, t := range slices.Backward(r.State.Turns) {
			if slices.ContainsFunc(s.cfg.IDs.OfTurn(r.State.SessionID, r.Position.Partition, t), makes) {
				messages[n].Answers = t.ID
				break
			}
		}
	}
}
