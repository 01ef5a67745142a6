package projections

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// SessionReader reads a session's events after a sequence and up to another.
type SessionReader interface {
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
}

// Judge folds the events of one partition, in order, and gives each its verdict.
// It keeps the slim states of sessions that are active, bounded by bytes; a session
// that it does not hold is read from the log up to the event. Not safe for
// concurrent use.
type Judge struct {
	log    SessionReader
	rules  conversation.Rules
	states *otter.Cache[string, *conversation.State]
	// whole: every session since the log's beginning is held, so that an unknown one
	// is new and need not be asked for.
	whole atomic.Bool
}

// judgeBytes bounds the states that a judge holds.
const judgeBytes = 64 << 20

// NewJudge makes the judge of a partition that has been applied up to a sequence.
func NewJudge(log SessionReader, rules conversation.Rules, applied uint64) *Judge {
	rules.Slim = true
	j := &Judge{log: log, rules: rules}
	j.whole.Store(applied == 0)
	j.states = otter.Must(&otter.Options[string, *conversation.State]{
		MaximumWeight: judgeBytes,
		// Maintenance in place: a goroutine for each Set costs more than the fold.
		Executor: func(work func()) { work() },
		Weigher:  func(_ string, s *conversation.State) uint32 { return weight(s) },
		OnDeletion: func(e otter.DeletionEvent[string, *conversation.State]) {
			if e.WasEvicted() {
				j.whole.Store(false)
			}
		},
	})
	return j
}

// weight estimates the bytes of a slim state.
func weight(s *conversation.State) uint32 {
	return uint32(512 + 320*len(s.Turns)) //nolint:gosec // a session has far fewer than 2^32/320 turns
}

// Judge gives the verdict on the next event of the partition.
func (j *Judge) Judge(ctx context.Context, e events.Recorded) (Judged, error) {
	if e.SessionID == "" {
		return judgeForeign(e), nil
	}
	s, ok := j.states.GetIfPresent(e.SessionID)
	if !ok {
		s = conversation.New(e.SessionID, j.rules)
		if !j.whole.Load() {
			if err := j.hydrate(ctx, s, e.Position.Seq-1); err != nil {
				return Judged{}, err
			}
		}
	}
	first := !s.Found()
	c := s.Fold(e)
	j.states.Set(e.SessionID, s)
	return Judged{Recorded: e, Change: ownCopies(c, e.Fact), Head: s.Head(), First: first && s.Found()}, nil
}

// Forget drops what was folded of a batch that could not be applied; its sessions
// are read from the log again.
func (j *Judge) Forget(batch []Judged) {
	j.whole.Store(false)
	for _, e := range batch {
		j.states.Invalidate(e.SessionID)
	}
}

func (j *Judge) hydrate(ctx context.Context, s *conversation.State, upTo uint64) error {
	for e, err := range j.log.Session(ctx, s.SessionID, 0, upTo) {
		if err != nil {
			return fmt.Errorf("hydrate a session: %w", err)
		}
		s.Fold(e)
	}
	return nil
}

// judgeForeign judges what is on no session's subject.
func judgeForeign(e events.Recorded) Judged {
	if e.Fact == nil {
		return Judged{Recorded: e, Change: conversation.Change{Kind: conversation.Anomaly, Reason: e.Problem}}
	}
	return Judged{Recorded: e, Change: conversation.Change{Kind: conversation.Noted}}
}

// ownCopies makes the turns of a change the event's own, and gives the turn the
// text that the event brought.
func ownCopies(c conversation.Change, f events.Fact) conversation.Change {
	if c.Turn != nil {
		t := *c.Turn
		switch f := f.(type) {
		case *events.TurnStarted:
			t.Question = &f.Question
		case *events.TurnFinalized:
			t.Answer, t.AnswerMetadata = &f.Answer, f.Metadata
		case *events.TurnCorrected:
			t.Question, t.Answer = &f.Question, &f.Answer
		}
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
