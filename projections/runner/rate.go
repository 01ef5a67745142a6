package runner

import "time"

// rateSeconds is over how many seconds a rate is taken.
const rateSeconds = 10

// rate counts events in the seconds in which they were applied. The zero rate is 0.
type rate struct {
	counts [rateSeconds]int
	last   int64
}

// add counts n events at a time.
func (r *rate) add(n int, now time.Time) {
	r.turn(now)
	r.counts[r.last%rateSeconds] += n
}

// perSecond is the mean over the last ten seconds, the one under way included.
func (r *rate) perSecond(now time.Time) float64 {
	r.turn(now)
	sum := 0
	for _, n := range r.counts {
		sum += n
	}
	return float64(sum) / rateSeconds
}

// turn empties the seconds that have begun since. A clock that goes back counts as none.
func (r *rate) turn(now time.Time) {
	second := now.Unix()
	for passed := min(second-r.last, rateSeconds); passed > 0; passed-- {
		r.counts[(second-passed+1)%rateSeconds] = 0
	}
	r.last = max(r.last, second)
}
