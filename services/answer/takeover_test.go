package answer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// TestTheSameRequestElsewhereAsksOnce: a client sends a message again and comes to another process. It
// gets the answer that is under way, and the model is not asked for a second one.
func TestTheSameRequestElsewhereAsksOnce(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	model := modeltest.NewScripted(t)
	release := model.Hold()
	a, b := newChat(t, server, model), newChat(t, server, model)
	first, one := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	sub, err := natstest.Connect(t, server).SubscribeSync("turnledger.answering.*")
	require.NoError(t, err)
	require.NoError(t, sub.AutoUnsubscribe(1))
	again, two := b.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-again.begun
	_, err = sub.NextMsg(30 * time.Second)
	require.NoError(t, err, "nobody asks who answers")
	release()
	r1, r2 := <-one, <-two
	require.NoError(t, r1.err)
	require.NoError(t, r2.err)
	require.Equal(t, r1.Content, r2.Content)
	require.True(t, r2.Repeated)
	require.Len(t, model.Asked, 1)
}

// newAnsweringChat is a process that has begun to answer r1, and never ends it.
func newAnsweringChat(t *testing.T, server *embedded.Server) *chatInstance {
	t.Helper()
	model := modeltest.NewScripted(t)
	model.Hold()
	a := newChat(t, server, model)
	first, _ := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	return a
}

// TestOneTakesOverFromAProcessThatDied: of several that wait for its answer one asks the
// model, and the others are given what that one streams.
func TestOneTakesOverFromAProcessThatDied(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	a, model := newAnsweringChat(t, server), modeltest.NewScripted(t)
	const others = 4
	var waiting, free sync.WaitGroup
	waiting.Add(others)
	free.Add(others)
	var ends []<-chan outcome
	for range others {
		b := newChatWith(t, server, model, func(c *answer.Config) {
			c.Presence = &jointClaims{Presence: c.Presence, waiting: &waiting, free: &free}
		})
		begun, end := b.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
		<-begun.begun
		ends = append(ends, end)
	}
	waiting.Wait()
	a.stop()
	again := 0
	for _, end := range ends {
		r := <-end
		require.NoError(t, r.err)
		require.Equal(t, "Donald Trump is an American politician.", r.Content)
		if r.Repeated {
			again++
		}
	}
	require.Equal(t, others-1, again)
	require.Len(t, model.Asked, 1)
}

// TestATurnIsTakenOverWithoutNotes: where no claim can be noted, a process that waits for one that died
// asks the model all the same, as it could before there were claims.
func TestATurnIsTakenOverWithoutNotes(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(answer.Presence) answer.Presence{
		"unread":    func(p answer.Presence) answer.Presence { return noReading{p} },
		"unwritten": func(p answer.Presence) answer.Presence { return noWriting{p} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			a, model := newAnsweringChat(t, server), modeltest.NewScripted(t)
			a.stop()
			b := newChatWith(t, server, model, func(c *answer.Config) { c.Presence = wrap(c.Presence) })
			_, end := b.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
			r := <-end
			require.NoError(t, r.err)
			require.Equal(t, "Donald Trump is an American politician.", r.Content)
			require.Len(t, model.Asked, 1)
		})
	}
}

// noReading and noWriting are presences whose notes can't be reached.
type noReading struct{ answer.Presence }

func (noReading) Claimed(context.Context, uuid.UUID) (uint64, error) { return 0, jetlog.ErrUnavailable }

type noWriting struct{ answer.Presence }

func (noWriting) Claim(context.Context, uuid.UUID, uint64) (bool, error) {
	return false, jetlog.ErrUnavailable
}

// jointClaims lets the processes claim a turn at once that have waited for another's answer: it
// holds each that sees for the second time that nobody answers.
type jointClaims struct {
	answer.Presence
	waiting, free *sync.WaitGroup
	heard         sync.Once
	silent        int
}

func (g *jointClaims) Present(ctx context.Context, turn uuid.UUID) (present bool, about answer.Answering, err error) {
	present, about, err = g.Presence.Present(ctx, turn)
	switch {
	case err != nil:
	case present:
		g.heard.Do(g.waiting.Done)
	default:
		if g.silent++; g.silent == 2 {
			g.free.Done()
			g.free.Wait()
		}
	}
	return present, about, err
}

// TestAnAnswerIsHeardWhileItsCallerWaits: other processes are told, too, and wait until they could have been.
func TestAnAnswerIsHeardWhileItsCallerWaits(t *testing.T) {
	t.Parallel()
	server, model := natstest.Server(t), modeltest.NewScripted(t)
	model.Hold()
	a, b := newChat(t, server, model), newChat(t, server, model)
	ctx, hangUp := context.WithCancel(t.Context())
	first, ended := newListener(), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = a.Send(ctx, services.ChatMessage{ThreadID: "s", RequestID: "r", Content: "slowly: who?"}, first)
	}()
	<-first.first
	key := events.TurnID("s", "r")
	require.True(t, answer.Heard(t.Context(), b.Service, key, time.Now()))
	hangUp()
	require.False(t, answer.Heard(t.Context(), b.Service, key, time.Now()))
	require.True(t, answer.Working(t.Context(), b.Service, key, time.Time{}))
	a.Stop()
	<-ended
	began := time.Now()
	require.False(t, answer.Heard(t.Context(), b.Service, key, began))
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
}
