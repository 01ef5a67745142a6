//go:build alone

package write_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/liveheap"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

// The bound of the states is one of the real heap: states that reach it take at most heapOfBound times as much,
// whatever their sessions are like, and whether the service saw the events come or read them from the log. The test
// runs beside no other, since it measures the heap of the process: all of it but that of the NATS server.
func TestTheStatesTakeNoMoreOfTheHeapThanTheirBound(t *testing.T) { //nolint:paralleltest // see above
	const bound, heapOfBound = 2 << 20, 1.2
	liveheap.Note(t)
	for name, c := range map[string]struct {
		sessions int
		fill     func(ctx context.Context, s *write.Service, id string) error
	}{
		"one short turn":         {2500, wholeTurns(1, 10)},
		"twenty turns":           {300, wholeTurns(20, 36)},
		"many turns":             {10, wholeTurns(600, 36)},
		"turns of long requests": {120, wholeTurns(40, 200)},
		"short questions wait":   {200, waiting(20, events.Question{QuestionNeutral: "q"})},
		"long questions wait":    {20, waiting(10, events.Question{QuestionNeutral: strings.Repeat("q", 20_000)})},
		"questions with messages and metadata wait": {20, waiting(10, events.Question{
			QuestionNeutral:  strings.Repeat("q", 5000),
			QuestionMessages: rawOf([]map[string]string{{"role": "user", "content": strings.Repeat("q", 5000)}}),
			Metadata:         rawOf(map[string]string{"page": strings.Repeat("m", 5000)}),
		})},
		"calls with keys": {50, addOften(100)},
		"descriptions":    {600, describeOften(6)},
		"summaries":       {100, summarizeOften(40)},
		"branches":        {60, branchOften(30)},
	} {
		t.Run(name, func(t *testing.T) {
			log := natstest.Log(t, 1)
			each := func(do func(ctx context.Context, id string) error) {
				g, ctx := errgroup.WithContext(t.Context())
				g.SetLimit(16)
				for i := range c.sessions {
					g.Go(func() error { return do(ctx, fmt.Sprintf("session-%08d", i)) })
				}
				require.NoError(t, g.Wait())
			}
			holds := func(how string, s *write.Service) {
				weight, _ := s.InMemory()
				with := settledHeap(t)
				s.DropAll()
				took := with - settledHeap(t)
				t.Logf("%s: weight %.2f, heap %.2f of the bound", how, float64(weight)/bound, took/bound)
				require.Greater(t, weight, uint64(bound*3/4), "%s: the bound is not reached", how)
				require.LessOrEqual(t, took, heapOfBound*bound, how)
				require.Greater(t, took, 0.4*bound, "%s: far less is held than there is room for", how)
			}
			live := runWith(t, log, write.Config{Policy: policy, StateBytes: bound})
			each(func(ctx context.Context, id string) error { return c.fill(ctx, live, id) })
			holds("live", live)
			read := runWith(t, log, write.Config{Policy: policy, StateBytes: bound})
			each(func(ctx context.Context, id string) error {
				_, err := read.LinkSession(ctx, id, "ada", "")
				return err
			})
			holds("read", read)
		})
	}
}

func rawOf(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// wholeTurns fills a session with turns whose requests have ids of a length.
func wholeTurns(turns, length int) func(context.Context, *write.Service, string) error {
	return func(ctx context.Context, s *write.Service, id string) (err error) {
		var all []decide.Start
		for i := range turns {
			all = append(all, wholeTurn(id, fmt.Sprintf("%0*d", length, i)))
		}
		for _, out := range s.StartTurns(ctx, all) {
			err = errors.Join(err, out.Err)
		}
		return err
	}
}

func waiting(turns int, q events.Question) func(context.Context, *write.Service, string) error {
	return func(ctx context.Context, s *write.Service, id string) error {
		for i := range turns {
			c := decide.Start{SessionID: id, RequestID: fmt.Sprint(i), Question: q}
			if _, err := s.StartTurn(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// addOften adds messages to one answer, by calls with keys.
func addOften(calls int) func(context.Context, *write.Service, string) error {
	return func(ctx context.Context, s *write.Service, id string) error {
		begins := decide.AddMessages{SessionID: id, RequestID: "begin", Now: time.Now()}
		_, err := s.BeginSession(ctx, services.NewSession{AddMessages: begins, Kind: events.KindConversation},
			services.Call{Body: "begin " + id})
		for n := 0; n < calls && err == nil; n++ {
			add := says(fmt.Sprint("r", n), "q", "a")
			if add.SessionID = id; n > 0 {
				add.Messages = add.Messages[1:]
			}
			_, err = s.AddMessages(ctx, add, services.Call{Key: fmt.Sprintf("%048x", n)})
		}
		return err
	}
}

func describeOften(times int) func(context.Context, *write.Service, string) error {
	return func(ctx context.Context, s *write.Service, id string) (err error) {
		for n := 0; n < times && err == nil; n++ {
			text := fmt.Sprint(id, n, strings.Repeat("x", 150))
			_, err = s.DescribeSession(ctx, decide.Describe{SessionID: id, RequestID: fmt.Sprint(n), Title: &text,
				Metadata: map[string]*string{"a": &text, "b": &text, fmt.Sprint(n): &text}})
		}
		return err
	}
}

func summarizeOften(times int) func(context.Context, *write.Service, string) error {
	return func(ctx context.Context, s *write.Service, id string) error {
		err := wholeTurns(times, 36)(ctx, s, id)
		for n := 0; n < times && err == nil; n++ {
			_, err = s.SummarizeSession(ctx, decide.Summarize{
				ThroughTurnID: events.TurnID(id, fmt.Sprintf("%036d", n)),
				Summary: events.SessionSummarized{SessionID: id, RequestID: fmt.Sprint(n),
					SummaryNeutral: "short",
				},
			})
		}
		return err
	}
}

func branchOften(times int) func(context.Context, *write.Service, string) error {
	return func(ctx context.Context, s *write.Service, id string) error {
		err := wholeTurns(1, 36)(ctx, s, id)
		for n := 0; n < times && err == nil; n++ {
			_, err = s.ForkSession(ctx, decide.ForkSession{SessionID: id, RequestID: fmt.Sprintf("%036d", n)})
		}
		return err
	}
}

// settledHeap returns what is live beside the NATS server, also once others have let go of what they hold for moments.
func settledHeap(t testing.TB) float64 {
	least := liveheap.Bytes()
	for range 5 {
		pause.For(t.Context(), 20*time.Millisecond)
		least = min(least, liveheap.Bytes())
	}
	return least
}
