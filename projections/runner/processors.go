package runner

import (
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

// Processors are those that the goroutines of this process wait for. The zero value is ready. Safe for
// concurrent use.
type Processors struct {
	mu     sync.Mutex
	looked time.Time
	before []uint64
	// taken is when they were taken last.
	taken time.Time
}

const (
	// takenFrom is how long one goroutine in ten waits at least where the processors are taken.
	takenFrom = 50 * time.Microsecond
	// takenEvery is the time between two looks at the waits.
	takenEvery = 250 * time.Millisecond
	// takenFor is how long the processors count as taken from then on: work comes in waves.
	takenFor = time.Second
)

// Taken reports whether the processors were taken within the last second.
func (p *Processors) Taken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.looked) >= takenEvery {
		p.looked = now
		waits := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
		metrics.Read(waits)
		h := waits[0].Value.Float64Histogram()
		if p.before != nil && exceededByATenth(h, p.before) >= takenFrom.Seconds() {
			p.taken = now
		}
		p.before = slices.Clone(h.Counts)
	}
	return now.Sub(p.taken) < takenFor
}

// exceededByATenth returns a value that a tenth exceeds of what a histogram has counted since it had the counts before.
func exceededByATenth(h *metrics.Float64Histogram, before []uint64) float64 {
	all := uint64(0)
	for i := range h.Counts {
		all += h.Counts[i] - before[i]
	}
	above := uint64(0)
	for i := len(h.Counts) - 1; i > 0; i-- {
		if above += h.Counts[i] - before[i]; 10*above >= all && all > 0 {
			return h.Buckets[i]
		}
	}
	return 0
}
