package write_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

// slow is a log whose first append of messages waits to be released, and whose events may be too large.
type slow struct {
	*jetlog.Log
	appends  atomic.Int32
	entered  chan struct{}
	released chan struct{}
	// leave, if set, is called while the second append is on its way.
	leave func()
}

func (l *slow) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	if l.appends.Add(1) == 1 {
		close(l.entered)
		select {
		case <-l.released:
		case <-ctx.Done():
			return jetlog.Ack{}, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, ctx.Err())
		}
	} else if l.leave != nil {
		l.leave()
	}
	for _, f := range a.Facts {
		if raw, _ := json.Marshal(f); strings.Contains(string(raw), "too large") {
			return jetlog.Ack{}, jetlog.ErrTooLarge
		}
	}
	return l.Log.Append(ctx, a)
}

// crowd are calls that add to one session at once: all but the first wait for its append.
type crowd struct {
	t    *testing.T
	log  *slow
	svc  *write.Service
	all  sync.WaitGroup
	done map[int]services.AddedMessages
	errs map[int]error
	mu   sync.Mutex
	// busy is that of the calls.
	busy decide.Busy
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	log := natstest.Log(t, 1)
	c := &crowd{t: t, log: &slow{Log: log, entered: make(chan struct{}), released: make(chan struct{})},
		done: map[int]services.AddedMessages{}, errs: map[int]error{}}
	begins := services.NewSession{
		AddMessages: decide.AddMessages{SessionID: "s", RequestID: "begin", Now: time.Now()},
		Kind:        events.KindConversation,
	}
	must.Get(runOn(t, log).BeginSession(t.Context(), begins, services.Call{Body: "begin"}))(t)
	c.svc = runOn(t, c.log)
	return c
}

// says returns a command that adds the texts of the user and the assistant, who take turns.
func says(request string, texts ...string) decide.AddMessages {
	c := decide.AddMessages{SessionID: "s", RequestID: request, Now: time.Now()}
	for i, text := range texts {
		role := []string{"user", "assistant"}[i%2]
		c.Messages = append(c.Messages, decide.AddedMessage{
			JSON: json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, text)),
			Asks: i%2 == 0, ByUser: i%2 == 0, Words: text,
		})
	}
	return c
}

// add makes the call n, and returns once it waits, or is at its append.
func (c *crowd) add(ctx context.Context, n int, call services.Call, texts ...string) {
	c.t.Helper()
	add := says(fmt.Sprint("r", n), texts...)
	add.Busy = c.busy
	c.all.Go(func() {
		done, err := c.svc.AddMessages(ctx, add, call)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done[n], c.errs[n] = done, err
	})
	if n == 0 {
		<-c.log.entered
		return
	}
	hang.Until(c.t, func() bool { return c.svc.Adding("s") >= n })
}

func (c *crowd) release() {
	close(c.log.released)
	c.all.Wait()
}

// texts returns the texts of the session's messages as the log has them, in order.
func (c *crowd) texts() (out []string) {
	c.t.Helper()
	for _, e := range logtest.Read(c.t, c.log.Log, "s") {
		texts := events.TextsOf(e.Fact)
		var halves []json.RawMessage
		if texts.Question != nil {
			halves = append(halves, texts.Question.QuestionMessages)
		}
		if texts.Answer != nil {
			halves = append(halves, texts.Answer.AnswerMessages)
		}
		if texts.Extension != nil {
			halves = append(halves, texts.Extension.Messages)
		}
		for _, raw := range halves {
			var list []struct{ Content string }
			_ = json.Unmarshal(raw, &list)
			for _, m := range list {
				out = append(out, m.Content)
			}
		}
	}
	return out
}

// Calls that come while an append is on its way share the next one. Each is told where its own messages stand, and is
// known when it comes again, in every process.
//
//conformance:o35
func TestCallsAtOnceShareAnAppend(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const many = 21
	call := func(n int) services.Call { return services.Call{Key: fmt.Sprint("key", n)} }
	var want []string
	for n := range many {
		c.add(t.Context(), n, call(n), fmt.Sprint("q", n), fmt.Sprint("a", n))
		want = append(want, fmt.Sprint("q", n), fmt.Sprint("a", n))
	}
	c.release()
	require.EqualValues(t, 2, c.log.appends.Load())
	require.Equal(t, want, c.texts())
	other := runOn(t, c.log.Log)
	for n := range many {
		require.NoError(t, c.errs[n])
		done := c.done[n]
		require.False(t, done.Duplicate)
		require.Equal(t, c.done[0].Position.Seq+uint64(n), done.Position.Seq, "each is at its own event")
		require.Equal(t, done.Position, done.Messages[0].First)
		require.Equal(t, done.Position, done.Messages[1].First)
		again := must.Get(other.AddMessages(t.Context(), says("another", "another"), call(n)))(t)
		require.True(t, again.Duplicate)
		require.Equal(t, done.Messages, again.Messages)
		require.Equal(t, done.Position, again.Position)
	}
}

// A message by itself needs no atomic batch, so it does not wait for others to share one.
func TestSingleMessagesDoNotShareAnAppend(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	for n := range 5 {
		c.add(t.Context(), n, services.Call{}, fmt.Sprint(n))
	}
	c.add(t.Context(), 5, services.Call{}, "5", "6")
	c.add(t.Context(), 6, services.Call{}, "7")
	c.release()
	require.EqualValues(t, 6, c.log.appends.Load(), "the last one comes with a batch")
	require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7"}, c.texts())
}

// Calls that won't add to a session with a pending turn share no append: the first one's turn keeps the others out.
// What comes again is no new turn.
func TestCallsThatWontWaitDoNotShareAnAppend(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.add(t.Context(), 0, services.Call{}, "before", "yes")
	c.busy = func(t *session.Turn) bool { return t.Status == session.Pending }
	for n := range 4 {
		c.add(t.Context(), n+1, services.Call{Key: []string{"a", "b", "c", "a"}[n]}, "q", "a", "open")
	}
	c.release()
	require.NoError(t, c.errs[1])
	require.ErrorIs(t, c.errs[2], decide.ErrTurnPending)
	require.ErrorIs(t, c.errs[3], decide.ErrTurnPending)
	require.NoError(t, c.errs[4])
	require.Equal(t, c.done[1].Messages, c.done[4].Messages)
	require.Equal(t, []string{"before", "yes", "q", "a", "open"}, c.texts())
}

// A call that comes twice at once is recorded once.
func TestTheSameCallTwiceAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	for n, key := range []string{"a", "b", "b", "c"} {
		c.add(t.Context(), n, services.Call{Key: key}, key, "yes")
	}
	c.release()
	for n := range 4 {
		require.NoError(t, c.errs[n])
		require.Equal(t, n == 2, c.done[n].Duplicate)
	}
	require.Equal(t, c.done[1].Messages, c.done[2].Messages)
	require.Equal(t, []string{"a", "yes", "b", "yes", "c", "yes"}, c.texts())
}

// A message that is too large is refused, and not those that came with it.
func TestOnlyTheCallThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	for n, text := range []string{"a", "b", "too large", "c"} {
		c.add(t.Context(), n, services.Call{}, text, "yes")
	}
	c.release()
	require.ErrorIs(t, c.errs[2], jetlog.ErrTooLarge)
	for _, n := range []int{0, 1, 3} {
		require.NoError(t, c.errs[n])
	}
	require.Equal(t, []string{"a", "yes", "b", "yes", "c", "yes"}, c.texts())
}

// A caller that gives up leaves the others their messages, whether its own are on their way or still wait.
func TestACallerOfASharedAppendGivesUp(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var giveUp [5]context.CancelFunc
	for n := range giveUp {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		giveUp[n] = cancel
		c.add(ctx, n, services.Call{}, fmt.Sprint(n), "yes")
	}
	giveUp[2]()
	hang.Until(t, func() bool { return c.svc.Adding("s") == 3 })
	c.log.leave = giveUp[1]
	c.release()
	require.ErrorIs(t, c.errs[2], jetlog.ErrUnavailable)
	for _, n := range []int{0, 1, 3, 4} {
		require.NoError(t, c.errs[n])
	}
	require.EqualValues(t, 2, c.log.appends.Load())
	require.Equal(t, []string{"0", "yes", "1", "yes", "3", "yes", "4", "yes"}, c.texts())
}

// A write that nobody waits for any more ends.
func TestASharedAppendEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.add(ctx, 0, services.Call{}, "a", "yes")
	cancel()
	c.all.Wait()
	require.ErrorIs(t, c.errs[0], jetlog.ErrUnavailable)
}
