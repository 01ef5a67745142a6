package projections

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// SessionReader reads a session's events after a sequence and up to another, and returns the log's number of
// partitions.
type SessionReader interface {
	Partitions() int
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
}

// Judge folds the events of one partition, in order, and returns a verdict for each. It keeps the slim states of
// sessions that are active, bounded by bytes; a session that it does not hold is read from the log up to the event. Not
// safe for concurrent use.
type Judge struct {
	log   SessionReader
	rules conversation.Rules
	// states drops the session that was silent longest: a session's next event mostly comes soon.
	states *simplelru.LRU[string, held]
	bytes  int
	// seen holds all sessions since the log's beginning, and perhaps others, so that one
	// that is not in it is new and need not be asked for. Nil where the judge began later.
	seen *bloom.BloomFilter
}

// held is a session's state, with the recorded time of its last event.
type held struct {
	*conversation.State
	last time.Time
}

const (
	// judgeBytes bounds the states that a judge holds.
	judgeBytes = 32 << 20
	// judgeSessions is how many sessions of a log a filter of 2.4 MB distinguishes from new ones; the log's partitions
	// share these bytes. The log is then asked in vain for one new session in a hundred, and for more of them if there
	// are more sessions.
	judgeSessions = 2_000_000
	// leastSessions is the least number of sessions that the filter of one partition is made for, however many
	// partitions there are.
	leastSessions = 50_000
)

// NewJudge makes the judge of a partition that has been applied up to a sequence.
func NewJudge(log SessionReader, rules conversation.Rules, applied uint64) *Judge {
	rules.Slim = true
	j := &Judge{log: log, rules: rules}
	if applied == 0 {
		j.seen = bloom.NewWithEstimates(max(judgeSessions/uint(log.Partitions()), leastSessions), 0.01)
	}
	var err error
	j.states, err = simplelru.NewLRU(judgeBytes/leastWeight, func(_ string, s held) { j.bytes -= weight(s.State) })
	if err != nil {
		panic(err) // the size is a constant
	}
	return j
}

// leastWeight is that of a session without turns.
const leastWeight = 512

// weight estimates the bytes of a slim state.
func weight(s *conversation.State) int { return leastWeight + 320*len(s.Turns) }

// hold makes a state the one that was active last, and lets the oldest go where there
// is no room. Its weight was taken off before it was folded on.
func (j *Judge) hold(s *conversation.State, last time.Time) {
	j.states.Add(s.SessionID, held{s, last})
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
		s = conversation.New(e.SessionID, j.rules)
		if j.seen == nil || j.seen.TestOrAddString(e.SessionID) {
			var err error
			s, err = conversation.Folded(s.SessionID, j.rules, j.log.Session(ctx, s.SessionID, 0, e.Position.Seq-1))
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

// mayBePurged reports whether retention may have taken a session out of the log since its last event: only if the
// session was silent for its life. The judge then reads the session again, so that it judges the next event as a later
// fold of the log will.
func (j *Judge) mayBePurged(h held, now time.Time) bool {
	return j.rules.SessionTTL > 0 && now.Sub(h.last) > j.rules.SessionTTL
}

// Forget drops what was folded of a batch that could not be applied; its sessions
// are read from the log again.
func (j *Judge) Forget(batch []Judged) {
	for _, e := range batch {
		j.states.Remove(e.SessionID)
	}
}

// judgeForeign judges what is on no session's subject.
func judgeForeign(e events.Recorded) Judged {
	if e.Fact == nil {
		return Judged{Recorded: e, Change: conversation.Change{Kind: conversation.Anomaly, Reason: e.Problem}}
	}
	return Judged{Recorded: e, Change: conversation.Change{Kind: conversation.Noted}}
}

// ownCopies replaces the turns of a change by copies that later events don't change, and fills in the text that the
// event brought.
func (j *Judge) ownCopies(c conversation.Change, f events.Fact) conversation.Change {
	if c.Turn != nil {
		t := *c.Turn
		j.rules.Fill(&t, f)
		c.Turn = &t
	}
	if len(c.Turns) > 0 {
		own := make([]*conversation.Turn, len(c.Turns))
		for i, t := range c.Turns {
			u := *t
			own[i] = &u
		}
		c.Turns = own
	}
	return c
}
