package projections_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// endless is a log whose sessions have one turn each, read as often as asked.
type endless struct {
	asked  int
	purged bool
}

func (l *endless) event(seq uint64) events.Recorded {
	session := fmt.Sprintf("session-%d", (seq-1)/2)
	id := events.TurnID(session, "r")
	var f events.Fact = &events.TurnStarted{TurnID: id, SessionID: session, RequestID: "r",
		Question: events.Question{QuestionNeutral: "q"}}
	if seq%2 == 0 {
		f = &events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: "a"}}
	}
	return events.Recorded{ID: f.EventID(), Type: f.Type(), SessionID: session, Fact: f,
		Position: events.Position{Seq: seq}, Time: day.Add(time.Duration(seq))}
}

func (l *endless) Session(_ context.Context, sessionID string, _, upTo uint64) iter.Seq2[events.Recorded, error] {
	l.asked++
	if l.purged {
		return func(func(events.Recorded, error) bool) {}
	}
	return func(yield func(events.Recorded, error) bool) {
		var n uint64
		if _, err := fmt.Sscanf(sessionID, "session-%d", &n); err != nil {
			yield(events.Recorded{}, err)
			return
		}
		for seq := 2*n + 1; seq <= min(2*n+2, upTo); seq++ {
			if !yield(l.event(seq), nil) {
				return
			}
		}
	}
}

func (*endless) Partitions() int { return 1 }

// spread is a log of many partitions.
type spread struct{ *endless }

func (spread) Partitions() int { return 256 }

// What judges begin with is not paid for by each partition.
func TestJudgesOfManyPartitionsBeginSmall(t *testing.T) {
	before, judges := heap(), make([]*projections.Judge, 256)
	for k := range judges {
		judges[k] = projections.NewJudge(spread{&endless{}}, conversation.Rules{}, 0)
	}
	require.Less(t, heap()-before, 50<<20)
	runtime.KeepAlive(judges)
}

// TestJudgeDoesNotGrowWithTheLog holds a judge to its bound, and to asking the log for
// hardly any session that is new, however many there were.
func TestJudgeDoesNotGrowWithTheLog(t *testing.T) {
	const sessions = 100_000 // more than it holds
	log := &endless{}
	j := projections.NewJudge(log, conversation.Rules{}, 0)
	var held [3]int
	for i := range held {
		for n := range uint64(sessions) {
			for _, seq := range []uint64{2*(uint64(i)*sessions+n) + 1, 2*(uint64(i)*sessions+n) + 2} {
				judged := must.Get(j.Judge(t.Context(), log.event(seq)))(t)
				if !judged.Change.Kind.ChangesView() {
					t.Fatalf("event %d: %v", seq, judged.Change)
				}
			}
		}
		held[i] = heap()
		t.Logf("after %d sessions: %d MB, %d asked for", (i+1)*sessions, held[i]>>20, log.asked)
	}
	require.Less(t, held[2], held[0]*11/10)
	require.Less(t, log.asked, sessions/100)
	// One that it holds no more is read again.
	before := log.asked
	judged := must.Get(j.Judge(t.Context(), events.Recorded{
		ID: "x", SessionID: "session-1", Position: events.Position{Seq: 10 * sessions}, Time: day,
		Digest: events.Digest([]byte("other")),
		Fact: &events.TurnFinalized{TurnID: events.TurnID("session-1", "r"), SessionID: "session-1",
			Answer: events.Answer{AnswerNeutral: "other"}},
	}))(t)
	require.Equal(t, conversation.Anomaly, judged.Change.Kind)
	require.Equal(t, before+1, log.asked)
	runtime.KeepAlive(j)
}

// TestASessionThatRetentionPurgedBeginsAnew holds a judge that still has the session's
// state, a guest's or a linked one, to the verdict of one that reads the log later.
func TestASessionThatRetentionPurgedBeginsAnew(t *testing.T) {
	const ttl = 24 * time.Hour
	for _, linked := range []bool{false, true} {
		log := &endless{}
		j := projections.NewJudge(log, conversation.Rules{SessionTTL: ttl}, 0)
		seq := uint64(0)
		judge := func(at time.Time, fact events.Fact) projections.Judged {
			e := log.event(1)
			seq++
			e.Position.Seq, e.Time = seq, at
			if fact != nil {
				e.Fact = fact
			}
			return must.Get(j.Judge(t.Context(), e))(t)
		}
		require.Equal(t, conversation.Started, judge(day, nil).Change.Kind)
		if linked {
			id := log.event(1).SessionID
			require.Equal(t, conversation.Linked, judge(day, &events.SessionLinked{SessionID: id,
				IdentityID: "ada"}).Change.Kind)
		}
		require.Equal(t, conversation.Duplicate, judge(day.Add(ttl), nil).Change.Kind)
		require.Zero(t, log.asked, "a session that may not be purged is not read again")

		log.purged = true
		again := judge(day.Add(2*ttl+1), nil)
		require.Equal(t, conversation.Started, again.Change.Kind, "linked: %t", linked)
		require.True(t, again.First)
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
