package decide

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Summarize asks to record a summary of the turns from the session's first visible one through ThroughTurnID.
type Summarize struct {
	ThroughTurnID uuid.UUID
	// Read, if set, are the turns that the summary was made from: where the session has others up to ThroughTurnID by
	// now, the summary is refused.
	Read []uuid.UUID
	// Summary is the fact to record, but for its turns.
	Summary events.SessionSummarized
	// Now is when the call came: of a session that has expired by then, prompts show no turn.
	Now time.Time
}

// NormalSummarize checks a summary by the rules that need no state.
func NormalSummarize(c Summarize) (Summarize, error) {
	if err := ValidIDs("session_id", c.Summary.SessionID, "request_id", c.Summary.RequestID); err != nil {
		return c, err
	}
	if c.Summary.SummaryNeutral == "" {
		return c, &Invalid{"summary_neutral", "is required"}
	}
	return c, nil
}

// On decides a summary, which NormalSummarize has checked. A branch must hold the turns that it shares
// (Inherit). A request whose summary is void makes no other: its text may repeat a turn that was redacted since.
func (c Summarize) On(s *session.State) Decision {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}
	}
	id := events.SummaryID(c.Summary.SessionID, c.Summary.RequestID)
	earlier := s.Summary(id)
	if earlier != nil && s.Stands(earlier) {
		return Decision{RestsOn: earlier.At}
	}
	through := s.Turn(c.ThroughTurnID)
	if through == nil {
		return Decision{Err: ErrTurnNotFound}
	}
	if code := session.Unanswered(through); code != "" {
		return Decision{Err: refusals[code]}
	}
	if !s.Shown(through) || s.Expired(c.Now) {
		return Decision{Err: &Invalid{"through_turn_id", "is a turn that prompts no longer show"}}
	}
	f := c.Summary
	f.TurnIDs = nil
	for _, t := range s.Turns {
		if !s.Shown(t) || t.Place > through.Place {
			continue
		}
		if t.Status == session.Pending {
			return Decision{Err: ErrTurnPending}
		}
		f.TurnIDs = append(f.TurnIDs, t.ID)
	}
	if earlier != nil || s.Voided(id) {
		return Decision{Err: whyVoid(s, through)}
	}
	if c.Read != nil && !slices.Equal(c.Read, f.TurnIDs) {
		return Decision{Err: ErrTurnReplaced}
	}
	f.Prunes = s.InheritedPrunes(through.Place)
	return Decision{Facts: []events.Fact{&f}, Expect: true}
}

// whyVoid returns the refusal of a request whose summary is void although the turn that it is to end with stands.
func whyVoid(s *session.State, through *session.Turn) *Refusal {
	for _, t := range s.Turns {
		if t.Place > s.Boundary && t.Place <= through.Place && t.Status == session.Redacted {
			return errVoidByRedaction
		}
	}
	return errVoid
}
