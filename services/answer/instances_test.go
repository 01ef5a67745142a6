package answer_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/answer/presence"
	"github.com/turnledger/turnledger/services/answer/relay"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// chatInstance is the chat of one process, on a log that other instances may share.
type chatInstance struct {
	*answer.Service
	t     *testing.T
	model *modeltest.Scripted
	turns *write.Service
	stop  func()
}

// streamKey is what the processes of a deployment share.
const streamKey = "a key of 32 characters and a few more"

// newChat returns the chat of a process of its own.
func newChat(t *testing.T, server *embedded.Server, model *modeltest.Scripted) *chatInstance {
	t.Helper()
	return newChatWith(t, server, model, unchanged)
}

// newChatWith returns such a chat whose ports are changed.
func newChatWith(t *testing.T, server *embedded.Server, model *modeltest.Scripted,
	change func(*answer.Config)) *chatInstance {
	t.Helper()
	nc := natstest.Connect(t, server)
	log := natstest.LogOn(t, server, 1)
	notes, err := log.Notes(t.Context())
	require.NoError(t, err)
	rules := session.Rules{SessionTTL: 24 * time.Hour}
	s := servicetest.New(log, servicetest.Config{
		History: write.Config{Rules: rules}, Reader: read.Config{Rules: rules},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = s.History.Run(ctx) }) // it may find its connection closed
	m := openai.New(endpoint.Config{URL: model.URL + "/v1", Name: "scripted"})
	cfg := answer.Config{
		Ports:  services.Ports{Turns: s.History, SessionWrites: s.History},
		States: s.Reader, Questions: s.Reader, Contexts: s.Contexts, Model: m,
		Presence: presence.New(nc, notes), Relay: relay.New(nc, streamKey),
	}
	change(&cfg)
	c := &chatInstance{t: t, model: model, turns: s.History, Service: answer.New(cfg)}
	c.stop = func() {
		nc.Close()
		cancel()
		running.Wait()
	}
	t.Cleanup(c.stop)
	return c
}

// listener reports when a turn has begun and when the first words of its answer come.
type listener struct {
	services.Quiet

	begun, first chan struct{}
	once         sync.Once
}

func newListener() *listener {
	return &listener{begun: make(chan struct{}), first: make(chan struct{})}
}

func (h *listener) Begun(services.Step) { close(h.begun) }

func (h *listener) Piece(services.AnswerPiece) { h.once.Do(func() { close(h.first) }) }

// outcome is what became of a message.
type outcome struct {
	services.ChatReply
	err error
}

// send sends a message and returns its listener and what becomes of it.
func (c *chatInstance) send(request, content string, policy services.OnPending) (*listener, <-chan outcome) {
	h, out := newListener(), make(chan outcome, 1)
	go func() {
		r, err := c.Send(context.WithoutCancel(c.t.Context()),
			services.ChatMessage{ThreadID: "s", RequestID: request, Content: content, OnPending: policy}, h)
		out <- outcome{r, err}
	}()
	return h, out
}

// TestRetryAfterAnInterruptionAsksTheModelAgain: a message that interrupts ends what was
// under way, not what is begun later.
func TestRetryAfterAnInterruptionAsksTheModelAgain(t *testing.T) {
	t.Parallel()
	c := newChat(t, natstest.Server(t), modeltest.NewScripted(t))
	_, failed := c.send("r1", "fail: Who is Donald Trump?", services.Enqueue)
	require.ErrorIs(t, (<-failed).err, services.ErrModelFailed)
	_, other := c.send("r2", "Who is Donald Trump?", services.Interrupt)
	require.NoError(t, (<-other).err)
	c.model.Script(func([]string) (a modeltest.Answer) { a.Text = "At last."; return a })
	_, again := c.send("r1", "fail: Who is Donald Trump?", services.Enqueue)
	r := <-again
	require.NoError(t, r.err)
	require.NotEqual(t, services.FinishInterrupted, r.Finish)
	require.Equal(t, "At last.", r.Content)
}

// TestAFilteredQuestionStandsInNoLaterPrompt: an endpoint that refused it would refuse every prompt with it.
func TestAFilteredQuestionStandsInNoLaterPrompt(t *testing.T) {
	t.Parallel()
	c := newChat(t, natstest.Server(t), modeltest.NewScripted(t))
	c.model.Script(func([]string) (a modeltest.Answer) { a.Filtered = true; return a })
	_, filtered := c.send("r1", "refused", services.Enqueue)
	r := <-filtered
	require.NoError(t, r.err)
	require.Equal(t, services.FinishFiltered, r.Finish)
	require.Empty(t, r.Content)
	require.Equal(t, session.Finalized, r.Turn.Status)
	<-c.model.Asked
	c.model.Script(func([]string) (a modeltest.Answer) { a.Text = "4"; return a })
	_, next := c.send("r2", "2+2?", services.Enqueue)
	require.NoError(t, (<-next).err)
	require.Equal(t, []string{"user: 2+2?"}, <-c.model.Asked)
}

// TestInterruptWhileQueued: of three messages, the second waits for the first, and the
// third ends them both.
func TestInterruptWhileQueued(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	model := modeltest.NewScripted(t)
	model.Hold()
	a, b := newChat(t, server, model), newChat(t, server, model)
	first, one := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	second, two := b.send("r2", "and what else?", services.Enqueue)
	<-second.begun
	_, three := a.send("r3", "stop: Who is Donald Trump?", services.Interrupt)
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
	for name, end := range map[string]func(c *chatInstance, m *modeltest.Scripted){
		"the model failed":    func(_ *chatInstance, m *modeltest.Scripted) { m.CloseClientConnections() },
		"the process is gone": func(c *chatInstance, _ *modeltest.Scripted) { c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			model, other := modeltest.NewScripted(t), modeltest.NewScripted(t)
			model.Hold()
			a, b := newChat(t, server, model), newChat(t, server, other)
			first, _ := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
			<-first.first
			_, refused := b.send("r2", "who?", services.Reject)
			require.ErrorIs(t, (<-refused).err, decide.ErrTurnPending)
			waits, two := b.send("r3", "Who is Donald Trump?", services.Enqueue)
			<-waits.begun
			require.Empty(t, other.Asked)
			end(a, model)
			select {
			case r := <-two:
				require.NoError(t, r.err)
			case <-time.After(hang.Limit):
				t.Fatal("it still waits")
			}
			require.Equal(t, []string{"user: slowly: who is Donald Trump?", "user: Who is Donald Trump?"},
				<-other.Asked)
		})
	}
}

// TestATurnThatIsWorkedOnHoldsUpHoweverOldItIs: its answer may have waited for others.
func TestATurnThatIsWorkedOnHoldsUpHoweverOldItIs(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	model, other := modeltest.NewScripted(t), modeltest.NewScripted(t)
	release := model.Hold()
	a := newChat(t, server, model)
	b := newChatWith(t, server, other, func(c *answer.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Hour) }
	})
	first, one := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	_, refused := b.send("r2", "who?", services.Reject)
	require.ErrorIs(t, (<-refused).err, decide.ErrTurnPending)
	waits, two := b.send("r3", "Who is Donald Trump?", services.Enqueue)
	<-waits.begun
	release()
	require.NoError(t, (<-one).err)
	require.NoError(t, (<-two).err)
	require.Len(t, <-other.Asked, 3, "it is asked behind the first answer")
}

// TestATurnOfAnotherPipelineHoldsUpWhileItIsYoung: only its own pipeline knows how it
// fares.
func TestATurnOfAnotherPipelineHoldsUpWhileItIsYoung(t *testing.T) {
	t.Parallel()
	c := newChat(t, natstest.Server(t), modeltest.NewScripted(t))
	_, err := c.turns.StartTurn(t.Context(), decide.Start{SessionID: "s", RequestID: "theirs",
		Question: events.Question{QuestionNeutral: "q"}})
	require.NoError(t, err)
	_, refused := c.send("r1", "who?", services.Reject)
	require.ErrorIs(t, (<-refused).err, decide.ErrTurnPending)
}

// TestTheSameMessageTwiceAtOnceIsAskedOnce: the second waits for the first one's answer.
func TestTheSameMessageTwiceAtOnceIsAskedOnce(t *testing.T) {
	t.Parallel()
	model := modeltest.NewScripted(t)
	release := model.Hold()
	c := newChat(t, natstest.Server(t), model)
	first, one := c.send("r", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	again, two := c.send("r", "slowly: who is Donald Trump?", services.Enqueue)
	<-again.begun // it hears at once that it is waited for
	release()
	r1, r2 := <-one, <-two
	require.NoError(t, r1.err)
	require.NoError(t, r2.err)
	require.True(t, r2.Repeated)
	require.Equal(t, r1.Content, r2.Content)
	require.Len(t, model.Asked, 1)
	require.False(t, strings.Contains(r1.Content, "Interrupted"))
}

// TestAnswersThatOutlastTheStop: one of which a piece was told ends with what is there. The others stay pending, their
// clients are told, and the same request again is answered by another process.
func TestAnswersThatOutlastTheStop(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	model := modeltest.NewScripted(t)
	model.Hold()
	a, b := newChat(t, server, model), newChat(t, server, modeltest.NewScripted(t))
	first, one := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	second, two := a.send("r2", "and then?", services.Enqueue)
	<-second.begun
	a.Stop()
	begun, waits := <-one, <-two
	require.NoError(t, begun.err)
	require.Equal(t, "Donald ", begun.Content)
	require.Equal(t, services.FinishStopped, begun.Finish)
	require.ErrorIs(t, waits.err, services.ErrModelFailed)
	require.Equal(t, session.Pending, waits.Turn.Status)
	_, late := a.send("r3", "slowly: one more?", services.Interrupt)
	require.ErrorIs(t, (<-late).err, services.ErrModelFailed)
	_, again := b.send("r2", "and then?", services.Enqueue)
	require.NoError(t, (<-again).err)
}

// TestAnAnswerThatCanBeNobodysEnds: a turn that is redacted, erased or answered by another
// is neither waited for at the model nor sent to it.
func TestAnAnswerThatCanBeNobodysEnds(t *testing.T) {
	t.Parallel()
	id := events.TurnID("s", "r1")
	for name, x := range map[string]struct {
		settle func(ctx context.Context, turns *write.Service) error
		want   error
	}{
		"redacted": {func(ctx context.Context, turns *write.Service) error {
			_, err := turns.RedactTurn(ctx, "s", decide.Redact{TurnID: id})
			return err
		}, decide.ErrTurnRedacted},
		"erased": {func(ctx context.Context, turns *write.Service) error {
			_, err := turns.EraseSession(ctx, "s", services.Erasure{})
			return err
		}, decide.ErrSessionErased},
		"answered": {func(ctx context.Context, turns *write.Service) error {
			_, err := turns.FinalizeTurn(ctx,
				decide.Finalize{SessionID: "s", TurnID: id, Answer: events.Answer{AnswerNeutral: "by hand"}})
			return err
		}, nil},
	} {
		for _, queued := range []bool{false, true} {
			for _, through := range []func(*answer.Config){unchanged, trimmed} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					model := modeltest.NewScripted(t)
					model.Hold()
					c := newChatWith(t, natstest.Server(t), model, through)
					if queued {
						ahead, _ := c.send("r0", "slowly: who is Donald Trump?", services.Enqueue)
						<-ahead.first
					}
					begun, one := c.send("r1", "slowly: and who else?", services.Enqueue)
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

func unchanged(*answer.Config) {}

func trimmed(c *answer.Config) { c.States = trimmedSessions{c.States} }

// trimmedSessions shows of a session what a view holds of it: no tombstones.
type trimmedSessions struct{ answer.States }

func (v trimmedSessions) Session(ctx context.Context, id string, known uint64) (*session.State, error) {
	state, err := v.States.Session(ctx, id, known)
	if err == nil {
		recent.Limits{}.WithDefaults().Trim(state)
	}
	return state, err
}

// stalledSessions is a view that stands still: a caller that asks for no more than it knows is shown
// what the view held at first.
type stalledSessions struct {
	answer.States
	mu   sync.Mutex
	held *session.State
}

func (b *stalledSessions) Session(ctx context.Context, id string, known uint64) (state *session.State, err error) {
	if known == 0 {
		return b.States.Session(ctx, id, 0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		b.held, err = b.States.Session(ctx, id, known)
	}
	return b.held, err
}

// TestAnInterruptionIsSeenPastAViewThatIsBehind: a look at the view is cheap, but the log
// is what decides.
func TestAnInterruptionIsSeenPastAViewThatIsBehind(t *testing.T) {
	t.Parallel()
	server, model := natstest.Server(t), modeltest.NewScripted(t)
	model.Hold()
	a := newChatWith(t, server, model, func(c *answer.Config) { c.States = &stalledSessions{States: c.States} })
	first, one := a.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	_, two := newChat(t, server, model).send("r2", "who else?", services.Interrupt)
	select {
	case r := <-one:
		require.NoError(t, r.err)
		require.Equal(t, services.FinishInterrupted, r.Finish)
	case <-time.After(hang.Limit):
		t.Fatal("it goes on")
	}
	require.NoError(t, (<-two).err)
}

// behind is a watcher that takes its time.
type behind struct {
	services.Quiet

	pieces int
	heard  chan struct{}
	goOn   chan struct{}
	end    error
}

func (b *behind) Piece(services.AnswerPiece) {
	if b.pieces++; b.pieces == 1 {
		close(b.heard)
		<-b.goOn
	}
}

func (b *behind) Ended(a services.Answered) { b.end = a.Err }

// TestARedactionEndsAWatcherThatIsBehind: the answer was recorded and redacted before the watcher has heard it.
func TestARedactionEndsAWatcherThatIsBehind(t *testing.T) {
	t.Parallel()
	model := modeltest.NewScripted(t)
	release := model.Hold()
	c := newChat(t, natstest.Server(t), model)
	first, one := c.send("r1", "slowly: who is Donald Trump?", services.Enqueue)
	<-first.first
	b := &behind{heard: make(chan struct{}), goOn: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- c.Watch(t.Context(), "s", uuid.Nil, b) }()
	<-b.heard
	release()
	require.NoError(t, (<-one).err)
	_, err := c.turns.RedactTurn(t.Context(), "s", decide.Redact{TurnID: events.TurnID("s", "r1")})
	require.NoError(t, err)
	<-time.After(1100 * time.Millisecond) // it asks once a second
	close(b.goOn)
	require.NoError(t, <-done)
	require.ErrorIs(t, b.end, decide.ErrTurnRedacted)
	require.Equal(t, 1, b.pieces)
}
