package respond

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
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
		makes := func(i items.Item) bool { return i.IsCall() && i.CallID() == messages[n].Takes }
		for _, t := range slices.Backward(r.State.Turns) {
			if slices.ContainsFunc(ids.OfTurn(r.State.SessionID, r.Position.Partition, t), makes) {
				messages[n].Answers = t.ID
				break
			}
		}
	}
}
