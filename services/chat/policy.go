package chat

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
)

// errInterrupted ends an answer since a later message interrupts it.
var errInterrupted = errors.New("a later message interrupts")

// lookEvery is how often a session is read while its log is waited for.
const lookEvery = 100 * time.Millisecond

// wait lets a turn go on when none before it is pending any more, or those that are
// have had their time. An interrupting turn ends those of this process at once; other
// processes see it in the log.
func (s *Service) wait(ctx context.Context, m Message, turn Turn) error {
	if m.Policy == Reject {
		return nil
	}
	for {
		state, err := s.cfg.Sessions.Session(ctx, m.ThreadID)
		switch {
		case err != nil:
			return err
		case interrupted(state, turn):
			return errInterrupted
		}
		ahead := s.ahead(state, turn.Place)
		if len(ahead) == 0 {
			return nil
		}
		if m.Policy == Interrupt {
			s.interrupt(ahead)
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// ahead are the pending turns before a place that are waited for.
func (s *Service) ahead(state *conversation.State, place uint64) (out []uuid.UUID) {
	for _, t := range state.Turns {
		if t.Status == conversation.Pending && t.Place < place && s.busy(t) {
			out = append(out, t.ID)
		}
	}
	return out
}

// busy tells whether somebody may still be at work on a pending turn.
func (s *Service) busy(t *conversation.Turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, failed := s.failed[t.ID]
	return !failed && t.CreatedAt.After(s.cfg.Now().Add(-s.cfg.Timeout))
}

// interrupted tells whether a later turn has come to end this one.
func interrupted(state *conversation.State, turn Turn) bool {
	return slices.ContainsFunc(state.Turns, func(t *conversation.Turn) bool {
		return t.Place > turn.Place && t.Question != nil && t.Question.PipelineName == interrupting
	})
}

// watch ends an answer when the log shows a turn that interrupts it, whoever took that.
func (s *Service) watch(ctx context.Context, threadID string, turn Turn, stop context.CancelCauseFunc) {
	for pause(ctx, lookEvery) == nil {
		// Where the log does not answer, the model's answer goes on.
		if state, err := s.cfg.Sessions.Session(ctx, threadID); err == nil && interrupted(state, turn) {
			stop(errInterrupted)
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Service) register(id uuid.UUID, stop context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[id] = stop
}

// forget ends the work on a turn. Of those that failed it keeps what is young enough
// to be waited for.
func (s *Service) forget(id uuid.UUID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, id)
	now := s.cfg.Now()
	maps.DeleteFunc(s.failed, func(_ uuid.UUID, at time.Time) bool { return now.Sub(at) > s.cfg.Timeout })
	if err != nil {
		s.failed[id] = now
	}
}

func (s *Service) interrupt(turns []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range turns {
		if stop := s.running[id]; stop != nil {
			stop(errInterrupted)
		}
	}
}

// pieces passes an answer on and keeps it, for one that is broken off.
type pieces struct {
	to   Listener
	text strings.Builder
}

func (p *pieces) add(text string) {
	p.text.WriteString(text)
	p.to.Piece(text)
}
