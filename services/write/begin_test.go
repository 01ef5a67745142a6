package write_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// counting counts what is asked of a log, and can keep it from being written.
type counting struct {
	*jetlog.Log
	reads, appends atomic.Int32
	down           atomic.Bool
}

func (l *counting) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	l.reads.Add(1)
	return l.Log.Session(ctx, id, after, upTo)
}

func (l *counting) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	if l.down.Load() {
		return jetlog.Ack{}, jetlog.ErrUnavailable
	}
	l.appends.Add(1)
	return l.Log.Append(ctx, a)
}

// TestANewSessionIsNotRead: the first start of a session asks the log for nothing, whoever
// else begins turns in it at once; where there is one already it is read, once.
func TestANewSessionIsNotRead(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	here, there := &counting{Log: log}, &counting{Log: log}
	a := runOn(t, here)
	ctx := t.Context()
	var all sync.WaitGroup
	for range 3 {
		for _, r := range []string{"r0", "r1", "r2"} {
			all.Go(func() {
				_, err := a.StartTurn(ctx, start("s", r))
				assert.NoError(t, err)
			})
		}
	}
	all.Wait()
	linked := start("linked", "r0")
	linked.IdentityID = "ada"
	turn := must.Get(a.StartTurn(ctx, linked))(t)
	require.Equal(t, "ada", turn.IdentityID)
	require.Zero(t, here.reads.Load())

	b := runOn(t, there)
	again := must.Get(b.StartTurn(ctx, start("s", "r0")))(t)
	require.True(t, again.Duplicate)
	must.Get(b.StartTurn(ctx, start("s", "r3")))(t)
	require.EqualValues(t, 1, there.reads.Load())
	require.Len(t, logtest.Read(t, log, "s"), 4)
}

// TestASessionThatCouldNotBeginIsFree: where the first start is not written nobody else is
// told so, or waits.
func TestASessionThatCouldNotBeginIsFree(t *testing.T) {
	t.Parallel()
	log := &counting{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	ctx := t.Context()
	log.down.Store(true)
	must.Fail(s.StartTurn(ctx, start("s", "r0")))(t, jetlog.ErrUnavailable)
	log.down.Store(false)
	turn := must.Get(s.StartTurn(ctx, start("s", "r0")))(t)
	require.Equal(t, session.Pending, turn.Status)
	require.False(t, turn.Duplicate)
}

// TestABeginEndsWithoutItsCaller: who begins a session and goes away leaves the answer to
// those who wait for the same session.
func TestABeginEndsWithoutItsCaller(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	log := &leaving{Log: natstest.Log(t, 1), leave: leave}
	s := runOn(t, log)
	_, _ = s.StartTurn(ctx, start("s", "r0")) // nobody is there to hear it
	turn := must.Get(s.StartTurn(t.Context(), start("s", "r0")))(t)
	require.True(t, turn.Duplicate)
}

// TestWhatWasBegunIsAnsweredWithoutWrites: where the log takes no writes, what it holds is
// still the answer to a start that comes again after a restart.
func TestWhatWasBegunIsAnsweredWithoutWrites(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ctx := t.Context()
	first := must.Get(runOn(t, log).StartTurn(ctx, start("s", "r0")))(t)

	s := runOn(t, full{log})
	again := must.Get(s.StartTurn(ctx, start("s", "r0")))(t)
	require.True(t, again.Duplicate)
	require.Equal(t, first.ID, again.ID)
	for _, session := range []string{"s", "other"} {
		must.Fail(s.StartTurn(ctx, start(session, "r1")))(t, jetlog.ErrNoWrites)
	}
}

// replicated is a log that looks at an event's id before it looks at what an append expects, as one of three replicas
// does.
type replicated struct{ *jetlog.Log }

func (l replicated) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	ack, err := l.Log.Append(ctx, a)
	if errors.Is(err, jetlog.ErrConflict) {
		a.Expect = nil
		return l.Log.Append(ctx, a)
	}
	return ack, err
}

// A session's first event is in the log already, and the log says so in place of a conflict. Then the session is read:
// it may hold more than that event, and another request began it.
func TestASessionThatBeganElsewhereIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ctx := t.Context()
	there := run(t, log)
	must.Get(there.StartTurn(ctx, start("s", "r0")))(t)
	must.Get(there.FinalizeTurn(ctx, finalize("s", "r0")))(t)

	again := must.Get(runOn(t, replicated{log}).StartTurn(ctx, start("s", "r0")))(t)
	require.True(t, again.Duplicate)
	require.Equal(t, session.Finalized, again.Status)
	require.Len(t, logtest.Read(t, log, "s"), 2)
}

// leaving is a log whose first writer goes away while it writes.
type leaving struct {
	*jetlog.Log
	leave func()
}

func (l *leaving) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	l.leave()
	return l.Log.Append(ctx, a)
}

// full is a log that takes no writes.
type full struct{ *jetlog.Log }

func (full) Append(context.Context, jetlog.Append) (jetlog.Ack, error) {
	return jetlog.Ack{}, jetlog.ErrNoWrites
}

// A session whose id was drawn for it is begun without asking the log for it.
func TestASessionOfADrawnIDIsNotAskedFor(t *testing.T) {
	t.Parallel()
	log := &asked{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	for i, drawn := range []bool{true, false} {
		begun, err := s.BeginSession(t.Context(), services.NewSession{
			AddMessages: decide.AddMessages{
				SessionID: fmt.Sprint("s", i), RequestID: "r", Now: time.Now(),
				Messages: []decide.AddedMessage{{
					JSON: json.RawMessage(`{"role":"user","content":"q"}`), Asks: true, ByUser: true, Words: "q",
				}},
			},
			Kind: events.KindResponse, Drawn: drawn,
		}, services.Call{Body: "b"})
		require.NoError(t, err)
		require.EqualValues(t, i, log.times.Load())
		read, found, err := log.At(t.Context(), begun.Position)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, events.TypeTurnStarted, read.Type)
		require.Equal(t, &events.Recorded{
			Position: read.Position, Time: read.Time, ID: read.ID, Call: read.Call, SessionID: read.SessionID,
			Fact: read.Fact,
		}, begun.Event)
	}
}
