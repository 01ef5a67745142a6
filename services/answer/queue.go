package answer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// errInterrupted ends an answer because a later message interrupts it.
var errInterrupted = errors.New("a later message interrupts")

// errStopped ends an answer with what is there, since somebody asked for that.
var errStopped = errors.New("the answer is stopped")

// errSettled ends an answer that the turn can no longer take. Recording the answer then returns the reason.
var errSettled = errors.New("the turn is settled")

// lookEvery is the pause between two reads of a session while an answer waits for a change in it.
const lookEvery = 100 * time.Millisecond

// looksAtView is how often a running answer reads its session from the view before it asks the log for its end once. If
// each look of each answer asked the log, the starts of other turns would wait behind these requests
// (docs/benchmarks.md).
const looksAtView = 10

// wait returns when no earlier turn is pending any more and no earlier answer goes on, or nobody may answer those any
// more. It returns the sequence up to which it knows the session. An interrupting turn ends the earlier answers of this
// process at once;
// other processes see it in the log. The first look need not ask for the log's end, since all events that were
// acknowledged before the message stand before the message in the log.
func (a *answering) wait(ctx context.Context) (uint64, error) {
	known, began := a.since, time.Now()
	for look := known; ; look = 0 {
		state, err := a.cfg.States.Session(ctx, a.session, look)
		if err != nil {
			return 0, err
		}
		if err := a.over(ctx, state); err != nil {
			return 0, err
		}
		known = max(known, state.Applied)
		ahead := a.ahead(ctx, state, began)
		a.to.placed(len(ahead) > 0)
		if len(ahead) == 0 {
			return known, nil
		}
		if a.onPending == services.Interrupt {
			a.interrupt(ahead)
		}
		if !pause.For(ctx, lookEvery) {
			return 0, context.Cause(ctx)
		}
	}
}

// ahead returns the keys of the steps that the task, which waits since it began, has to wait for: all that it
// interrupts, or else the newest, since each may cost a question to other processes.
func (a *answering) ahead(ctx context.Context, state *session.State, began time.Time) (out []uuid.UUID) {
	for _, t := range slices.Backward(state.Turns) {
		for _, o := range openOf(t) {
			switch {
			case !a.behind(t, o),
				a.own != "" && decide.RequestOf(cmp.Or(o.extension, t.RequestID)) == a.own, a.free[o.key] == o.seq:
				continue
			case !a.busy(ctx, state.SessionID, t, o, began):
				a.free[o.key] = o.seq
				continue
			}
			if out = append(out, o.key); a.onPending != services.Interrupt {
				return out
			}
		}
	}
	return out
}

// behind reports whether the task came after what is open of a turn.
func (a *answering) behind(t *session.Turn, o open) bool {
	if o.extension != "" {
		return o.seq < cmp.Or(a.at, a.turn.Started)
	}
	return t.Place < a.turn.Place
}

// open is what a model may be asked about: a pending turn, or what was appended to an answer and has no answer itself,
// such as a tool's output. key is that of the step, and seq that of its newest event.
type open struct {
	key       uuid.UUID
	extension string
	seq       uint64
}

// mostOpen bounds how many open extensions of an answer are looked at, the newest first: a client that adds an answer
// item by item has no model asked about any.
const mostOpen = 4

// openOf returns what is open of a turn.
func openOf(t *session.Turn) (out []open) {
	if t.Status == session.Pending {
		return []open{{key: t.ID, seq: t.Last()}}
	}
	if t.Status != session.Finalized || t.Last() <= t.Final {
		return nil
	}
	answered := map[string]bool{}
	for _, x := range slices.Backward(t.Extensions()) {
		f := events.TurnExtended{TurnID: t.ID, ExtensionID: x.ID}
		answer := extensionOf(t.ID, f.EventID())
		isAnswer := strings.HasPrefix(x.ID, answerPrefix)
		if isAnswer || x.Half != events.HalfAnswer || answered[answer] {
			answered[x.ID] = isAnswer
			continue
		}
		if out = append(out, open{uuid.NewSHA1(t.ID, []byte(answer)), x.ID, x.Seq}); len(out) == mostOpen {
			break
		}
	}
	return out
}

// busy reports whether somebody may still answer what is open of a turn. How another pipeline fares nobody can tell:
// its turn is busy while it is young. Of a turn of this surface or of items a process announces that it answers it; one
// may be about to for a while after the turn began, or, if its question grew since, after the caller began to wait. An
// extension is answered only if a model was asked with it. If nobody can tell for as long as an answer may take, it is
// not waited for.
func (s *Service) busy(ctx context.Context, sessionID string, t *session.Turn, o open, began time.Time) bool {
	q, asked := t.Question, t.CreatedAt
	ours := q != nil && (q.PipelineName == pipeline || q.PipelineName == interrupting ||
		q.PipelineName == "" && events.HasMessages(q.QuestionMessages))
	if len(t.Extensions()) > 0 {
		asked = began
	}
	failed, here := s.known(o.key)
	switch {
	case here || failed:
		return here
	case o.extension != "":
		return s.stepping(ctx, sessionID, o)
	case !ours:
		return s.young(t)
	}
	works, err := s.present(ctx, o.key, asked)
	return works || err != nil && time.Since(began) < s.cfg.Timeout
}

// stepping reports whether somebody may still answer an extension.
func (s *Service) stepping(ctx context.Context, sessionID string, o open) bool {
	if s.cfg.Log == nil { // threads alone: nobody goes on with answers
		return false
	}
	at := events.Position{Partition: events.Partition(sessionID, s.cfg.Log.Partitions()), Seq: o.seq}
	st, found, err := s.stepAt(ctx, at)
	return err != nil || found && s.working(ctx, o.key, st.createdAt)
}

// working reports whether a process works on the step of a key, also where it waits for others, or may be about to: for
// two seconds after the step was recorded, or where that can't be told.
func (s *Service) working(ctx context.Context, key uuid.UUID, since time.Time) bool {
	works, err := s.present(ctx, key, since)
	return works || err != nil
}

// present is working, with an error where that can't be told.
func (s *Service) present(ctx context.Context, key uuid.UUID, since time.Time) (bool, error) {
	failed, here := s.known(key)
	if here || !failed && time.Since(since) < settling {
		return true, nil
	}
	present, _, err := s.cfg.Presence.Present(ctx, key)
	return present, err
}

// heard reports whether another process works on the step of a key for a caller that waits for the answer. It gives a
// process that has just recorded the step a moment to announce that.
func (s *Service) heard(ctx context.Context, key uuid.UUID, since time.Time) bool {
	for silent := 0; ; {
		failed, here := s.known(key)
		if here {
			return false
		}
		present, about, err := s.cfg.Presence.Present(ctx, key)
		if err != nil { // it may have ended while it was asked
			silent++
		} else if present || failed || time.Since(since) > announcing {
			return about.Heard
		}
		if silent == mostSilent || !pause.For(ctx, lookEvery) {
			return err != nil
		}
	}
}

// busyIn tells the log's decision which turns of a session are busy: those that are pending, or whose answers go on.
// Whether they are may cost questions to other processes, so it is found out beforehand. A turn that came or grew since
// counts as busy.
func (s *Service) busyIn(
	ctx context.Context, sessionID string, busy func(*session.Turn) bool,
) (decide.Busy, error) {
	state, err := s.cfg.States.Session(ctx, sessionID, 0)
	if err != nil {
		return nil, err
	}
	was := map[uuid.UUID]bool{}
	for _, t := range state.Turns {
		was[t.ID] = slices.ContainsFunc(openOf(t), func(o open) bool {
			if o.extension == "" {
				return busy(t)
			}
			return s.busy(ctx, sessionID, t, o, t.CreatedAt)
		})
	}
	return func(t *session.Turn) bool {
		return len(openOf(t)) > 0 && (was[t.ID] || t.Last() > state.Applied)
	}, nil
}

func (s *Service) young(t *session.Turn) bool {
	return s.cfg.Now().Sub(t.CreatedAt) < s.cfg.Timeout
}

// announcing is how long a process takes at most, mostly, from the record of a step to its announcement.
const announcing = 300 * time.Millisecond

// settling is how long after its start a chat's turn counts as being answered, even if no process announces it. In a
// cluster the announcement may take that long to reach every node.
const settling = 2 * time.Second

// known reports whether this process has failed to answer a task, and whether it works on the task now.
func (s *Service) known(key uuid.UUID) (failed, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, failed = s.failed[key]
	_, here = s.running[key]
	return failed, here
}

// watch ends an answer when the log shows a turn that interrupts it, in whichever process, or when the turn can take no
// answer any more because it was redacted, erased or answered by another process. Mostly watch reads the view. If the
// view is behind, watch reads the rest from the log.
func (a *answering) watch(ctx context.Context, stop context.CancelCauseFunc) {
	for look := 1; pause.For(ctx, lookEvery); look++ {
		known := a.since
		if look%looksAtView == 0 {
			known = 0
		}
		state, err := a.cfg.States.Session(ctx, a.session, known)
		if err != nil {
			continue // the model's answer goes on
		}
		if err := a.over(ctx, state); err != nil {
			stop(err)
			return
		}
	}
}

// over returns the reason if a state of the session ends the answer, or nil: errInterrupted if an interrupting turn has
// come since the attempt began, errSettled if the task is answered. The turn stood in the log before the state was
// read, and Sessions returns all pending turns. So if a pending turn is missing from the state, it was redacted; a view
// holds no tombstones. A turn that the answer extends may be missing since newer ones pushed it out: it is looked up.
func (a *answering) over(ctx context.Context, state *session.State) error {
	interrupts := func(t *session.Turn) bool {
		return t.Place > a.since && t.Question != nil && t.Question.PipelineName == interrupting
	}
	t := state.Turn(a.turn.ID)
	if t == nil && a.turn.Status == session.Finalized && !state.Whole && state.Erased == 0 {
		if now, err := a.work.start(ctx); err == nil {
			t = &now.Turn
		} else {
			t = &a.turn.Turn // recording the answer shows whether the turn is gone
		}
	}
	switch {
	case slices.ContainsFunc(state.Turns, interrupts):
		return errInterrupted
	case state.Erased != 0 || t == nil || a.answered(t):
		return errSettled
	}
	return nil
}

// register notes and announces that this process works on the turn. If the process did so already, register returns
// that work; the caller waits for its end, too.
func (a *answering) register(ctx context.Context) (other *answering) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if under := a.running[a.key]; under != nil {
		under.callers = append(under.callers, ctx)
		under.ends = under.ends && a.ends
		context.AfterFunc(ctx, under.maybeHungUp)
		return under
	}
	context.AfterFunc(ctx, a.maybeHungUp)
	a.callers = []context.Context{ctx}
	a.leave, a.done = a.announce(), make(chan struct{})
	a.running[a.key] = a
	return nil
}

// announce announces that this process answers a turn, until leave is called.
func (a *answering) announce() (leave func()) {
	leave, err := a.cfg.Presence.Announce(a.key, a.about)
	if err != nil {
		a.cfg.Logger.Warn("others may not wait for a turn", "turn_id", a.key, "err", err)
		return func() {}
	}
	return leave
}

// isHeard reports whether a caller still waits for the answer.
func (a *answering) isHeard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.callers, func(c context.Context) bool { return c.Err() == nil })
}

// maybeHungUp ends an answer for which nobody waits any more, if it ends with its callers. Whoever leaves calls it.
func (a *answering) maybeHungUp() {
	if a.isHeard() || a.to.watched() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ends && a.stop != nil {
		a.stop(errHungUp)
	}
}

// endsWith reports whether an answer ends with its callers, by what a call and the deployment say, and what its surface
// does.
func (s *Service) endsWith(asked services.OnDisconnect, surface bool) bool {
	said := cmp.Or(asked, s.cfg.OnDisconnect)
	return said == services.StopOnDisconnect || said == "" && surface
}

// takeOver waits while another process answers a turn, and takes the turn over once no process answers it. If several
// processes try, one gets the turn. The others return with mine false, and look at the turn again. A process announces
// itself only after it has got the turn: if two processes announced themselves earlier, they would wait for each other.
func (a *answering) takeOver(ctx context.Context) (mine bool, err error) {
	a.leave()
	for waited, silent := false, 0; silent < mostSilent; {
		since, err := a.cfg.Presence.Claimed(ctx, a.key)
		present, about := false, Answering{}
		if err == nil {
			present, about, err = a.cfg.Presence.Present(ctx, a.key)
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
			if err := a.follows(about); err != nil {
				return false, err
			}
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

// claim takes a turn over unless another process has claimed it since this process looked. It announces this process
// before it claims the turn, so that a process that sees the claim also sees the announcement; in a cluster that may
// take a moment.
func (a *answering) claim(ctx context.Context, since uint64) (mine bool, err error) {
	a.leave = a.announce()
	if mine, err = a.cfg.Presence.Claim(ctx, a.key, since); mine {
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

// mostSilent is how often in a row the question which process answers a turn may fail before this process answers
// without a claim. The question can fail for long: a subscriber to all subjects keeps NATS from reporting that nobody
// listens, and the notes may be lost, or without a leader for a while.
const mostSilent = 3

func (s *Service) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// take sets the function by which others stop the work.
func (a *answering) take(stop context.CancelCauseFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop = stop; a.stopping {
		stop(errStopping)
	}
	delete(a.failed, a.key)
}

// end ends the work on a turn. It remembers a failed turn for as long as another turn may wait for it.
func (a *answering) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
	close(a.done)
	delete(a.running, a.key)
	now := time.Now()
	maps.DeleteFunc(a.failed, func(_ uuid.UUID, at time.Time) bool { return now.Sub(at) > a.cfg.Timeout })
	if err != nil {
		a.failed[a.key] = now
	}
}

func (s *Service) interrupt(keys []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if try := s.running[key]; try != nil && try.stop != nil {
			try.stop(errInterrupted)
		}
	}
}

// errStopping ends answers because this process stops.
var errStopping = fmt.Errorf("%w to the end: this server stops, send the same request again", services.ErrModelFailed)

// Stop ends the running answers, and all that begin later: those of which a piece was told with what is there. The
// turns of the others stay pending, and their clients get an error; a client that sends the same request again gets an
// answer.
func (s *Service) Stop() {
	s.mu.Lock()
	s.stopping = true
	for _, try := range s.running {
		if try.stop != nil && try.to.count() > 0 {
			try.stop(errStopped)
		}
	}
	s.mu.Unlock()
	s.EndAnswers()
}

// EndAnswers ends the running answers. Their turns stay pending.
func (s *Service) EndAnswers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, try := range s.running {
		if try.stop != nil {
			try.stop(errStopping)
		}
	}
}
