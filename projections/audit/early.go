package audit

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// early keeps the sessions of one partition that nobody is linked to yet, with their texts, each from its first event
// on. A link finds the turns before it there. Sessions that do not fit are read from the log, which may take 300 ms
// each (docs/design.md#writing). A claim begins anew: another runner may have applied events meanwhile. A nil early
// keeps nothing.
type early struct {
	rules    conversation.Rules
	sessions *simplelru.LRU[string, *anonymous]
	bytes    int
}

type anonymous struct {
	state *conversation.State
	bytes int
}

const (
	// earlyBytes bounds what is kept of one partition.
	earlyBytes = 16 << 20
	// leastEarly is about what an event takes beside its texts.
	leastEarly = 512
)

func newEarly(rules conversation.Rules) *early {
	x := &early{rules: rules}
	// The one error is of a size that is not above 0.
	x.sessions, _ = simplelru.NewLRU(earlyBytes/leastEarly, func(_ string, s *anonymous) { x.bytes -= s.bytes })
	return x
}

// fold takes in an event of a session that nobody was linked to before it. An event that comes again changes nothing.
func (x *early) fold(e *projections.Judged) {
	if x == nil || e.SessionID == "" {
		return
	}
	x.expire(e.Time)
	if e.First {
		x.sessions.Remove(e.SessionID)
		x.sessions.Add(e.SessionID, &anonymous{state: conversation.New(e.SessionID, x.rules)})
	}
	s, ok := x.sessions.Get(e.SessionID)
	if !ok || e.Position.Seq <= s.state.Applied {
		return
	}
	s.state.Fold(e.Recorded)
	more := leastEarly + textBytes(e.Fact)
	s.bytes, x.bytes = s.bytes+more, x.bytes+more
	for x.bytes > earlyBytes {
		x.sessions.RemoveOldest()
	}
}

// expire drops the sessions that have met their boundary: a link brings in nothing of
// them, and retention may take them out of the log.
func (x *early) expire(now time.Time) {
	for {
		_, s, ok := x.sessions.GetOldest()
		if !ok || !s.state.Expired(now) {
			return
		}
		x.sessions.RemoveOldest()
	}
}

// take returns a session, and keeps it no longer; nil where it is not kept.
func (x *early) take(sessionID string) *conversation.State {
	if x == nil {
		return nil
	}
	s, ok := x.sessions.Peek(sessionID)
	if !ok {
		return nil
	}
	x.sessions.Remove(sessionID)
	return s.state
}

func textBytes(f events.Fact) (n int) {
	texts := events.TextsOf(f)
	if q := texts.Question; q != nil {
		n += len(q.QuestionNeutral) + len(q.QuestionTranslated) + len(q.QuestionMessages) + len(q.Metadata)
	}
	if a := texts.Answer; a != nil {
		n += len(a.AnswerNeutral) + len(a.AnswerTranslated) + len(a.AnswerMessages) + len(texts.Metadata)
	}
	return n
}
