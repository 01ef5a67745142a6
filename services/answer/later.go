package answer

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/items"
)

// mostInBackground bounds the answers that run in the background for a caller.
const mostInBackground = 32

// begun waits for the beginning of an answer, until it is known whether it waits for others.
type begun struct {
	services.Quiet

	step services.Step
	at   chan services.Answered
}

// Begun implements services.Listener.
func (b *begun) Begun(s services.Step) { b.step = s }

// Placed is told whether the answer waits for others.
func (b *begun) Placed(queued bool) {
	select {
	case b.at <- services.Answered{Step: b.step, Running: true, Queued: queued}:
	default: // it was told before
	}
}

// Follows is told which attempt answers the step already.
func (b *begun) Follows(s services.Step, queued bool) {
	b.step = s
	b.Placed(queued)
}

// Begin implements services.Responder.
func (s *Service) Begin(ctx context.Context, a services.StepAsk) (services.Answered, error) {
	behind := access.Detached(ctx)
	to := &begun{at: make(chan services.Answered, 1)}
	var out services.Answered
	var err error
	done := make(chan struct{})
	s.background.running.Go(func() {
		defer close(done)
		defer func() {
			if recover() != nil { // no request's handler stands above it that would
				s.cfg.Logger.Error("an answer in the background broke off", "stack", string(debug.Stack()))
				err = services.ErrModelFailed
			}
		}()
		out, err = s.Respond(behind, a, to)
	})
	select {
	case at := <-to.at:
		return at, nil
	case <-done:
	case <-ctx.Done():
		return services.Answered{}, ctx.Err()
	}
	select {
	case at := <-to.at: // it was answered since, or is by another
		return at, nil
	default:
		return out, err
	}
}

// Wait waits for the answers in the background.
func (s *Service) Wait() { s.background.running.Wait() }

// WatchResponse implements services.Responder. Where processes do not watch each other, an answer of another one is
// told once it is recorded.
func (s *Service) WatchResponse(ctx context.Context, id string, who services.Caller, to services.Listener) error {
	begun, began := false, time.Now()
	for {
		st, found, err := s.find(ctx, id, who, services.ErrNoResponse)
		if err != nil {
			return err
		}
		stands := func(ctx context.Context) error {
			_, _, err := s.find(ctx, id, who, services.ErrNoResponse)
			return err
		}
		if r := s.live.find(st.session, ofResponse(id)); r != nil && !begun {
			return r.watch(ctx, to, stands)
		}
		_, answered := st.answerAt(found.Turn)
		if !answered && !begun {
			err := s.watchElsewhere(ctx, st, to, stands)
			if !errors.Is(err, services.ErrNotRunning) {
				return err
			}
		}
		out, err := s.Response(ctx, id, who)
		switch {
		case err != nil:
			return err
		case !begun && (!out.Running || s.cfg.Relay == nil || time.Since(began) > settling):
			begun = true
			to.Begun(out.Step)
		}
		if !out.Running {
			to.Ended(out)
			return nil
		}
		if !pause.For(ctx, lookEvery) {
			return context.Cause(ctx)
		}
	}
}

// lostDeadline bounds the look at what became of an answer whose process was lost.
const lostDeadline = time.Second

// watchElsewhere tells a listener of a response that another process makes. If that process is lost, the answer may
// stand all the same: then it fails with services.ErrAnswerLost, so that the caller watches it anew.
func (s *Service) watchElsewhere(
	ctx context.Context, st step, to services.Listener, stands func(context.Context) error,
) error {
	m, leave, err := s.mirrored(ctx, st.key())
	if err != nil {
		return err
	}
	defer leave()
	if !ofResponse(items.ResponseID(st.Step))(m.running) {
		return services.ErrNotRunning // another attempt runs
	}
	if err = m.watch(ctx, to, stands); !errors.Is(err, services.ErrAnswerLost) {
		return err
	}
	looking, end := context.WithTimeout(ctx, lostDeadline)
	defer end()
	found, err := s.cfg.Lookup.FindTurn(looking, st.session, st.TurnID)
	if err == nil {
		_, answered := st.answerAt(found.Turn)
		running := false
		if !answered {
			running, _ = s.attempted(looking, st)
		}
		if answered || running {
			return services.ErrAnswerLost
		}
	}
	to.Ended(services.Answered{Step: s.told(st, s.cfg.Model.Name()), Err: services.ErrModelFailed})
	return nil
}

// CancelResponse implements services.Responder.
func (s *Service) CancelResponse(ctx context.Context, id string, who services.Caller) (services.Answered, error) {
	st, found, err := s.find(ctx, id, who, services.ErrNoResponse)
	if err != nil {
		return services.Answered{}, err
	}
	r := s.live.find(st.session, ofResponse(id))
	if _, answered := st.answerAt(found.Turn); r == nil && !answered {
		m, leave, err := s.mirrored(ctx, st.key())
		switch {
		case err == nil:
			defer leave()
			r = m.running
		case !errors.Is(err, services.ErrNotRunning):
			return services.Answered{}, err
		}
	}
	if r != nil && ofResponse(id)(r) {
		err := s.halt(ctx, r, st.key())
		if err == nil {
			err = r.watch(ctx, services.Quiet{}, stands)
		}
		if err != nil && !gaveUp(err) {
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
