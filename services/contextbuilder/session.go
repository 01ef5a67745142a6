package contextbuilder

import (
	"context"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// Session returns a session with all its pending turns; of a long session, all others may be left out. The session
// is as it is now, or, with known above 0, as it is at that sequence or later (services.Ask).
func (r *Reader) Session(ctx context.Context, sessionID string, known uint64) (*conversation.State, error) {
	ask := services.Ask{SessionID: sessionID, Shown: DefaultMessages, Known: known}
	reading, err := r.Read(ctx, ask)
	if err != nil || reading.State.Whole {
		return reading.State, err
	}
	held := 0
	for _, t := range reading.State.Turns {
		if t.Status == conversation.Pending {
			held++
		}
	}
	if held < reading.State.Pending {
		ask.Whole = true
		reading, err = r.Read(ctx, ask)
	}
	return reading.State, err
}
