package conversation_test

import (
	"strconv"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// fork decides "fork REQUEST turn=T before=T child=C": the mark of a branch of the session, which is no branch itself.
func (r *runner) fork(s *conversation.State, a args) (conversation.Decision, error) {
	c := conversation.ForkSession{SessionID: r.session, RequestID: a.word(1), ChildID: a.values["child"]}
	if t, ok := a.values["turn"]; ok {
		c.TurnID = r.turn(t)
	}
	if t, ok := a.values["before"]; ok {
		c.BeforeTurnID = r.turn(t)
	}
	c, err := conversation.NormalFork(c)
	if err != nil {
		return conversation.Decision{}, err
	}
	own := s.Fork()
	composed := s.Clone()
	composed.Inherit(own.Segments(), make([]*conversation.State, len(own.Segments())), 0)
	mark, refused := composed.Mark(c, own, events.Position{Seq: s.Applied}, r.clock)
	return s.DecideBranch(c, mark, refused), nil
}

// forkOf reads "forked REQUEST from=S root=S turn=REQUEST through=SEQ".
func (r *runner) forkOf(a args) *events.SessionForked {
	f := &events.SessionForked{
		SessionID: r.session, RequestID: a.word(1), FromSessionID: a.values["from"], Root: a.values["from"],
	}
	if root := a.values["root"]; root != "" {
		f.Root = root
	}
	if t, ok := a.values["turn"]; ok {
		seq, _ := strconv.ParseUint(a.values["through"], 10, 64)
		f.Segments = []events.Segment{
			{SessionID: f.FromSessionID, ThroughTurnID: events.TurnID(f.FromSessionID, t),
				Through: events.Position{Seq: seq}},
		}
	}
	return f
}
