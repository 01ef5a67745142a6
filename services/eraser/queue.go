package eraser

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events"
)

// job is the work that one event asks for. It may be run again after it failed anywhere.
type job struct {
	session string
	// subject of the event, set if the event itself may have to go.
	subject string
	// otherSubject: subject is not that of the session.
	otherSubject bool
	at           events.Position
	run          task
	// forgotten is called once, when the log holds nothing more of what the job erases; nil for a job that only waits.
	forgotten func()
	// done is called once, when nothing is left of the job.
	done func()

	// together: jobs of one session are run as one, so that a long session with many redactions is read once. also
	// holds the other jobs.
	together bool
	also     []*job

	attempts  int
	notBefore time.Time
}

// task is what a job does; what the next job need not wait for is the remainder.
type task func(ctx context.Context, j *job) (remainder, error)

// positions returns the positions of the job and of the jobs that are run with it.
func (j *job) positions() []events.Position {
	out := []events.Position{j.at}
	for _, other := range j.also {
		out = append(out, other.at)
	}
	return out
}

// forget notes that the log holds nothing more of what the job, and the jobs that were run with it, erase.
func (j *job) forget() {
	for _, one := range append([]*job{j}, j.also...) {
		if one.forgotten != nil {
			one.forgotten()
		}
	}
}

// end notes that the job and the jobs that were run with it are done.
func (j *job) end() {
	j.done()
	for _, other := range j.also {
		other.done()
	}
}

// remainder is the part of a job that the next job need not wait for: every view has to reach some positions, and then
// after is called, if it is set.
type remainder struct {
	// prove, if it is set, is called until it succeeds, before the views count.
	prove func(context.Context) error
	open  []awaited
	after func(context.Context) error
}

// awaited is a position that a view has to reach, and the function that records that it has.
type awaited struct {
	at    []events.Position
	write func(ctx context.Context, place string) error
}

// await has the rest of a job done: first it is proved, and then each stamper waits for its view. When all have
// finished, the job ends. await itself does not block.
func (e *Eraser) await(ctx context.Context, of *job, left remainder, end func()) {
	if prove := left.prove; prove != nil {
		left.prove = nil
		run := func(ctx context.Context, _ *job) (remainder, error) { return left, prove(ctx) }
		e.proofs.push(&job{session: of.session, at: of.at, run: run, done: end})
		return
	}
	finish := func() {
		if left.after != nil {
			_ = left.after(ctx) // it only drops a note that repeats the receipts
		}
		end()
	}
	var open atomic.Int64
	open.Store(int64(len(left.open) * len(e.stampers)))
	if open.Load() == 0 {
		finish()
	}
	for _, x := range left.open {
		for _, s := range e.stampers {
			s.push(&job{
				run: func(ctx context.Context, _ *job) (remainder, error) {
					write := func() error { return x.write(ctx, s.place.Name()) }
					return remainder{}, e.reachPlace(ctx, s.place, x.at, write)
				},
				done: func() {
					if open.Add(-1) == 0 {
						finish()
					}
				},
			})
		}
	}
}

// queue holds jobs in order. A job that failed waits for a while, and other jobs run before it.
type queue struct {
	workers int
	signal  chan struct{}

	mu   sync.Mutex
	jobs []*job
}

func newQueue(workers int) *queue { return &queue{workers: workers, signal: make(chan struct{}, 1)} }

// enqueue adds a job of a partition, unless the same job is queued or running already.
func (q *queue) enqueue(p *part, j *job) {
	if p.begin(j.at.Seq) {
		j.forgotten, j.done = func() { p.forget(j.at.Seq) }, func() { p.end(j.at.Seq) }
		q.push(j)
	}
}

func (q *queue) push(j *job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.mu.Unlock()
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// next takes the first job that may be run. If there is none, next returns how long to wait before the next look.
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
		if len(q.jobs) > 0 {
			q.wake() // another worker
		}
		return j, 0
	}
	return nil, wait
}

// longestPause bounds the pause before a failed job is tried again.
const longestPause = 30 * time.Second

// work runs the jobs until ctx ends. Each of the queue's workers calls it.
func (q *queue) work(ctx context.Context, e *Eraser) {
	for ctx.Err() == nil {
		j, wait := q.next(time.Now())
		if j == nil {
			select {
			case <-ctx.Done():
			case <-q.signal:
			case <-time.After(wait):
			}
			continue
		}
		left, err := j.run(ctx, j)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			j.attempts++
			j.notBefore = time.Now().Add(min(time.Duration(j.attempts)*500*time.Millisecond, longestPause))
			e.cfg.Logger.Warn("an erasure is tried again",
				"session_id", j.session, "position", j.at, "attempt", j.attempts, "err", err)
			q.push(j)
		default:
			j.forget()
			e.await(ctx, j, left, j.end)
		}
	}
}
