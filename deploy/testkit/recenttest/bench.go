package recenttest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// BenchmarkLoad measures reads: of windows, of long sessions, and among many sessions. It reports the mean and the 99th
// percentile.
func BenchmarkLoad(b *testing.B, open Open, many ...int) {
	for _, c := range []struct{ turns, shown int }{{20, 20}, {200, 20}, {200, 200}, {5000, 20}, {5000, 200}} {
		b.Run(fmt.Sprintf("turns=%d/shown=%d", c.turns, c.shown), func(b *testing.B) {
			loads(b, open, Traffic{Sessions: 10, Turns: c.turns}, c.shown)
		})
	}
	for _, n := range many {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			loads(b, open, Traffic{Sessions: n, Turns: 1}, 20)
		})
	}
}

func loads(b *testing.B, open Open, tr Traffic, shown int) {
	view := open(b, recent.Limits{}, rules)
	tr.Feed(b, view)
	took := make([]time.Duration, 0, 1<<20)
	ids := make([]string, min(tr.Sessions, 1<<16))
	for i := range ids {
		ids[i] = tr.SessionID(i * 7919 % tr.Sessions)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		snap, err := view.Load(b.Context(), ids[i%len(ids)], 0, shown)
		took = append(took, time.Since(began))
		if err != nil || snap.State == nil {
			b.Fatal("no snapshot", err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns/op")
}

// BenchmarkApply measures batches of new turns.
func BenchmarkApply(b *testing.B, open Open) {
	for _, c := range []struct{ batch, turns int }{{1, 20}, {500, 20}, {500, 1}, {2000, 20}} {
		b.Run(fmt.Sprintf("batch=%d/turns=%d", c.batch, c.turns), func(b *testing.B) {
			// Each list of batches can be applied to a view only once: a second time it would be old.
			tr := Traffic{Sessions: max(c.batch*5/c.turns, 25), Turns: c.turns, Batch: c.batch}
			var batches []projections.Batch
			var view View
			applied := 0
			for i := 0; b.Loop(); i++ {
				if i%max(len(batches), 1) == 0 {
					b.StopTimer()
					view = open(b, recent.Limits{}, rules)
					at := must.Get(view.Claim(b.Context(), 0))(b)
					batches = tr.Batches(at)
					b.StartTimer()
				}
				batch := batches[i%len(batches)]
				if err := view.Apply(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				applied += len(batch.Events)
			}
			b.ReportMetric(float64(applied)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
