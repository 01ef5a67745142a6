package projections_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
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
	f := turntest.Turn(session, "r", "q", "a")[1-seq%2]
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
		judges[k] = projections.NewJudge(spread{&endless{}}, session.Rules{}, 0)
	}
	require.Less(t, heap()-before, 50<<20)
	runtime.KeepAlive(judges)
}

// TestJudgeDoesNotGrowWithTheLog holds a judge to its bound, and to asking the log for
// hardly any session that is new, however many there were.
func TestJudgeDoesNotGrowWithTheLog(t *testing.T) {
	const sessions = 100_000 // more than it holds
	log := &endless{}
	j := projections.NewJudge(log, session.Rules{}, 0)
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
		Fact:   turntest.Finalized("session-1", "r", "other"),
	}))(t)
	require.Equal(t, session.Anomaly, judged.Change.Kind)
	require.Equal(t, before+1, log.asked)
	runtime.KeepAlive(j)
}

// TestASessionThatRetentionPurgedBeginsAnew holds a judge that still has the session's
// state, a guest's or a linked one, to the verdict of one that reads the log later.
func TestASessionThatRetentionPurgedBeginsAnew(t *testing.T) {
	const ttl = 24 * time.Hour
	for _, linked := range []bool{false, true} {
		log := &endless{}
		j := projections.NewJudge(log, session.Rules{SessionTTL: ttl}, 0)
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
		require.Equal(t, session.Started, judge(day, nil).Change.Kind)
		if linked {
			id := log.event(1).SessionID
			require.Equal(t, session.Linked, judge(day, &events.SessionLinked{SessionID: id,
				IdentityID: "ada"}).Change.Kind)
		}
		require.Equal(t, session.Duplicate, judge(day.Add(ttl), nil).Change.Kind)
		require.Zero(t, log.asked, "a session that may not be purged is not read again")

		log.purged = true
		again := judge(day.Add(2*ttl+1), nil)
		require.Equal(t, session.Started, again.Change.Kind, "linked: %t", linked)
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

// judging judges events of an endless log.
type judging struct {
	*projections.Judge
	t   *testing.T
	log *endless
}

func newJudging(t *testing.T, rules session.Rules, applied uint64) *judging {
	log := &endless{}
	return &judging{projections.NewJudge(log, rules, applied), t, log}
}

// is holds the judge to the verdict on an event, and to how often it has asked the log.
func (j *judging) is(e events.Recorded, want session.Kind, asked int) projections.Judged {
	j.t.Helper()
	judged := must.Get(j.Judge.Judge(j.t.Context(), e))(j.t)
	require.Equal(j.t, want, judged.Change.Kind, "event %d", e.Position.Seq)
	require.Equal(j.t, asked, j.log.asked, "event %d", e.Position.Seq)
	return judged
}

// load loads for some events.
func (j *judging) load(next ...events.Recorded) {
	j.t.Helper()
	var one sync.Mutex
	each := func(_ context.Context, load func() error) error {
		one.Lock()
		defer one.Unlock()
		return load()
	}
	all := func(yield func(*events.Recorded) bool) {
		for i := range next {
			if !yield(&next[i]) {
				return
			}
		}
	}
	require.NoError(j.t, j.Load(j.t.Context(), all, each))
}

// A judge that begins later reads a session up to the event that it judges.
func TestAJudgeThatBeginsLaterReadsWhatCameBefore(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{}, 1)
	j.is(j.log.event(2), session.Answered, 1)
	j.is(j.log.event(3), session.Started, 2)
	j.load(events.Recorded{Position: events.Position{Seq: 4}})
	require.Equal(t, 2, j.log.asked, "an event of no session needs none")
}

// What is loaded are the sessions that the judge has seen and does not hold, each once and up to its first event.
func TestAJudgeLoadsTheSessionsThatItDoesNotHold(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{SessionTTL: 24 * time.Hour}, 0)
	j.is(j.log.event(1), session.Started, 0)
	j.is(j.log.event(3), session.Started, 0)
	j.Shed(math.MaxInt)
	j.is(j.log.event(5), session.Started, 0)

	again := j.log.event(2)
	again.Position.Seq = 20
	next := []events.Recorded{
		j.log.event(2), j.log.event(4), j.log.event(6), j.log.event(7), {Position: events.Position{Seq: 8}}, again,
	}
	j.load(next...)
	require.Equal(t, 2, j.log.asked, "two of four sessions")
	for i, want := range []session.Kind{
		session.Answered, session.Answered, session.Answered, session.Started,
		session.Anomaly, session.Duplicate,
	} {
		j.is(next[i], want, 2)
	}

	// A session that retention may have removed is loaded in place of the one that is held.
	before, late := j.Bytes(), j.log.event(6)
	late.Position.Seq, late.Time = 21, day.Add(48*time.Hour)
	j.load(late)
	require.Equal(t, 3, j.log.asked)
	require.Equal(t, before, j.Bytes())
	j.is(late, session.Duplicate, 3)
	late.Position.Seq, late.Time = 22, day.Add(96*time.Hour)
	j.is(late, session.Duplicate, 4)
	require.Equal(t, before, j.Bytes())
}

// One load has a bound. What is left is read when it is judged.
func TestAJudgeLoadsSoManySessionsAtOnce(t *testing.T) {
	t.Parallel()
	const most = 1000
	j := newJudging(t, session.Rules{}, 1)
	var next []events.Recorded
	for n := range uint64(most + 1) {
		next = append(next, j.log.event(2*n+2))
	}
	j.load(next...)
	require.Equal(t, most, j.log.asked)
	j.is(next[most-1], session.Answered, most)
	j.is(next[most], session.Answered, most+1)
}

// What was judged and not applied is judged again as it was.
func TestAJudgeForgetsWhatWasNotApplied(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{}, 0)
	j.is(j.log.event(3), session.Started, 0)
	kept := j.Bytes()
	first := j.is(j.log.event(1), session.Started, 0)
	j.Forget([]projections.Judged{first})
	require.Equal(t, kept, j.Bytes())
	again := j.is(j.log.event(1), session.Started, 1)
	require.Equal(t, first, again)
	j.is(j.log.event(4), session.Answered, 1)
}

// A judge lets the sessions go that were silent longest, as many as have the bytes that are wanted. Then it holds no
// bytes of them.
func TestAJudgeShedsTheSessionsThatWereSilentLongest(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{}, 0)
	j.is(j.log.event(1), session.Started, 0)
	one := j.Bytes()
	j.is(j.log.event(3), session.Started, 0)
	j.is(j.log.event(5), session.Started, 0)
	require.Equal(t, 3*one, j.Bytes())
	j.is(j.log.event(2), session.Answered, 0)
	all := j.Bytes()
	require.Equal(t, one, j.Shed(one))
	require.Equal(t, all-one, j.Bytes())
	j.is(j.log.event(6), session.Answered, 0)
	j.is(j.log.event(4), session.Answered, 1)
	require.Positive(t, j.Shed(math.MaxInt))
	require.Zero(t, j.Bytes())
	require.Zero(t, j.Shed(1), "there is nothing left")
}

// A session that is larger than all that a judge may hold is held while nothing else is: else it would be read for each
// of its events.
func TestAJudgeHoldsASessionThatIsLargerThanItsBound(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{}, 0)
	large := strings.Repeat("r", 33<<20)
	start := j.log.event(1)
	f := *start.Fact.(*events.TurnStarted)
	f.RequestID, f.TurnID = large, events.TurnID(f.SessionID, large)
	start.Fact = &f
	j.is(start, session.Started, 0)
	again := j.log.event(1)
	again.Position.Seq = 2
	j.is(again, session.Started, 0)
	j.is(j.log.event(3), session.Started, 0)
	require.Less(t, j.Bytes(), 1<<20, "it goes when something else comes")
}

// The first event of a session is the first one that counts.
func TestAnEventWithoutEffectIsNotTheFirstOfItsSession(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{}, 0)
	require.False(t, j.is(j.log.event(2), session.Anomaly, 0).First)
	start := j.log.event(1)
	start.Position.Seq = 3
	require.True(t, j.is(start, session.Started, 0).First)
	start.Position.Seq = 4
	require.False(t, j.is(start, session.Duplicate, 0).First)
}

// An event that is on no session's subject is an anomaly if it can't be read, and says why.
func TestAnEventOfNoSession(t *testing.T) {
	t.Parallel()
	j := newJudging(t, session.Rules{}, 0)
	unread := events.Recorded{Position: events.Position{Seq: 1}, Problem: "no type"}
	require.Equal(t, "no type", j.is(unread, session.Anomaly, 0).Change.Reason)
	read := events.Recorded{Position: events.Position{Seq: 2}, Fact: &events.IdentityErased{IdentityID: "ada"}}
	j.is(read, session.Noted, 0)
	require.Zero(t, j.Bytes())
}
