package decide

import (
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// ForkSession asks for a branch of a session: up to and with TurnID, or up to right before BeforeTurnID, or, where both
// are uuid.Nil, up to the last finalized turn. ChildID may be empty.
type ForkSession struct {
	SessionID, RequestID string
	TurnID, BeforeTurnID uuid.UUID
	// Through, above 0, is the last event that is shared: the branch begins with TurnID, a turn of the session itself,
	// as it was then.
	Through uint64
	ChildID string
	// IdentityID, where set, is who asks: a session of another identity is not forked.
	IdentityID string
}

// NormalFork checks a fork by the rules that need no state, and chooses the id of the branch.
func NormalFork(c ForkSession) (ForkSession, error) {
	if c.ChildID == "" {
		c.ChildID = events.BranchID(c.SessionID, c.RequestID)
	}
	if c.TurnID != uuid.Nil && c.BeforeTurnID != uuid.Nil {
		return c, &Invalid{"before_turn_id", "stands beside turn_id: send one of them"}
	}
	return c, ValidIDs("parent_session_id", c.SessionID, "request_id", c.RequestID, "session_id", c.ChildID)
}

// Mark returns the mark of a fork of the session, which Inherit has composed, or why there is none. own is the
// session's own fork, and at its last position.
func (c ForkSession) Mark(
	s *session.State, own session.Fork, at events.Position, now time.Time,
) (*events.SessionBranched, error) {
	switch {
	case s.Erased != 0:
		return nil, ErrSessionErased
	case !s.Found():
		return nil, ErrSessionNotFound
	case c.IdentityID != "" && s.Identity != "" && s.Identity != c.IdentityID:
		return nil, ErrLinkedElsewhere
	}
	last, err := c.at(s, now)
	if err != nil {
		return nil, err
	}
	f := &events.SessionBranched{
		SessionID: s.SessionID, ChildSessionID: c.ChildID, RequestID: c.RequestID, At: at,
		FromSessionID: s.SessionID, Root: own.Root,
	}
	if f.Root == "" {
		f.Root = s.SessionID
	}
	if last != nil {
		f.Segments = s.Lineage(own.Segments(), last, at.Partition)
		if c.Through > 0 {
			f.Segments[len(f.Segments)-1].Through.Seq = c.Through
		}
		f.FromSessionID = f.Segments[len(f.Segments)-1].SessionID
	}
	if len(f.Segments) > events.MaxSegments {
		return nil, ErrForkTooDeep
	}
	return f, nil
}

// at returns the last turn that a branch shares, or nil if it shares none.
func (c ForkSession) at(s *session.State, now time.Time) (*session.Turn, error) {
	visible := func(t *session.Turn) bool { return s.Shown(t) && !s.Expired(now) }
	before := ^uint64(0)
	if id := c.TurnID; id != uuid.Nil {
		t, err := standing(s, id, visible)
		if err == nil && t.Status == session.Pending {
			err = ErrTurnPending
		}
		return t, err
	}
	if id := c.BeforeTurnID; id != uuid.Nil {
		t, err := standing(s, id, visible)
		if err != nil {
			return nil, err
		}
		before = t.Place
	}
	for _, t := range slices.Backward(s.Turns) {
		if t.Place < before && t.Status == session.Finalized && visible(t) {
			return t, nil
		}
	}
	return nil, nil //nolint:nilnil // a branch may share nothing
}

// standing returns the version of a turn that stands.
func standing(s *session.State, id uuid.UUID, visible func(*session.Turn) bool) (*session.Turn, error) {
	t := s.Turn(id)
	if t == nil {
		return nil, ErrTurnNotFound
	}
	chain := s.Chain(t)
	t = chain[len(chain)-1]
	switch {
	case t.Status == session.Redacted:
		return nil, ErrTurnRedacted
	case !visible(t):
		return nil, ErrTurnNotFound
	default:
		return t, nil
	}
}

// On decides the mark of a fork. mark is the fact that Mark made on a composed state, and refused why it made
// none; neither matters once the log has a mark of the request.
func (c ForkSession) On(s *session.State, mark *events.SessionBranched, refused error) Decision {
	b, marked := s.Branch(c.RequestID)
	switch {
	case s.Erased != 0:
		return Decision{Err: ErrSessionErased}
	case marked:
		return Decision{RestsOn: b.MarkedAt}
	case errors.Is(refused, ErrLinkedElsewhere):
		return refuseLink(s, c.IdentityID, "")
	case refused != nil:
		return Decision{Err: refused}
	default:
		return Decision{Facts: []events.Fact{mark}}
	}
}

// Fork decides the first event of a branch. identity is that of its root.
func Fork(s *session.State, f *events.SessionForked, identity string) Decision {
	is := s.Fork()
	switch {
	case s.Erased != 0:
		return Decision{Err: ErrSessionErased}
	case is.ForkedAt != 0 && is == session.ForkOf(f, is.ForkedAt):
		return Decision{RestsOn: is.ForkedAt}
	case s.Applied != 0:
		return Decision{Err: ErrSessionExists}
	}
	facts := []events.Fact{f}
	if identity != "" {
		facts = append(facts, &events.SessionLinked{SessionID: s.SessionID, IdentityID: identity})
	}
	return Decision{Facts: facts, Expect: true}
}
