package projections

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// SessionReader reads a session's events after one sequence up to another, and returns the log's number of partitions.
type SessionReader interface {
	Partitions() int
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
}

// Judge folds the events of one partition, in order, and returns a verdict for each. It keeps slim states of active
// sessions, bounded by bytes; it reads any other session from the log up to the event. Not safe for concurrent use.
type Judge struct {
	log   SessionReader
	rules session.Rules
	// states drops the session that was silent for longest, since a session's next event mostly comes soon.
	states *simplelru.LRU[string, cachedState]
	bytes  int
	// seen holds all sessions since the log's beginning, and by the nature of a Bloom filter perhaps others. A session
	// that it does not hold is new, and need not be read from the log. It is nil if the judge began later.
	seen *bloom.BloomFilter
}

// cachedState is a session's state, with the recorded time of its last event.
type cachedState struct {
	*session.State
	last time.Time
}

const (
	// judgeBytes bounds the states that a judge holds.
	judgeBytes = 32 << 20
	// judgeSessions is the number of sessions for which the filters of all partitions together are made, at 2.4 MB.
	// With that many sessions, the log is read in vain for one new session in a hundred, and more often with more
	// sessions.
	judgeSessions = 2_000_000
	// leastSessions is the least number of sessions for which one partition's filter is made, however many partitions
	// there are.
	leastSessions = 50_000
)

// NewJudge makes the judge of a partition that has been applied up to a sequence.
func NewJudge(log SessionReader, rules session.Rules, applied uint64) *Judge {
	rules.Slim = true
	j := &Judge{log: log, rules: rules}
	if applied == 0 {
		j.seen = bloom.NewWithEstimates(max(judgeSessions/uint(log.Partitions()), leastSessions), 0.01)
	}
	var err error
	forget := func(_ string, s cachedState) { j.bytes -= weight(s.State) }
	j.states, err = simplelru.NewLRU(judgeBytes/leastWeight, forget)
	if err != nil {
		panic(err) // the size is a constant
	}
	return j
}

// leastWeight is the weight of a session without turns.
const leastWeight = 512

// weight estimates the bytes of a slim state.
func weight(s *session.State) int { return leastWeight + s.Size() }

// hold makes a state the most recently active one, and drops the oldest states if there is no room. The caller has
// subtracted the state's weight before it folded on.
func (j *Judge) hold(s *session.State, last time.Time) {
	j.states.Add(s.SessionID, cachedState{s, last})
	j.bytes += weight(s)
	for j.bytes > judgeBytes && j.states.Len() > 1 {
		j.states.RemoveOldest()
	}
}

// Judge returns the verdict on the next event of the partition.
func (j *Judge) Judge(ctx context.Context, e events.Recorded) (Judged, error) {
	if e.SessionID == "" {
		return judgeForeign(e), nil
	}
	h, ok := j.states.Get(e.SessionID)
	if ok && j.mayBePurged(h, e.Time) {
		j.states.Remove(e.SessionID)
		ok = false
	}
	s := h.State
	if ok {
		j.bytes -= weight(s)
	} else {
		s = session.New(e.SessionID, j.rules)
		if j.seen == nil || j.seen.TestOrAddString(e.SessionID) {
			var err error
			s, err = session.Folded(s.SessionID, j.rules, j.log.Session(ctx, s.SessionID, 0, e.Position.Seq-1))
			if err != nil {
				return Judged{}, fmt.Errorf("hydrate a session: %w", err)
			}
		}
	}
	first := !s.Found()
	c := s.Fold(e)
	j.hold(s, e.Time)
	return Judged{Recorded: e, Change: j.ownCopies(c, e.Fact), Head: s.Head(), First: first && s.Found()}, nil
}

// Load reads from the log the sessions of events that come next and that the judge does not hold. Judge would read them
// too, one after the other; Load calls each for one read, in a goroutine of its own, and waits for all. Each may wait
// until the log is to be bothered.
func (j *Judge) Load(
	ctx context.Context, next iter.Seq[*events.Recorded], each func(context.Context, func() error) error,
) error {
	loads := j.needed(next)
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range loads {
		id := l.e.SessionID
		g.Go(func() error {
			return each(ctx, func() (err error) {
				l.state, err = session.Folded(id, j.rules, j.log.Session(ctx, id, 0, l.e.Position.Seq-1))
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("hydrate sessions: %w", err)
	}
	for _, l := range loads {
		j.states.Remove(l.e.SessionID)
		j.hold(l.state, l.e.Time)
	}
	return nil
}

// needed returns the loads of the sessions that the judge needs for some events and does not hold.
func (j *Judge) needed(next iter.Seq[*events.Recorded]) (loads []*load) {
	known := map[string]bool{}
	for e := range next {
		if e.SessionID == "" || known[e.SessionID] {
			continue
		}
		known[e.SessionID] = true
		h, held := j.states.Peek(e.SessionID)
		if held && !j.mayBePurged(h, e.Time) || !held && j.seen != nil && !j.seen.TestString(e.SessionID) {
			continue
		}
		if loads = append(loads, &load{e: e}); len(loads) == mostLoads {
			break
		}
	}
	return loads
}

// mostLoads bounds the sessions that one Load reads.
const mostLoads = 1000

// load is the load of the session of an event.
type load struct {
	e     *events.Recorded
	state *session.State
}

// Bytes estimates what the judge holds in memory.
func (j *Judge) Bytes() int { return j.bytes }

// Shed lets the sessions go that were silent longest, until so many bytes are free. It returns what it freed.
func (j *Judge) Shed(bytes int) int {
	before := j.bytes
	for before-j.bytes < bytes && j.states.Len() > 0 {
		j.states.RemoveOldest()
	}
	return before - j.bytes
}

// mayBePurged reports whether retention may have removed the session since its last event, which it does only after the
// session was silent for its TTL. The judge then reads the session again, so that it judges the next event as a later
// fold of the log will.
func (j *Judge) mayBePurged(h cachedState, now time.Time) bool {
	return j.rules.SessionTTL > 0 && now.Sub(h.last) > j.rules.SessionTTL
}

// Forget drops the states of a batch that could not be applied. Its sessions are read from the log again.
func (j *Judge) Forget(batch []Judged) {
	for _, e := range batch {
		j.states.Remove(e.SessionID)
	}
}

// judgeForeign judges an event that is on no session's subject.
func judgeForeign(e events.Recorded) Judged {
	if e.Fact == nil {
		return Judged{Recorded: e, Change: session.Change{Kind: session.Anomaly, Reason: e.Problem}}
	}
	return Judged{Recorded: e, Change: session.Change{Kind: session.Noted}}
}

// ownCopies replaces the turns of a change by copies that later events don't change, and fills in the text that the
// event brought.
func (j *Judge) ownCopies(c session.Change, f events.Fact) session.Change {
	if c.Turn != nil {
		t := *c.Turn
		j.rules.Fill(&t, f)
		c.Turn = &t
	}
	if len(c.Turns) > 0 {
		own := make([]*session.Turn, len(c.Turns))
		for i, t := range c.Turns {
			u := *t
			own[i] = &u
		}
		c.Turns = own
	}
	return c
}
