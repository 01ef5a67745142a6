package eraser_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// owned is an identity of the benchmark: the first turns of its sessions stand near the
// beginning of the log, the last ones near its end.
type owned struct {
	identity string
	turns    int
	rate     float64
}

const turnsOfASession = 20

// BenchmarkEraseIdentity erases identities at several rates while eight writers record
// 200 facts a second, and gives the writers' latencies: of all the time, and of its first
// ten seconds, when the server has the blocks not in memory yet. Each session is spread over the
// whole log, the worst case for blocks of 8 MB. The last one, at the default rate, is
// stopped half way and goes on. TURNLEDGER_TORTURE=1 is the full size: 10,000 turns in
// a log of a million events.
func BenchmarkEraseIdentity(b *testing.B) {
	size, seconds, turns := 500_000, 10.0, 200
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		size, seconds, turns = 1_000_000, 20.0, 10_000
	}
	var all []owned
	for _, rate := range []float64{10, 20, 25, 40, 1000} {
		n := max(turnsOfASession, int(min(rate, 120)*seconds/2))
		all = append(all, owned{identity: fmt.Sprint("at ", rate), turns: n, rate: rate})
	}
	all = append(all, owned{identity: "at the default", turns: turns})
	w := newWorld(b, 1)
	w.spread(all, size)
	var calm time.Duration
	b.Run("none", func(b *testing.B) {
		load := w.writers()
		<-time.After(time.Duration(seconds * float64(time.Second)))
		calm = load(b)
	})
	for _, o := range all {
		b.Run(fmt.Sprintf("%s/turns=%d/log=%d", strings.ReplaceAll(o.identity, " ", "-"), o.turns, size),
			func(b *testing.B) {
				first := w.eraseOne(b, o)
				b.ReportMetric(float64(first)/float64(calm), "times-none")
			})
	}
}

// spread fills the log.
func (w *world) spread(all []owned, size int) {
	w.Helper()
	var g errgroup.Group
	g.SetLimit(64)
	add := func(facts ...events.Fact) {
		g.Go(func() error {
			for _, f := range facts {
				if _, err := w.log.Append(w.Context(), jetlog.Append{Facts: []events.Fact{f}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	given := make([]int, len(all))
	for i := range size / 2 {
		session, request := fmt.Sprint("other-", i/10), fmt.Sprint("r", i)
		for k, o := range all {
			// As many of each as there should be by now.
			if given[k] < o.turns && given[k] < o.turns*(i+100)/(size/2) {
				n := max(1, o.turns/turnsOfASession)
				session = fmt.Sprintf("%s-%d", o.identity, given[k]%n)
				if given[k] < n {
					add(&events.SessionLinked{SessionID: session, IdentityID: o.identity})
				}
				given[k]++
				break
			}
		}
		id := events.TurnID(session, request)
		add(&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: benchText}},
			&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: benchText}})
	}
	require.NoError(w, g.Wait())
	head := must.Get(w.log.Head(w.Context(), 0))(w)
	require.NoError(w, w.log.Durable(w.Context(), head))
}

var benchText = strings.Repeat("The quick brown fox. ", 10)

// writers record turns at a steady pace until the result is called, which reports how
// long each fact took from the moment it was due, and gives the p99 of the beginning.
func (w *world) writers() (stop func(b *testing.B) time.Duration) {
	ctx, cancel := context.WithCancel(w.Context())
	var mu sync.Mutex
	var took, first []time.Duration
	var g errgroup.Group
	began := time.Now()
	run := fmt.Sprint(time.Now().UnixNano())
	for n := range 8 {
		g.Go(func() error {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return nil
				case due := <-tick.C:
					if err := w.record(fmt.Sprint("live-", run, n, i/20), i); err != nil {
						return err
					}
					mu.Lock()
					took = append(took, time.Since(due))
					if due.Sub(began) < beginning {
						first = append(first, time.Since(due))
					}
					mu.Unlock()
				}
			}
		})
	}
	return func(b *testing.B) time.Duration {
		b.Helper()
		cancel()
		require.NoError(b, g.Wait())
		report(b, "write", took)
		report(b, "first", first)
		b.ReportMetric(0, "ns/op")
		return first[int(0.99*float64(len(first)-1))]
	}
}

const beginning = 10 * time.Second

func report(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	for name, p := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
		b.ReportMetric(float64(took[int(p*float64(len(took)-1))].Microseconds())/1000, what+"-"+name+"-ms")
	}
}

// timed is a log that tells how long it takes to overwrite an event.
type timed struct {
	Log
	mu   sync.Mutex
	took []time.Duration
}

func (l *timed) Erase(ctx context.Context, at events.Position) (bool, error) {
	began := time.Now()
	found, err := l.Log.Erase(ctx, at)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(began))
	return found, err
}

// record writes the start of a turn where i is even, else its answer.
func (w *world) record(session string, i int) error {
	request := fmt.Sprint("r", i/2)
	if i%2 == 0 {
		_, err := w.history.StartTurn(w.Context(), decide.Start{SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: benchText}})
		return err
	}
	_, err := w.history.FinalizeTurn(w.Context(), decide.Finalize{SessionID: session,
		TurnID: events.TurnID(session, request), Answer: events.Answer{AnswerNeutral: benchText}})
	return err
}

// eraseOne erases an identity, and stops the eraser once on the way. It gives the p99 of
// the writes of the first ten seconds.
func (w *world) eraseOne(b *testing.B, o owned) time.Duration {
	log := &timed{Log: inOnePiece(w.log)}
	stop := w.erase(log, eraser.Config{Rate: o.rate})
	defer func() { stop() }()
	// The eraser has seen the log when it has done something behind its end.
	w.redact("seen "+o.identity, w.turn("seen "+o.identity, "r1", "text"))
	hang.Until(b, func() bool { return len(w.types("seen "+o.identity)) == 1 })
	head := must.Get(w.log.Head(b.Context(), 0))(b)
	require.NoError(b, w.owners.Reached(b.Context(), head))
	load := w.writers()
	b.ResetTimer()
	began := time.Now()
	id := must.Get(w.history.EraseIdentity(b.Context(), o.identity, services.Erasure{Reason: "bench"}))(b)
	receipts := w.receipts()
	var got services.Receipt
	var err error
	said, halfway := time.Time{}, false
	for poll := time.NewTicker(100 * time.Millisecond); ; {
		<-poll.C
		if got, err = receipts.Receipt(b.Context(), id); err != nil || got.Complete() {
			poll.Stop()
			break
		}
		p := got.Progress
		if p == nil || p.Sessions == 0 {
			continue
		}
		if time.Since(said) > 10*time.Second && p.SessionsDone > 0 {
			said = time.Now()
			left := time.Since(p.Began) * time.Duration(p.Sessions-p.SessionsDone) / time.Duration(p.SessionsDone)
			b.Logf("%s: %d of %d sessions after %s, %s to go", o.identity, p.SessionsDone, p.Sessions,
				time.Since(began).Round(time.Second), left.Round(time.Second))
		}
		if !halfway && p.SessionsDone >= p.Sessions/2 && p.SessionsDone > 0 {
			halfway = true
			stop()
			stop = w.erase(log, eraser.Config{Rate: o.rate})
		}
	}
	require.NoError(b, err)
	took := time.Since(began).Seconds()
	require.Equal(b, 2*o.turns, *got.Places[0].Erased)
	b.ReportMetric(took, "s")
	b.ReportMetric(float64(2*o.turns)/took, "events/s")
	report(b, "overwrite", log.took)
	return load(b)
}
