package history

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// session is the slim state of one session that is held in memory. The tail folds
// into it whatever anybody appends, from the moment it is held: what arrives while
// it is still read from the log waits in early.
type session struct {
	loaded chan struct{}
	err    error

	mu    sync.Mutex
	state *conversation.State
	early []jetlog.Message
	ready bool
	// asked is the bytes of the questions that the state holds.
	asked int
}

// session gives a held session, hydrated from the log where it was not held.
func (s *Service) session(ctx context.Context, id string) (*session, error) {
	fresh := &session{loaded: make(chan struct{}), state: conversation.New(id, s.cfg.Rules)}
	held, mine := s.sessions.SetIfAbsent(id, fresh)
	if mine {
		held = fresh
		s.load(ctx, id, held)
	}
	select {
	case <-held.loaded:
		return held, held.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Service) load(ctx context.Context, id string, x *session) {
	defer close(x.loaded)
	// Others wait for this load too: it does not end with the caller who began it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadDeadline)
	defer cancel()
	if x.err = s.hydrate(ctx, id, x); x.err != nil {
		s.sessions.Invalidate(id)
		return
	}
	s.weighAnew(id)
}

const loadDeadline = 10 * time.Second

// hydrate reads the session from the log. A cold session costs the server the load
// of every block it is spread over, so few do it at once.
func (s *Service) hydrate(ctx context.Context, id string, x *session) error {
	select {
	case s.loads <- struct{}{}:
		defer func() { <-s.loads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	state := conversation.New(id, s.cfg.Rules)
	var asked int
	for e, err := range s.log.Session(ctx, id, 0, math.MaxUint64) {
		if err != nil {
			return fmt.Errorf("load session: %w", err)
		}
		asked += fold(state, e)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.early {
		asked += fold(state, m.Recorded())
	}
	x.state, x.asked, x.early, x.ready = state, asked, nil, true
	return nil
}

// take folds what the tail delivered.
func (x *session) take(m jetlog.Message) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ready {
		x.early = append(x.early, m)
		return
	}
	x.asked += fold(x.state, m.Recorded())
}

// fold keeps of the texts only the questions that wait for their answer, whose writer
// is shown both. It gives the bytes by which they grew.
func fold(state *conversation.State, e events.Recorded) (grown int) {
	c := state.Fold(e)
	if f, ok := e.Fact.(*events.TurnStarted); ok && c.Kind == conversation.Started {
		c.Turn.Question = &f.Question
		return size(c.Turn.Question)
	}
	if c.Kind == conversation.Answered {
		grown = -size(c.Turn.Question)
		c.Turn.Question = nil
	}
	return grown
}

func size(q *events.Question) int {
	if q == nil {
		return 0
	}
	return len(q.QuestionNeutral) + len(q.QuestionTranslated) + len(q.QuestionMessages)
}

// decide runs a decision on the state as it is, and gives its last sequence and
// head too.
func (x *session) decide(f func(*conversation.State) conversation.Decision) (d conversation.Decision, last uint64, head conversation.Head) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d = f(x.state)
	if d.Turn != nil {
		own := *d.Turn
		d.Turn = &own
	}
	return d, x.state.Applied, x.state.Head()
}
