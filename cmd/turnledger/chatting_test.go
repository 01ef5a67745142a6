package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/endpoint"
	"github.com/turnledger/turnledger/services/chat/modeltest"
	"github.com/turnledger/turnledger/services/chat/openai"
	"github.com/turnledger/turnledger/services/chat/presence"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
)

// chatting is the chat of one process, on a log that others may share.
type chatting struct {
	*chat.Service
	t     *testing.T
	model *scripted
	turns *history.Service
	stop  func()
}

// chatOn gives the chat of a process of its own.
func chatOn(t *testing.T, server *embedded.Server, model *scripted) *chatting {
	t.Helper()
	return chatThrough(t, server, model, asItIs)
}

// chatThrough gives such a chat whose ports are changed.
func chatThrough(t *testing.T, server *embedded.Server, model *scripted, change func(*chat.Config)) *chatting {
	t.Helper()
	nc := natstest.Connect(t, server)
	log := natstest.LogOn(t, server, 1)
	notes, err := log.Notes(t.Context())
	require.NoError(t, err)
	rules := conversation.Rules{SessionTTL: 24 * time.Hour}
	writes := history.New(history.On(log), history.Config{Rules: rules})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = writes.Run(ctx) })
	reader := contextbuilder.NewReader(log, contextbuilder.ReaderConfig{Rules: rules})
	m := openai.New(endpoint.Config{URL: model.URL + "/v1", Name: "scripted"})
	cfg := chat.Config{
		Turns: writes, Sessions: reader, Model: m, Presence: presence.New(nc, notes),
		Contexts: contextbuilder.NewBuilder(reader, contextbuilder.Config{}),
	}
	change(&cfg)
	c := &chatting{t: t, model: model, turns: writes, Service: chat.New(cfg)}
	c.stop = func() {
		nc.Close()
		cancel()
		running.Wait()
	}
	t.Cleanup(c.stop)
	return c
}

// heard is a listener, which tells when a turn has begun and when its first words come.
type heard struct {
	begun, first chan struct{}
	once         sync.Once
}

func newHeard() *heard { return &heard{begun: make(chan struct{}), first: make(chan struct{})} }

func (h *heard) Begun(string, uuid.UUID) { close(h.begun) }
func (h *heard) Piece(string)            { h.once.Do(func() { close(h.first) }) }

// outcome is what became of a message.
type outcome struct {
	services.ChatReply
	err error
}

// say sends a message, and gives what becomes of it.
func (c *chatting) say(request, content string, policy services.OnPending) (*heard, <-chan outcome) {
	h, out := newHeard(), make(chan outcome, 1)
	go func() {
		r, err := c.Send(context.WithoutCancel(c.t.Context()), services.ChatMessage{ThreadID: "s", RequestID: request, Content: content, OnPending: policy}, h)
		out <- outcome{r, err}
	}()
	return h, out
}

// TestRetryAfterAnInterruptionAsksTheModelAgain: a message that interrupts ends what was
// under way, not what is begun later.
func TestRetryAfterAnInterruptionAsksTheModelAgain(t *testing.T) {
	t.Parallel()
	c := chatOn(t, natstest.Server(t), newScripted(t))
	_, failed := c.say("r1", "fail: Who is Donald Trump?", services.Enqueue)
	require.ErrorIs(t, (<-failed).err, services.ErrModelFailed)
	_, other := c.say("r2", "Who is Donald Trump?", services.Interrupt)
	require.NoError(t, (<-other).err)
	c.model.Script(func([]string) (a modeltest.Answer) { a.Text = "At last."; return a })
	_, again := c.say("r1", "fail: Who is Donald Trump?", services.Enqueue)
	r := <-again
	require.NoError(t, r.err)
	require.NotEqual(t, services.FinishInterrupted, r.Finish)
	require.Equal(t, "At last.", r.Content)
}

// TestInterruptWhileQueued: of three messages, the second waits for the first, and the
// third ends them both.
func TestInterruptWhileQueued(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	model := newScripted(t)
	model.hold()
	a, b := chatOn(t, server, model), chatOn(t, server, model)
	first, one := a.say("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	second, two := b.say("r2", "and what else?", services.Enqueue)
	<-second.begun
	_, three := a.say("r3", "stop: Who is Donald Trump?", services.Interrupt)
	r1, r2, r3 := <-one, <-two, <-three
	for _, r := range []outcome{r1, r2, r3} {
		require.NoError(t, r.err)
	}
	require.Equal(t, services.FinishInterrupted, r1.Finish)
	require.Equal(t, "Donald ", r1.Content)
	require.Equal(t, services.FinishInterrupted, r2.Finish)
	require.Equal(t, "[Interrupted]", r2.Content)
	require.NotEqual(t, services.FinishInterrupted, r3.Finish)
	require.Len(t, model.Asked, 2, "the second never got to the model")
}

// TestAFailedTurnHoldsUpNoOtherProcess, nor does one whose process is gone: each would
// else be waited for two minutes.
func TestAFailedTurnHoldsUpNoOtherProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *chatting, m *scripted){
		"the model failed":    func(_ *chatting, m *scripted) { m.CloseClientConnections() },
		"the process is gone": func(c *chatting, _ *scripted) { c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			model, other := newScripted(t), newScripted(t)
			model.hold()
			a, b := chatOn(t, server, model), chatOn(t, server, other)
			first, _ := a.say("r1", "slowly: who is Donald Trump?", services.Enqueue)
			<-first.first
			_, refused := b.say("r2", "who?", services.Reject)
			require.ErrorIs(t, (<-refused).err, conversation.ErrTurnPending)
			waits, two := b.say("r3", "Who is Donald Trump?", services.Enqueue)
			<-waits.begun
			require.Empty(t, other.Asked)
			end(a, model)
			select {
			case r := <-two:
				require.NoError(t, r.err)
			case <-time.After(30 * time.Second):
				t.Fatal("it still waits")
			}
			require.Equal(t, []string{"user: slowly: who is Donald Trump?", "user: Who is Donald Trump?"}, <-other.Asked)
		})
	}
}

// TestATurnOfAnotherPipelineHoldsUpWhileItIsYoung: only its own pipeline knows how it
// fares.
func TestATurnOfAnotherPipelineHoldsUpWhileItIsYoung(t *testing.T) {
	t.Parallel()
	c := chatOn(t, natstest.Server(t), newScripted(t))
	_, err := c.turns.StartTurn(t.Context(), conversation.Start{SessionID: "s", RequestID: "theirs", Question: events.Question{QuestionNeutral: "q"}})
	require.NoError(t, err)
	_, refused := c.say("r1", "who?", services.Reject)
	require.ErrorIs(t, (<-refused).err, conversation.ErrTurnPending)
}

// TestTheSameMessageTwiceAtOnceIsAskedOnce: the second waits for the first one's answer.
func TestTheSameMessageTwiceAtOnceIsAskedOnce(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	release := model.hold()
	c := chatOn(t, natstest.Server(t), model)
	first, one := c.say("r", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	again, two := c.say("r", "slowly: who is Donald Trump?", services.Enqueue)
	<-again.begun // it hears at once that it is waited for
	release()
	r1, r2 := <-one, <-two
	require.NoError(t, r1.err)
	require.NoError(t, r2.err)
	require.True(t, r2.Again)
	require.Equal(t, r1.Content, r2.Content)
	require.Len(t, model.Asked, 1)
	require.False(t, strings.Contains(r1.Content, "Interrupted"))
}

// TestAnswersThatOutlastTheStopStayPending: their clients are told, what waits for them
// is let go, and the same request again is answered by another process.
func TestAnswersThatOutlastTheStopStayPending(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	model := newScripted(t)
	model.hold()
	a, b := chatOn(t, server, model), chatOn(t, server, newScripted(t))
	first, one := a.say("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	second, two := a.say("r2", "and then?", services.Enqueue)
	<-second.begun
	a.Stop()
	for _, end := range []<-chan outcome{one, two} {
		r := <-end
		require.ErrorIs(t, r.err, services.ErrModelFailed)
		require.Equal(t, conversation.Pending, r.Turn.Status)
	}
	_, late := a.say("r3", "slowly: one more?", services.Interrupt)
	require.ErrorIs(t, (<-late).err, services.ErrModelFailed)
	_, again := b.say("r1", "slowly: who is Donald Trump?", services.Enqueue)
	r := <-again
	require.NoError(t, r.err)
	require.Contains(t, r.Content, "Donald Trump is")
}

// TestAnAnswerThatCanBeNobodysEnds: a turn that is redacted, erased or answered by another
// is neither waited for at the model nor sent to it.
func TestAnAnswerThatCanBeNobodysEnds(t *testing.T) {
	t.Parallel()
	id := events.TurnID("s", "r1")
	for name, x := range map[string]struct {
		settle func(ctx context.Context, turns *history.Service) error
		want   error
	}{
		"redacted": {func(ctx context.Context, turns *history.Service) error {
			_, err := turns.RedactTurn(ctx, "s", conversation.Redact{TurnID: id})
			return err
		}, conversation.ErrTurnRedacted},
		"erased": {func(ctx context.Context, turns *history.Service) error {
			_, err := turns.EraseSession(ctx, "s", services.Erasure{})
			return err
		}, conversation.ErrSessionErased},
		"answered": {func(ctx context.Context, turns *history.Service) error {
			_, err := turns.FinalizeTurn(ctx, conversation.Finalize{SessionID: "s", TurnID: id, Answer: events.Answer{AnswerNeutral: "by hand"}})
			return err
		}, nil},
	} {
		for _, queued := range []bool{false, true} {
			for _, through := range []func(*chat.Config){asItIs, inAView} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					model := newScripted(t)
					model.hold()
					c := chatThrough(t, natstest.Server(t), model, through)
					if queued {
						ahead, _ := c.say("r0", "slowly: who is Donald Trump?", services.Enqueue)
						<-ahead.first
					}
					begun, one := c.say("r1", "slowly: and who else?", services.Enqueue)
					if <-begun.begun; !queued {
						<-begun.first
					}
					require.NoError(t, x.settle(t.Context(), c.turns))
					r := <-one
					require.ErrorIs(t, r.err, x.want)
					require.NotEqual(t, services.FinishInterrupted, r.Finish)
					require.Len(t, model.Asked, 1)
					if x.want == nil {
						require.Equal(t, "by hand", r.Content)
					}
				})
			}
		}
	}
}

func asItIs(*chat.Config)    {}
func inAView(c *chat.Config) { c.Sessions = viewed{c.Sessions} }

// viewed gives of a session what a view holds of it: no tombstones.
type viewed struct{ chat.Sessions }

func (v viewed) Session(ctx context.Context, id string, known uint64) (*conversation.State, error) {
	state, err := v.Sessions.Session(ctx, id, known)
	if err == nil {
		recent.Limits{}.WithDefaults().Trim(state)
	}
	return state, err
}

// stalled is a view that does not go on: who asks for no more than it knows is shown what it
// held at first.
type stalled struct {
	chat.Sessions
	mu   sync.Mutex
	held *conversation.State
}

func (b *stalled) Session(ctx context.Context, id string, known uint64) (state *conversation.State, err error) {
	if known == 0 {
		return b.Sessions.Session(ctx, id, 0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		b.held, err = b.Sessions.Session(ctx, id, known)
	}
	return b.held, err
}

// TestAnInterruptionIsSeenPastAViewThatIsBehind: a look at the view is cheap, but the log
// is what decides.
func TestAnInterruptionIsSeenPastAViewThatIsBehind(t *testing.T) {
	t.Parallel()
	server, model := natstest.Server(t), newScripted(t)
	model.hold()
	a := chatThrough(t, server, model, func(c *chat.Config) { c.Sessions = &stalled{Sessions: c.Sessions} })
	first, one := a.say("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	_, two := chatOn(t, server, model).say("r2", "who else?", services.Interrupt)
	select {
	case r := <-one:
		require.NoError(t, r.err)
		require.Equal(t, services.FinishInterrupted, r.Finish)
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
	require.NoError(t, (<-two).err)
}
