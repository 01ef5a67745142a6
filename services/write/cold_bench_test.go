package write_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/follower"
	"github.com/turnledger/turnledger/services/write"
)

const (
	coldSessions = 1000
	coldTurns    = 20
	warmWriters  = 16
)

// BenchmarkBesideCold measures the writes to warm sessions while another publisher touches 1,000 sessions that the
// views must read from the log, and sets their p99 against the quiet p99, and against the p99 beside a publisher of as
// many new sessions, which nobody reads.
func BenchmarkBesideCold(b *testing.B) {
	server := natstest.Server(b)
	log := natstest.LogOn(b, server, 1)
	outside := natstest.LogOn(b, server, 1)
	fillCold(b, outside)
	f := follower.New(log, follower.Config{
		Rules: session.Rules{SessionTTL: 24 * time.Hour},
		Loads: 1, PauseFactor: 2, Sessions: jetlog.Slowly{Log: log}, // as with an embedded server
	})
	s := write.New(write.On(log), write.Config{
		Policy: policy, Rules: session.Rules{SessionTTL: 24 * time.Hour}, Follower: f,
	})
	natstest.Run(b, s.Run)
	natstest.Run(b, f.Run)
	var quiet, fresh, cold []time.Duration
	for round := range b.N {
		for _, phase := range []struct {
			into  *[]time.Duration
			touch string
		}{{&quiet, ""}, {&fresh, fmt.Sprint("new", round, "-")}, {&cold, "cold"}} {
			head := must.Get(log.Head(b.Context(), 0))(b)
			// A view that begins here knows no session.
			view := f.Judged(0, head.Seq, 2000)
			*phase.into = append(*phase.into, besides(b, s, func() {
				touched(b, outside, view, phase.touch, fmt.Sprint("again", round))
			})...)
			view.Close()
		}
	}
	report := func(name string, took []time.Duration) float64 {
		slices.Sort(took)
		p99 := float64(took[len(took)*99/100].Microseconds())
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), name+"-p50-µs")
		b.ReportMetric(p99, name+"-p99-µs")
		return p99
	}
	at := report("quiet", quiet)
	besideNew, besideCold := report("new", fresh), report("cold", cold)
	b.ReportMetric(besideNew/at, "x_quiet_new")
	b.ReportMetric(besideCold/at, "x_quiet_cold")
	b.ReportMetric(0, "ns/op")
}

// fillCold writes the sessions, the events of each far apart.
func fillCold(b *testing.B, log *jetlog.Log) {
	b.Helper()
	for turn := range coldTurns {
		var writing sync.WaitGroup
		var next atomic.Int64
		for range 64 {
			writing.Go(func() {
				for i := next.Add(1); i <= coldSessions; i = next.Add(1) {
					start, final := bareTurn(fmt.Sprint("cold", i), fmt.Sprint("r", turn))
					for _, fact := range []events.Fact{start, final} {
						if _, err := log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{fact}}); err != nil {
							b.Error(err)
						}
					}
				}
			})
		}
		writing.Wait()
	}
}

// besides has writers record turns in sessions of theirs while something goes on, for a second at least, and returns
// how long each write took.
func besides(b *testing.B, s *write.Service, meanwhile func()) (took []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var writers sync.WaitGroup
	all := make([][]time.Duration, warmWriters)
	run := time.Now().UnixNano()
	for w := range warmWriters {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				_, err := s.StartTurn(b.Context(), decide.Start{
					SessionID: fmt.Sprint("warm", run, w), RequestID: fmt.Sprint(i), Question: question(),
				})
				if err != nil {
					b.Error(err)
					return
				}
				if i > 0 {
					all[w] = append(all[w], time.Since(began))
				}
			}
		})
	}
	least := time.NewTimer(2 * time.Second)
	meanwhile()
	<-least.C
	cancel()
	writers.Wait()
	return slices.Concat(all...)
}

// touched publishes an event to each of the sessions of a name, and waits until a view has all their verdicts.
func touched(
	b *testing.B, log *jetlog.Log, view *follower.Subscription[projections.Judged], sessions, request string,
) {
	b.Helper()
	if sessions == "" {
		return
	}
	var last events.Position
	for i := range coldSessions {
		start, _ := bareTurn(fmt.Sprint(sessions, i+1), request)
		ack := must.Get(log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{start}}))(b)
		last = ack.Position
	}
	for at := uint64(0); at < last.Seq; {
		batch := must.Get(view.Next(b.Context()))(b)
		at = batch[len(batch)-1].Position.Seq
	}
}
