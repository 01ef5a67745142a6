package eraser

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
)

// job is what one event asks for. It may be run again after any part of it.
type job struct {
	session string
	// subject of the event, where that itself may have to go.
	subject string
	// elsewhere: that is no subject of the session.
	elsewhere bool
	at        events.Position
	run       func(ctx context.Context, j *job) (rest, error)
	part      *part

	// together: jobs of one session are run as one, so that a long session of which much
	// was redacted is read once. Also holds the other ones.
	together bool
	also     []*job

	attempts  int
	notBefore time.Time
}

// rest is what is left of a job when others may go on: it sees to it that end is called,
// and does not wait. Nil where nothing is left.
type rest func(ctx context.Context, end func(context.Context))

// places are the positions of the job and of those that go with it.
func (j *job) places() []events.Position {
	out := []events.Position{j.at}
	for _, other := range j.also {
		out = append(out, other.at)
	}
	return out
}

// end notes that the job, with those that went with it, is done.
func (j *job) end() {
	j.part.end(j.at.Seq)
	for _, other := range j.also {
		other.part.end(other.at.Seq)
	}
}

// queue is jobs in order; one that failed lets the others go first for a while.
type queue struct {
	mu     sync.Mutex
	jobs   []*job
	signal chan struct{}
}

// enqueue adds a job, unless it is in hand already.
func (e *Eraser) enqueue(q *queue, p *part, j *job) {
	if !p.begin(j.at.Seq) {
		return
	}
	j.part = p
	q.push(j)
}

func (q *queue) push(j *job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// next takes the first job that may be run; where there is none, it tells when to look
// again.
func (q *queue) next(now time.Time) (*job, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := time.Minute
	for i, j := range q.jobs {
		if left := j.notBefore.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		q.jobs = slices.Delete(q.jobs, i, i+1)
		if j.together {
			q.jobs = slices.DeleteFunc(q.jobs, func(other *job) bool {
				same := other.together && other.session == j.session && other.notBefore.Before(now)
				if same {
					j.also = append(append(j.also, other), other.also...)
					other.also = nil
				}
				return same
			})
		}
		return j, 0
	}
	return nil, wait
}

// longestPause before a job that failed is tried again.
const longestPause = 30 * time.Second

// work runs the jobs until ctx ends.
func (q *queue) work(ctx context.Context, e *Eraser) error {
	for {
		j, wait := q.next(time.Now())
		if j == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-q.signal:
			case <-time.After(wait):
			}
			continue
		}
		rest, err := j.run(ctx, j)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			j.attempts++
			j.notBefore = time.Now().Add(min(time.Duration(j.attempts)*500*time.Millisecond, longestPause))
			e.cfg.Logger.Warn("an erasure is tried again", "session_id", j.session, "position", j.at, "attempt", j.attempts, "err", err)
			q.push(j)
		case rest != nil:
			rest(ctx, func(context.Context) { j.end() })
		default:
			j.end()
		}
	}
}

// leave lets Run wait for something.
func (e *Eraser) leave(wait func(context.Context) error) {
	e.leaving.Lock()
	e.left = append(e.left, wait)
	e.leaving.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// taken gives what was left since the last call.
func (e *Eraser) taken() []func(context.Context) error {
	e.leaving.Lock()
	defer e.leaving.Unlock()
	left := e.left
	e.left = nil
	return left
}
