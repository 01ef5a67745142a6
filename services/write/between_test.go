package write_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/write"
)

// between is a log in which another process writes right behind a link or a start, so that whoever wrote it sees
// its own event and all of those at once.
type between struct {
	*jetlog.Log
	behind []events.Fact
	last   events.Position
}

func (l *between) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	ack, err := l.Log.Append(ctx, a)
	for _, f := range l.behind {
		if err != nil {
			break
		}
		var theirs jetlog.Ack
		theirs, err = l.Log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
		l.last = theirs.Position
	}
	l.behind = nil
	return ack, err
}

func (l *between) Reached(ctx context.Context, mark *jetlog.Watermark, at events.Position) error {
	at.Seq = max(at.Seq, l.last.Seq)
	return l.Log.Reached(ctx, mark, at)
}

func erased(session string) events.Fact {
	return &events.SessionErased{SessionID: session, ReceiptID: "0-1-abc"}
}

// TestAnErasureRightBehindAStart: a new turn counted before the session was erased, and its writer is told so. A start
// that came again and only linked the session has no turn of its own to show.
func TestAnErasureRightBehindAStart(t *testing.T) {
	t.Parallel()
	log := &between{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	ctx := t.Context()
	first := must.Get(s.StartTurn(ctx, start("s", "r")))(t)
	again := start("s", "r")
	again.IdentityID = "ada"
	log.behind = []events.Fact{erased("s")}
	must.Fail(s.StartTurn(ctx, again))(t, decide.ErrSessionErased)

	log.behind = []events.Fact{began("other", "x"), began("other", "y"), erased("other")}
	turn := must.Get(s.StartTurn(ctx, start("other", "r")))(t)
	require.Equal(t, session.Pending, turn.Status)
	require.Greater(t, turn.Position.Seq, first.Position.Seq)

	log.behind = []events.Fact{erased("linked")}
	linked := must.Get(s.LinkSession(ctx, "linked", "ada", ""))(t)
	require.Equal(t, "ada", linked.Identity)
}

// TestAnErasureRightBehindABatch: each line of the batch counted, so none is told that its session was erased.
func TestAnErasureRightBehindABatch(t *testing.T) {
	t.Parallel()
	log := &between{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	var lines []decide.Start
	for i := range 50 {
		lines = append(lines, wholeTurn("s", fmt.Sprint("r", i)))
		log.behind = append(log.behind, began("s", fmt.Sprint("theirs", i)))
	}
	lines = append(lines, start("s", "pending"))
	log.behind = append(log.behind, erased("s"))
	for i, o := range s.StartTurns(t.Context(), lines) {
		require.NoError(t, o.Err, i)
		require.Equal(t, lines[i].RequestID, o.Turn.RequestID)
		want := session.Finalized
		if lines[i].Answer == nil {
			want = session.Pending
		}
		require.Equal(t, want, o.Turn.Status, i)
		require.False(t, o.Turn.Duplicate, i)
		require.False(t, o.Turn.Existed, i)
		require.EqualValues(t, i+1, o.Turn.Position.Seq, i)
	}
	for i, o := range s.StartTurns(t.Context(), append(lines, start("s", "later"))) {
		require.ErrorIs(t, o.Err, decide.ErrSessionErased, i)
	}
	weight, _ := s.InMemory()
	require.Less(t, weight, uint64(52*400), "the outcomes go with the writes that wait for them")
}

// TestAnErasureRightBehindAnAnswerOfABatch: the line answered a turn that stood already, and its caller is told so
// although the session is erased now.
func TestAnErasureRightBehindAnAnswerOfABatch(t *testing.T) {
	t.Parallel()
	log := &between{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	must.Get(s.StartTurn(t.Context(), start("s", "pending")))(t)
	log.behind = []events.Fact{erased("s")}
	got := s.StartTurns(t.Context(), []decide.Start{wholeTurn("s", "pending"), wholeTurn("s", "new")})
	for i, existed := range []bool{true, false} {
		require.NoError(t, got[i].Err, i)
		require.Equal(t, session.Finalized, got[i].Turn.Status, i)
		require.Equal(t, existed, got[i].Turn.Existed, i)
		require.False(t, got[i].Turn.Duplicate, i)
	}
}

// TestASessionThatAWriteIsAtStaysInMemory: the cache has no room for any session, and yet each write finds what it
// appended, once it is there.
func TestASessionThatAWriteIsAtStaysInMemory(t *testing.T) {
	t.Parallel()
	log := &between{Log: natstest.Log(t, 1)}
	s := runWith(t, log, write.Config{
		Policy: policy, StateBytes: 1, Rules: session.Rules{SessionTTL: time.Hour},
	})
	for i := range 20 {
		sessionID := fmt.Sprint("s", i)
		log.behind = []events.Fact{erased(sessionID)}
		turn := must.Get(s.StartTurn(t.Context(), start(sessionID, "r")))(t)
		require.Equal(t, session.Pending, turn.Status)

		sessionID = fmt.Sprint("batch", i)
		log.behind = []events.Fact{erased(sessionID)}
		for _, o := range s.StartTurns(t.Context(), turnsOf(2, sessionID)) {
			require.NoError(t, o.Err)
			require.Equal(t, session.Finalized, o.Turn.Status)
		}
	}
	require.Zero(t, s.Pinned())
}

// deaf is a process's log whose tail brings nothing of its sessions.
type deaf struct{ *jetlog.Log }

func (l deaf) Tail(ctx context.Context, partition int, after uint64, opts jetlog.TailOptions) (*jetlog.Tail, error) {
	opts.Subject = (&events.SessionErased{SessionID: "nobody's"}).Subject()
	return l.Log.Tail(ctx, partition, after, opts)
}

// TestACorrectionIsNotRefusedByWhatIsBehind: what one process has acknowledged is known to another before it says no.
func TestACorrectionIsNotRefusedByWhatIsBehind(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	a := run(t, log)
	ctx := t.Context()
	must.Get(a.StartTurn(ctx, start("s", "r")))(t)
	b := runOn(t, deaf{log})
	seen := must.Get(b.StartTurn(ctx, start("s", "r")))(t)
	require.Equal(t, session.Pending, seen.Status)
	must.Get(a.FinalizeTurn(ctx, finalize("s", "r")))(t)
	soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	words := "better"
	for _, id := range []string{"r", "never"} {
		must.Fail(b.CorrectTurn(soon, decide.Correct{SessionID: "s", TurnID: events.TurnID("s", id),
			RequestID: "c", AnswerNeutral: &words}))(t, jetlog.ErrUnavailable)
	}
}

// TestMetadataIsWhatViewsShow: of an event that came past the boundary a writer is shown what every view shows.
func TestMetadataIsWhatViewsShow(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := write.New(write.On(log), write.Config{Policy: policy,
		Rules: session.Rules{SessionTTL: 24 * time.Hour, MetadataKeys: policy.MetadataKeys}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	c := start("s", "r")
	c.Question = events.Question{QuestionTranslated: "bonjour", Metadata: []byte(`{"evil":"x","channel":"web"}`)}
	const shown = `{"channel":"web","question_neutral_is_fallback":true}`
	must.Get(s.StartTurn(ctx, c))(t)
	raw := began("raw", "r").(*events.TurnStarted)
	raw.Question.Metadata = []byte(`{"evil":"x","channel":"web","question_neutral_is_fallback":true}`)
	must.Get(log.Append(ctx, jetlog.Append{Facts: []events.Fact{raw}}))(t)
	for _, sessionID := range []string{"s", "raw"} {
		c.SessionID = sessionID
		again := must.Get(s.StartTurn(ctx, c))(t)
		require.JSONEq(t, shown, string(again.Metadata()), sessionID)
		for range 2 {
			final := must.Get(s.FinalizeTurn(ctx, finalize(sessionID, "r")))(t)
			require.JSONEq(t, shown, string(final.Metadata()), sessionID)
		}
	}
}
