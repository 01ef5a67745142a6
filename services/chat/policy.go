package chat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
)

// errInterrupted ends an answer since a later message interrupts it.
var errInterrupted = errors.New("a later message interrupts")

// errSettled ends an answer that can't be the turn's any more. Recording it returns the reason.
var errSettled = errors.New("the turn is settled")

// lookEvery is how often a session is read while its log is waited for.
const lookEvery = 100 * time.Millisecond

// looksAtView is how often an answer that is under way looks at its session until it asks
// the log for its end, too: a question to the log for each look of each answer is what the
// starts of others wait behind (docs/benchmarks.md).
const looksAtView = 10

// wait lets a turn go on when no turn before it is pending any more, or those that are have had their time, and returns
// the place in the log up to which it knows the session. An interrupting turn ends those of this process at once; other
// processes see it in the log. Whatever was acknowledged before the message stands before the message's own place, so
// that the first look need not ask for the log's end.
func (a *answering) wait(ctx context.Context) (uint64, error) {
	known := a.since
	if a.m.OnPending == services.Reject {
		return known, nil
	}
	for look := known; ; look = 0 {
		state, err := a.cfg.Sessions.Session(ctx, a.m.ThreadID, look)
		if err != nil {
			return 0, err
		}
		if err := a.over(state); err != nil {
			return 0, err
		}
		known = max(known, state.Applied)
		ahead := a.ahead(ctx, state, a.turn.Place)
		if len(ahead) == 0 {
			return known, nil
		}
		if a.m.OnPending == services.Interrupt {
			a.interrupt(ahead)
		}
		if !pause.For(ctx, lookEvery) {
			return 0, context.Cause(ctx)
		}
	}
}

// ahead are the pending turns before a place that are waited for.
func (s *Service) ahead(ctx context.Context, state *conversation.State, place uint64) (out []uuid.UUID) {
	for _, t := range state.Turns {
		if t.Status == conversation.Pending && t.Place < place && s.busy(ctx, t) {
			out = append(out, t.ID)
		}
	}
	return out
}

// busyIn returns a function that reports whether somebody may still be at work on a turn of a thread. The function is
// called while the log decides, so busyIn asks the other processes before that. A turn that comes meanwhile counts as
// busy.
func (s *Service) busyIn(ctx context.Context, threadID string) (func(*conversation.Turn) bool, error) {
	state, err := s.cfg.Sessions.Session(ctx, threadID, 0)
	if err != nil {
		return nil, err
	}
	free := map[uuid.UUID]bool{}
	for _, t := range state.Turns {
		if t.Status == conversation.Pending && !s.busy(ctx, t) {
			free[t.ID] = true
		}
	}
	return func(t *conversation.Turn) bool { return !free[t.ID] && s.young(t) }, nil
}

func (s *Service) young(t *conversation.Turn) bool {
	return t.CreatedAt.After(time.Now().Add(-s.cfg.Timeout))
}

// settling is how long after its start a chat's turn counts as being answered, though no process says so: in a cluster,
// the announcement may take that long to reach every node.
const settling = 2 * time.Second

// busy reports whether somebody may still be at work on a pending turn: on a turn of another pipeline as long as it is
// young; on a turn of chat's own, if its process says so.
func (s *Service) busy(ctx context.Context, t *conversation.Turn) bool {
	s.mu.Lock()
	_, failed := s.failed[t.ID]
	_, here := s.running[t.ID]
	s.mu.Unlock()
	ours := t.Question != nil && (t.Question.PipelineName == pipeline || t.Question.PipelineName == interrupting)
	switch {
	case !s.young(t), failed && !here:
		return false
	case !ours, here, t.CreatedAt.After(time.Now().Add(-settling)):
		return true
	}
	present, err := s.cfg.Presence.Present(ctx, t.ID)
	return present || err != nil
}

// watch ends an answer when the log shows a turn that interrupts it, whichever process took that turn, or when no
// answer changes the answered turn any more: it was redacted, erased, or answered by another process. Mostly watch
// reads the view. If the view is behind, watch reads the rest from the log.
func (a *answering) watch(ctx context.Context, stop context.CancelCauseFunc) {
	for look := 1; pause.For(ctx, lookEvery); look++ {
		known := a.since
		if look%looksAtView == 0 {
			known = 0
		}
		state, err := a.cfg.Sessions.Session(ctx, a.m.ThreadID, known)
		if err != nil {
			continue // the model's answer goes on
		}
		if err := a.over(state); err != nil {
			stop(err)
			return
		}
	}
}

// over returns why a state of the session ends the answer, nil if it does not: errInterrupted if a turn has come since
// the attempt began that interrupts it, errSettled if the turn is pending no more. The turn stood in the log before the
// state was read, and Sessions returns all pending turns: a turn that is not among them was redacted, and a view holds
// no tombstones.
func (a *answering) over(state *conversation.State) error {
	interrupts := func(t *conversation.Turn) bool {
		return t.Place > a.since && t.Question != nil && t.Question.PipelineName == interrupting
	}
	t := state.Turn(a.id)
	switch {
	case slices.ContainsFunc(state.Turns, interrupts):
		return errInterrupted
	case state.Erased != 0 || t == nil || t.Status != conversation.Pending:
		return errSettled
	}
	return nil
}

// register begins the work on a turn and announces it. If this process is at work on the turn already, register returns
// the channel that is closed when that work ends.
func (a *answering) register() (other <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if under := a.running[a.id]; under != nil {
		return under.done
	}
	a.leave, a.done = a.announce(), make(chan struct{})
	a.running[a.id] = a
	return nil
}

// announce says that this process answers a turn, until leave is called.
func (a *answering) announce() (leave func()) {
	leave, err := a.cfg.Presence.Announce(a.id)
	if err != nil {
		a.cfg.Logger.Warn("others may not wait for a turn", "turn_id", a.id, "err", err)
		return func() {}
	}
	return leave
}

// takeOver waits while another process answers a turn, and takes over a turn that nobody answers. If several processes
// try, one gets the turn; the others return with mine false, and look at the turn again. A process announces itself
// only when it answers: two processes that announced themselves earlier would wait for each other.
func (a *answering) takeOver(ctx context.Context) (mine bool, err error) {
	a.leave()
	for waited, silent := false, 0; silent < mostSilent; {
		since, err := a.cfg.Presence.Claimed(ctx, a.id)
		present := false
		if err == nil {
			present, err = a.cfg.Presence.Present(ctx, a.id)
		}
		if err == nil && !present && !waited {
			if mine, err = a.claim(ctx, since); err == nil {
				return mine, nil
			}
		}
		switch {
		case err != nil:
			silent++
		case present:
			waited, silent = true, 0
		default:
			return false, nil
		}
		if a.isStopping() {
			return false, errStopping
		}
		if !pause.For(ctx, lookEvery) {
			return false, context.Cause(ctx)
		}
	}
	a.leave = a.announce()
	return true, nil
}

// claim takes a turn over if nobody has since it was looked at. It announces this process first, so that whoever sees
// the claim sees that somebody answers; in a cluster that may take a moment.
func (a *answering) claim(ctx context.Context, since uint64) (mine bool, err error) {
	a.leave = a.announce()
	if mine, err = a.cfg.Presence.Claim(ctx, a.id, since); mine {
		return true, nil
	}
	a.leave()
	if err != nil {
		return false, err
	}
	if !pause.For(ctx, settling) {
		err = context.Cause(ctx)
	}
	return false, err
}

// mostSilent is how often in a row the question who answers a turn may fail until this process answers without a claim.
// A subscriber to all subjects keeps NATS from saying that nobody listens, and the notes may be lost, or without a
// leader for a while.
const mostSilent = 3

func (s *Service) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// take lets others stop the work.
func (a *answering) take(stop context.CancelCauseFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop = stop; a.stopping {
		stop(errStopping)
	}
	delete(a.failed, a.id)
}

// end ends the work on a turn. It remembers failed turns while they are young enough that somebody may wait for them.
func (a *answering) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
	close(a.done)
	delete(a.running, a.id)
	now := time.Now()
	maps.DeleteFunc(a.failed, func(_ uuid.UUID, at time.Time) bool { return now.Sub(at) > a.cfg.Timeout })
	if err != nil {
		a.failed[a.id] = now
	}
}

func (s *Service) interrupt(turns []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range turns {
		if try := s.running[id]; try != nil && try.stop != nil {
			try.stop(errInterrupted)
		}
	}
}

// errStopping ends answers since this process stops.
var errStopping = fmt.Errorf("%w to the end: this server stops, send the same request again", services.ErrModelFailed)

// Stop ends the answers that are under way, and those that begin later. Their turns stay pending, and their clients get
// an error; a client that sends the same request again gets an answer.
func (s *Service) Stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.EndAnswers()
}

// EndAnswers ends the answers that are under way, as Stop does.
func (s *Service) EndAnswers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, try := range s.running {
		if try.stop != nil {
			try.stop(errStopping)
		}
	}
}
