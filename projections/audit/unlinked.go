package audit

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// unlinkedSessions holds the unlinked sessions of one partition with their texts, each from its first event on. A link
// finds the session's earlier turns there. Sessions that do not fit are read from the log, which may take 300 ms each
// (docs/design.md#writing). A claim begins empty, since another runner may have applied events meanwhile. A nil
// unlinkedSessions holds nothing.
type unlinkedSessions struct {
	rules    session.Rules
	sessions *simplelru.LRU[string, *anonymous]
	bytes    int
}

type anonymous struct {
	state *session.State
	bytes int
}

const (
	// earlyBytes bounds what is kept of one partition.
	earlyBytes = 16 << 20
	// leastEarly is about how many bytes an event takes besides its texts.
	leastEarly = 512
)

func newUnlinked(rules session.Rules) *unlinkedSessions {
	x := &unlinkedSessions{rules: rules}
	// NewLRU fails only for a size of 0 or less.
	x.sessions, _ = simplelru.NewLRU(earlyBytes/leastEarly, func(_ string, s *anonymous) { x.bytes -= s.bytes })
	return x
}

// fold folds an event of an unlinked session. An event that comes a second time changes nothing.
func (x *unlinkedSessions) fold(e *projections.Judged) {
	if x == nil || e.SessionID == "" {
		return
	}
	x.expire(e.Time)
	if e.First {
		x.sessions.Remove(e.SessionID)
		x.sessions.Add(e.SessionID, &anonymous{state: session.New(e.SessionID, x.rules)})
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

// expire drops the sessions whose last turn is behind a boundary or could be: a link no longer brings in their turns,
// or reads them from the log, and retention may take them out of the log.
func (x *unlinkedSessions) expire(now time.Time) {
	for {
		_, s, ok := x.sessions.GetOldest()
		if !ok || !s.state.Silent(now) {
			return
		}
		x.sessions.RemoveOldest()
	}
}

// take removes a session from x and returns it; nil if it is not there.
func (x *unlinkedSessions) take(sessionID string) *session.State {
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
	if x := texts.Extension; x != nil {
		n += 2*len(x.Messages) + len(x.QuestionNeutral) + len(x.AnswerNeutral) + len(texts.Metadata)
	}
	return n
}
