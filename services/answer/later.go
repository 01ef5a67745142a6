package answer

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// mostInBackground bounds the answers that run in the background for a caller.
const mostInBackground = 32

// begun waits for the beginning of an answer.
type begun struct {
	services.Quiet

	step chan services.Step
}

// Begun implements services.Listener.
func (b begun) Begun(s services.Step) { b.step <- s }

// Begin implements services.Responder.
func (s *Service) Begin(ctx context.Context, a services.StepAsk) (services.Answered, error) {
	who, behind := access.CallOf(ctx).Caller.Name, access.Behind(ctx)
	if !s.background.enter(who) {
		return services.Answered{}, services.ErrTooManyAnswers
	}
	to := begun{step: make(chan services.Step, 1)}
	var out services.Answered
	var err error
	done := make(chan struct{})
	s.background.running.Go(func() {
		defer close(done)
		defer s.background.leave(who)
		defer func() {
			if recover() != nil { // no request's handler stands above it that would
				s.cfg.Logger.Error("an answer in the background broke off", "stack", string(debug.Stack()))
				err = services.ErrModelFailed
			}
		}()
		out, err = s.Respond(behind, a, to)
	})
	select {
	case step := <-to.step:
		return services.Answered{Step: step, Running: true}, nil
	case <-done:
		return out, err
	case <-ctx.Done():
		return services.Answered{}, ctx.Err()
	}
}

// Wait waits for the answers in the background.
func (s *Service) Wait() { s.background.running.Wait() }

// WatchResponse implements services.Responder. An answer that another process makes is told once it is recorded.
func (s *Service) WatchResponse(ctx context.Context, id string, who services.Caller, to services.Listener) error {
	for {
		st, found, err := s.find(ctx, id, who, services.ErrNoResponse)
		if err != nil {
			return err
		}
		if r := s.live.find(st.session, func(r *running) bool { return r.key == st.key() }); r != nil {
			return r.watch(ctx, to, func(ctx context.Context) error {
				_, _, err := s.find(ctx, id, who, services.ErrNoResponse)
				return err
			})
		}
		if _, answered := st.answerAt(found.Turn); !answered && s.working(ctx, st.key(), st.createdAt) {
			if !pause.For(ctx, lookEvery) {
				return context.Cause(ctx)
			}
			continue
		}
		out, err := s.Response(ctx, id, who)
		if err != nil {
			return err
		}
		if out.Running {
			continue
		}
		to.Begun(out.Step)
		to.Ended(out)
		return nil
	}
}

// CancelResponse implements services.Responder.
func (s *Service) CancelResponse(ctx context.Context, id string, who services.Caller) (services.Answered, error) {
	st, _, err := s.find(ctx, id, who, services.ErrNoResponse)
	if err != nil {
		return services.Answered{}, err
	}
	if r := s.live.find(st.session, func(r *running) bool { return r.key == st.key() }); r != nil {
		r.stop(errStopped)
		if err := r.watch(ctx, services.Quiet{}, func(context.Context) error { return nil }); err != nil {
			return services.Answered{}, err
		}
	}
	return s.Response(ctx, id, who)
}

// background counts the answers that run in the background, by their callers.
type background struct {
	running sync.WaitGroup

	mu sync.Mutex
	of map[string]int
}

func (b *background) enter(who string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[who] >= mostInBackground {
		return false
	}
	b.of[who]++
	return true
}

func (b *background) leave(who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[who]--; b.of[who] == 0 {
		delete(b.of, who)
	}
}
