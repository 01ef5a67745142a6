package events

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// SessionSummarized says: this text stands for the session's turns from its first visible one through the last of
// TurnIDs, which are all of them, oldest first. The text repeats what the turns say: the event is erased from the log
// when one of them is redacted, corrected or hidden. Prunes is how often those of them had been pruned that a branch
// shares: a branch can't see that in its own events.
type SessionSummarized struct {
	SessionID         string      `json:"session_id"`
	RequestID         string      `json:"request_id"`
	TurnIDs           []uuid.UUID `json:"turn_ids"`
	SummaryNeutral    string      `json:"summary_neutral"`
	SummaryTranslated string      `json:"summary_translated,omitempty"`
	Model             string      `json:"model,omitempty"`
	Prunes            int         `json:"prunes,omitempty"`
}

// Type implements Fact.
func (f *SessionSummarized) Type() string { return TypeSessionSummarized }

// EventID implements Fact.
func (f *SessionSummarized) EventID() string {
	return pairEventID(f.SessionID, f.RequestID, "summarized")
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

// CoversAny reports whether a fact covers a turn for which is returns true.
func CoversAny(f Fact, is func(uuid.UUID) bool) bool { return slices.ContainsFunc(Covers(f), is) }
