package runner

import "time"

// rateSeconds is the number of seconds over which a rate is measured.
const rateSeconds = 10

// rate counts events in the seconds in which they were applied. The zero rate is 0.
type rate struct {
	counts [rateSeconds]int
	last   int64
}

// add counts n events at a time.
func (r *rate) add(n int, now time.Time) {
	r.roll(now)
	r.counts[r.last%rateSeconds] += n
}

// perSecond returns the mean over the last ten seconds, including the current one.
func (r *rate) perSecond(now time.Time) float64 {
	r.roll(now)
	sum := 0
	for _, n := range r.counts {
		sum += n
	}
	return float64(sum) / rateSeconds
}

// roll clears the counters of seconds that have begun since the last call. It ignores a clock that goes back.
func (r *rate) roll(now time.Time) {
	second := now.Unix()
	for passed := min(second-r.last, rateSeconds); passed > 0; passed-- {
		r.counts[(second-passed+1)%rateSeconds] = 0
	}
	r.last = max(r.last, second)
}
