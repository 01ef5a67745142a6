package read_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
)

// readCounter is a log that counts how often sessions are read, and how many events of them.
type readCounter struct {
	*jetlog.Log
	reads, read atomic.Int64
}

func (l *readCounter) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	l.reads.Add(1)
	return func(yield func(events.Recorded, error) bool) {
		for e, err := range l.Log.Session(ctx, id, after, upTo) {
			l.read.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// A session that was read whole is not read again: only what came since is. Its readers own what they get.
func TestASessionIsReadWholeOnce(t *testing.T) {
	t.Parallel()
	log, _ := logtest.Turns(t, 50)
	c := &readCounter{Log: log}
	r := read.New(c, read.Config{Rules: rules})
	read := func() (*session.State, int64) {
		before := c.read.Load()
		reading := must.Get(r.Read(t.Context(), services.Ask{SessionID: "s", AllTurns: true}))(t)
		require.True(t, reading.State.Same(viewtest.Folded(t, log, rules, "s", 1000, 1000)))
		require.GreaterOrEqual(t, reading.Position.Seq, reading.State.Applied)
		return reading.State, c.read.Load() - before
	}
	first, n := read()
	require.EqualValues(t, 100, n)
	first.Turns[0].Status = session.Redacted
	first.DropOldest(3)
	_, n = read()
	require.Zero(t, n)
	logtest.Turn(t, log, "elsewhere", "1", "q", "a")
	_, n = read()
	require.Zero(t, n, "the log has gone on, the session has not")
	logtest.Turn(t, log, "s", "new", "q", "a")
	state, n := read()
	require.EqualValues(t, 3, n, "the last event that was read, and the two new ones")
	require.Len(t, state.Turns, 51)
	id := events.TurnID("s", "7")
	natstest.Append(t, log, decide.Redact{TurnID: id}.On(state).Facts[0])
	state, n = read()
	require.EqualValues(t, 2+103, n, "what takes something away is folded from the log alone")
	require.Equal(t, session.Redacted, state.Turn(id).Status)
	require.Nil(t, state.Turn(id).Question)
	before := c.reads.Load()
	reading := must.Get(r.Read(t.Context(), services.Ask{SessionID: "unknown", AllTurns: true}))(t)
	require.False(t, reading.State.Found())
	require.Equal(t, before, c.reads.Load())
}

// Where the last event that was read has left the log, the session is read anew: others may have, too.
func TestASessionWhoseEventsHaveLeftIsReadAnew(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	r := read.New(log, read.Config{Rules: rules})
	read := func() *session.State {
		return must.Get(r.Read(t.Context(), services.Ask{SessionID: "s", AllTurns: true}))(t).State
	}
	at := logtest.Turn(t, log, "s", "old", "a text that leaves", "a")
	require.Len(t, read().Turns, 1)
	for seq := range at.Seq {
		must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: seq + 1}))(t)
	}
	logtest.Turn(t, log, "s", "new", "q", "a")
	state := read()
	require.Len(t, state.Turns, 1)
	require.Equal(t, events.TurnID("s", "new"), state.Turns[0].ID)
}

// Readers of a session that grows don't see each other's turns change; the race detector looks on.
func TestAGrowingSessionIsReadByMany(t *testing.T) {
	t.Parallel()
	log, _ := logtest.Turns(t, 40)
	r := read.New(log, read.Config{Rules: rules})
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for range 20 {
				reading, err := r.Read(t.Context(), services.Ask{SessionID: "s", AllTurns: true})
				if err != nil {
					return err
				}
				reading.State.DropOldest(len(reading.State.Turns) - 1)
				reading.State.Turns[0].Status = session.Redacted
			}
			return nil
		})
	}
	for i := range 20 {
		logtest.Turn(t, log, "s", fmt.Sprint("more", i), "q", "a")
	}
	require.NoError(t, g.Wait())
	reading := must.Get(r.Read(t.Context(), services.Ask{SessionID: "s", AllTurns: true}))(t)
	require.True(t, reading.State.Same(viewtest.Folded(t, log, rules, "s", 1000, 1000)))
}
