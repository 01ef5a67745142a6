package events

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// MaxSegments is how many sessions a branch may share turns with.
const MaxSegments = 32

// Segment is the part of one session that a branch shares, by reference: the turns up to the place of ThroughTurnID
// that were final at Through, the position of the last event that is shared. What extends such a turn later is not
// shared; what redacts or corrects it is. After, where set, is the session's boundary when the branch was made: turns
// up to it are listed, but prompts do not show them.
type Segment struct {
	SessionID     string    `json:"session_id"`
	ThroughTurnID uuid.UUID `json:"through_turn_id"`
	Through       Position  `json:"through"`
	After         *Position `json:"after,omitempty"`
}

func (s Segment) problem() Problem {
	bad := s.Through.Seq == 0 || s.ThroughTurnID == uuid.Nil ||
		s.After != nil && (s.After.Partition != s.Through.Partition || s.After.Seq >= s.Through.Seq)
	return cmp.Or(badID(s.SessionID), problemIf(bad, ProblemSegments))
}

// problemOf checks the segments of a branch: each is of a session of its own, and none is the branch itself.
func problemOf(segments []Segment, branch string) Problem {
	if len(segments) > MaxSegments {
		return ProblemSegments
	}
	of := map[string]bool{branch: true}
	for _, s := range segments {
		if p := s.problem(); p != "" {
			return p
		}
		if of[s.SessionID] {
			return ProblemSegments
		}
		of[s.SessionID] = true
	}
	return ""
}

// SessionForked says: the session is a branch. It begins with the turns that its segments share, oldest first, which
// stay where they are. A segment never is what a branch has inherited, but what a session wrote itself. FromSessionID
// is the session of the last shared turn, or the one that was forked where no turn is shared. Root is the session
// whose identity is that of all its branches.
type SessionForked struct {
	SessionID     string    `json:"session_id"`
	RequestID     string    `json:"request_id"`
	FromSessionID string    `json:"from_session_id"`
	Root          string    `json:"root"`
	Segments      []Segment `json:"segments,omitempty"`
}

// Type implements Fact.
func (f *SessionForked) Type() string { return TypeSessionForked }

// EventID implements Fact.
func (f *SessionForked) EventID() string { return pairEventID(f.SessionID, f.FromSessionID, "forked") }

// Subject implements Fact.
func (f *SessionForked) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionForked) names() Names          { return Names{} }
func (f *SessionForked) texts() Texts          { return Texts{} }
func (f *SessionForked) withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionForked) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), badID(f.RequestID), badID(f.FromSessionID), badID(f.Root),
		problemIf(f.Root == f.SessionID || f.FromSessionID == f.SessionID || f.strays(), ProblemSegments),
		problemOf(f.Segments, f.SessionID))
}

// strays reports whether the segments are not those of a way from the root to the session of the last shared turn.
func (f *SessionForked) strays() bool {
	last := len(f.Segments) - 1
	return last >= 0 && f.Segments[last].SessionID != f.FromSessionID || last > 0 &&
		slices.ContainsFunc(f.Segments[1:], func(s Segment) bool { return s.SessionID == f.Root })
}

// SessionBranched is the mark of a fork on the session that was forked, and decides: the first mark of a request
// stands, and says what the branch is. At is the session's last position when that was decided.
type SessionBranched struct {
	SessionID      string    `json:"session_id"`
	ChildSessionID string    `json:"child_session_id"`
	RequestID      string    `json:"request_id"`
	At             Position  `json:"at"`
	FromSessionID  string    `json:"from_session_id"`
	Root           string    `json:"root"`
	Segments       []Segment `json:"segments,omitempty"`
}

// Type implements Fact.
func (f *SessionBranched) Type() string { return TypeSessionBranched }

// EventID implements Fact.
func (f *SessionBranched) EventID() string { return pairEventID(f.SessionID, f.RequestID, "branched") }

// Subject implements Fact.
func (f *SessionBranched) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionBranched) names() Names          { return Names{} }
func (f *SessionBranched) texts() Texts          { return Texts{} }
func (f *SessionBranched) withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionBranched) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), f.Fork().check(nil), problemIf(f.strays(), ProblemSegments))
}

// strays reports whether the branch can't have been forked from the session: it is the session itself, it shares turns
// of others behind those of the session, or of others where the session is the root, or it shares none and names
// another session than this.
func (f *SessionBranched) strays() bool {
	own := slices.IndexFunc(f.Segments, func(s Segment) bool { return s.SessionID == f.SessionID })
	elsewhere := f.FromSessionID != f.SessionID
	return f.ChildSessionID == f.SessionID || own >= 0 && own < len(f.Segments)-1 ||
		elsewhere && (len(f.Segments) == 0 || f.Root == f.SessionID)
}

// Fork returns the first event of the branch that the mark describes.
func (f *SessionBranched) Fork() *SessionForked {
	return &SessionForked{
		SessionID: f.ChildSessionID, RequestID: f.RequestID, FromSessionID: f.FromSessionID, Root: f.Root,
		Segments: slices.Clone(f.Segments),
	}
}

// BranchID returns the id of a branch whose maker chose none: UUIDv5 over the session, 0x00, "fork", 0x00, the request.
func BranchID(sessionID, requestID string) string {
	return pairID(sessionID, "fork\x00"+requestID).String()
}
