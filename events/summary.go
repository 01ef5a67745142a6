package events

import (
	"cmp"

	"github.com/google/uuid"
)

// SessionSummarized says: this text stands for the session's turns from its first visible one through the last of
// TurnIDs, which are all of them, oldest first. The text repeats what the turns say: the event is erased from the log
// when one of them is redacted, corrected or hidden. Then an event with Void comes in its place, so that a retry of the
// request, however late, does not bring the text back. Prunes is how often those turns had been pruned that a branch
// shares: a branch can't see that in its own events.
type SessionSummarized struct {
	SessionID         string      `json:"session_id"`
	RequestID         string      `json:"request_id"`
	TurnIDs           []uuid.UUID `json:"turn_ids,omitempty"`
	SummaryNeutral    string      `json:"summary_neutral,omitempty"`
	SummaryTranslated string      `json:"summary_translated,omitempty"`
	Model             string      `json:"model,omitempty"`
	Prunes            int         `json:"prunes,omitempty"`
	// Void: the summary that the request made was void and leaves the log. Such an event has no turns and no text.
	Void bool `json:"void,omitempty"`
}

// Type implements Fact.
func (f *SessionSummarized) Type() string { return TypeSessionSummarized }

// EventID implements Fact.
func (f *SessionSummarized) EventID() string {
	verb := "summarized"
	if f.Void {
		verb = "voided"
	}
	return pairEventID(f.SessionID, f.RequestID, verb)
}

// Subject implements Fact.
func (f *SessionSummarized) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionSummarized) names() Names          { return Names{} }
func (f *SessionSummarized) texts() Texts          { return Texts{} }
func (f *SessionSummarized) withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionSummarized) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), badID(f.RequestID), problemIf(f.malformed(), ProblemSummary))
}

func (f *SessionSummarized) malformed() bool {
	if f.Void {
		return len(f.TurnIDs) > 0 || f.SummaryNeutral+f.SummaryTranslated+f.Model != ""
	}
	seen := make(map[uuid.UUID]bool, len(f.TurnIDs))
	for _, id := range f.TurnIDs {
		seen[id] = true
	}
	return f.Prunes < 0 || f.SummaryNeutral == "" || len(f.TurnIDs) == 0 || len(seen) < len(f.TurnIDs) || seen[uuid.Nil]
}

// SummaryID returns the id of the summary that a request makes of a session: UUIDv5 over session id, 0x00, "summary",
// 0x00, request id.
func SummaryID(sessionID, requestID string) uuid.UUID {
	return pairID(sessionID+"\x00summary", requestID)
}

// Covers returns the turns whose texts a fact repeats beside those that it names (NamesOf). When one of them is
// redacted, the event is erased too.
func Covers(f Fact) []uuid.UUID {
	if s, ok := f.(*SessionSummarized); ok {
		return s.TurnIDs
	}
	return nil
}
