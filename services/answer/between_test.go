package answer_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/answer/relay"
)

// witness notes what it is told of an answer.
type witness struct {
	mu   sync.Mutex
	told []string
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *witness) Begun(s services.Step) { w.note("begun %s %s %s", s.SessionID, s.TurnID, s.Model) }

func (w *witness) Piece(p services.AnswerPiece) { w.note("piece %d %s %q", p.Part, p.Kind, p.Text) }

func (w *witness) Ended(a services.Answered) {
	reply := services.ChatReply{}
	if a.Reply != nil {
		reply = *a.Reply
	}
	w.note("ended %v %s %q %d %s %s %s", a.Err, a.Finish, reply.Content, reply.HistoryTurns, reply.Turn.ID,
		reply.Turn.Status, reply.Turn.Position)
}

func (w *witness) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.told, "\n")
}

// sees waits until it was told a text.
func (w *witness) sees(t *testing.T, text string) {
	t.Helper()
	hang.Until(t, func() bool { return strings.Contains(w.all(), text) })
}

// watches has a process watch the answer that runs in the session.
func (c *chatInstance) watches(t *testing.T) (*witness, <-chan error) {
	t.Helper()
	w, done := &witness{}, make(chan error, 1)
	go func() { done <- c.Watch(t.Context(), "s", uuid.Nil, w) }()
	return w, done
}

// asked has a process answer a message, and returns what its caller is told.
func (c *chatInstance) asked(t *testing.T, request, content string) (*witness, <-chan error) {
	t.Helper()
	w, done := &witness{}, make(chan error, 1)
	go func() {
		_, err := c.Send(context.WithoutCancel(t.Context()), services.ChatMessage{
			ThreadID: "s", RequestID: request, Content: content, OnPending: services.Enqueue,
		}, w)
		done <- err
	}()
	return w, done
}

// Whoever watches in another process is told what the caller is told, from the beginning.
func TestAnAnswerIsWatchedInAnotherProcess(t *testing.T) {
	t.Parallel()
	server, model := natstest.Server(t), modeltest.NewScripted(t)
	release := model.Hold()
	a, b := newChat(t, server, model), newChat(t, server, model)
	require.ErrorIs(t, b.Watch(t.Context(), "s", uuid.Nil, &witness{}), services.ErrNotRunning)
	caller, done := a.asked(t, "r1", "slowly: who is Donald Trump?")
	caller.sees(t, "Donald ")
	var watchers []*witness
	var ends []<-chan error
	for range 3 {
		w, end := b.watches(t)
		w.sees(t, "Donald ")
		watchers, ends = append(watchers, w), append(ends, end)
	}
	release()
	require.NoError(t, <-done)
	for n, w := range watchers {
		require.NoError(t, <-ends[n])
		require.Equal(t, caller.all(), w.all())
	}
	require.Contains(t, caller.all(), "American politician")
	require.ErrorIs(t, b.Watch(t.Context(), "s", uuid.Nil, &witness{}), services.ErrNotRunning)
}

// A stop reaches the answer that runs before the others, in whatever process, and leaves those that wait.
func TestAnAnswerIsStoppedInAnotherProcess(t *testing.T) {
	t.Parallel()
	server, model := natstest.Server(t), modeltest.NewScripted(t)
	release := model.Hold()
	a, b, c := newChat(t, server, model), newChat(t, server, model), newChat(t, server, model)
	first, one := a.asked(t, "r1", "slowly: who is Donald Trump?")
	first.sees(t, "Donald ")
	second, two := b.asked(t, "r2", "and who else?")
	second.sees(t, "begun")
	for _, at := range []*chatInstance{b, c} {
		w, _ := at.watches(t)
		w.sees(t, "Donald ")
		require.Contains(t, w.all(), events.TurnID("s", "r1").String())
	}
	stopped, err := b.StopAnswer(t.Context(), "s", uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, events.TurnID("s", "r1"), stopped)
	require.NoError(t, <-one)
	require.Contains(t, first.all(), `stopped "Donald "`)
	release()
	require.NoError(t, <-two)
	require.Contains(t, second.all(), "ended <nil> stop")
	_, err = c.StopAnswer(t.Context(), "s", uuid.Nil)
	require.ErrorIs(t, err, services.ErrNotRunning)
}

// No watcher hangs for more than 5 s when the process dies that makes the answer.
func TestAWatcherIsToldThatTheProcessDied(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	a, b := newAnsweringChat(t, server), newChat(t, server, modeltest.NewScripted(t))
	w, done := b.watches(t)
	w.sees(t, "Donald ")
	a.stop()
	select {
	case err := <-done:
		require.ErrorIs(t, err, services.ErrAnswerLost)
	case <-time.After(5 * time.Second):
		t.Fatal("it hangs")
	}
	require.ErrorIs(t, b.Watch(t.Context(), "s", uuid.Nil, &witness{}), services.ErrNotRunning)
}

// spy is a user of the log's account who hears all that processes tell each other of answers.
type spy struct {
	nc *nats.Conn

	mu    sync.Mutex
	inbox map[string]bool
	heard []*nats.Msg
}

func newSpy(t *testing.T, server *embedded.Server) *spy {
	t.Helper()
	s := &spy{nc: natstest.Connect(t, server), inbox: map[string]bool{}}
	_, err := s.nc.Subscribe(">", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		asks := strings.HasPrefix(m.Subject, "turnledger.answer.")
		if asks {
			s.inbox[m.Reply] = true
		}
		if asks || s.inbox[m.Subject] {
			s.heard = append(s.heard, m)
		}
	})
	require.NoError(t, err)
	require.NoError(t, s.nc.Flush())
	return s
}

func (s *spy) all() []*nats.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*nats.Msg(nil), s.heard...)
}

// meddle sends all that was heard again: as it was, with another inbox, and with its last byte changed.
func (s *spy) meddle(t *testing.T) (own *nats.Subscription) {
	t.Helper()
	own, err := s.nc.SubscribeSync(s.nc.NewInbox())
	require.NoError(t, err)
	for _, m := range s.all() {
		again := nats.NewMsg(m.Subject)
		again.Data, again.Reply = m.Data, m.Reply
		require.NoError(t, s.nc.PublishMsg(again))
		changed := bytes.Clone(m.Data)
		changed[len(changed)-1]++
		again.Data = changed
		require.NoError(t, s.nc.PublishMsg(again))
		again.Data, again.Reply = m.Data, own.Subject
		require.NoError(t, s.nc.PublishMsg(again))
		if m.Reply == "" {
			for _, forged := range []string{"", `{"piece":{"part":0,"kind":"text","text":"` + forgery + `"}}`, "stop"} {
				require.NoError(t, s.nc.Publish(m.Subject, []byte(forged)))
			}
			nobody := nats.NewMsg(m.Subject)
			nobody.Header.Set("Status", "503")
			require.NoError(t, s.nc.PublishMsg(nobody))
		}
	}
	require.NoError(t, s.nc.Flush())
	return own
}

// forgery is a text that nobody says.
const forgery = "Zm9yZ2Vk"

// A user of the log's account who subscribes to everything and publishes what he likes learns no piece, forges none,
// and stops no answer: not with what he makes up, and not with what he heard.
func TestAStrangerInTheAccountLearnsForgesAndStopsNothing(t *testing.T) {
	t.Parallel()
	server, model := natstest.Server(t), modeltest.NewScripted(t)
	release := model.Hold()
	a, b := newChat(t, server, model), newChat(t, server, model)
	stranger := newChatWith(t, server, model, func(c *answer.Config) {
		c.Relay = relay.New(natstest.Connect(t, server), "another key of 32 characters and a few more")
	})
	s := newSpy(t, server)
	first, one := a.asked(t, "r1", "slowly: who is Donald Trump?")
	first.sees(t, "Donald ")
	early, ended := b.watches(t)
	early.sees(t, "Donald ")
	_, err := b.StopAnswer(t.Context(), "s", events.TurnID("s", "r1"))
	require.NoError(t, err)
	require.NoError(t, <-one)
	require.NoError(t, <-ended)

	second, two := a.asked(t, "r2", "slowly: who is Donald Trump?")
	second.sees(t, "Donald ")
	w, done := b.watches(t)
	w.sees(t, "Donald ")
	own := s.meddle(t)
	require.ErrorIs(t, stranger.Watch(t.Context(), "s", events.TurnID("s", "r2"), &witness{}), services.ErrNotRunning)
	_, err = stranger.StopAnswer(t.Context(), "s", uuid.Nil)
	require.ErrorIs(t, err, services.ErrNotRunning)
	late, end := b.watches(t)
	late.sees(t, "Donald ")
	release()
	for _, done := range []<-chan error{two, done, end} {
		require.NoError(t, <-done)
	}
	require.Contains(t, second.all(), "ended <nil> stop")
	require.Equal(t, second.all(), w.all())
	require.Equal(t, second.all(), late.all())
	_, err = own.NextMsg(100 * time.Millisecond)
	require.ErrorIs(t, err, nats.ErrTimeout, "somebody replies to a request that was not his")
	require.NotEmpty(t, s.all())
	for _, m := range s.all() {
		if bytes.Contains(m.Data, []byte(forgery)) {
			continue
		}
		for _, text := range []string{"Donald", "American", "begun", "piece", `"s"`} {
			require.NotContains(t, string(m.Data)+m.Subject, text)
		}
	}
}
