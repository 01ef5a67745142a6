package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// work is a step that a model has to answer: a message that opens a turn, or one that goes on with a turn.
type work interface {
	// start records the step, or finds it in the log, and returns its turn. If another call has recorded the step, the
	// turn is a Duplicate.
	start(ctx context.Context) (services.Turn, error)
	// step says what a listener is told of a turn that was started.
	step(t *services.Turn) services.Step
	// as names the attempt at the step.
	as(attempt string)
	// answered reports whether a turn needs no answer to the step any more, since it has one or is gone.
	answered(t *session.Turn) bool
	// prompt returns what the model is asked. The session need be known no further than the sequence known.
	prompt(ctx context.Context, turn uuid.UUID, known uint64) (services.Prompt, error)
	// piece returns a piece as it is told and recorded, or false if it is neither.
	piece(p services.AnswerPiece) (services.AnswerPiece, bool)
	// empty reports whether an answer says nothing that can be recorded.
	empty(answer services.ModelAnswer) bool
	// record records the answer. If another process has recorded one first, that answer stays.
	record(ctx context.Context, turn uuid.UUID, answer services.ModelAnswer) (services.Turn, error)
}

// task is a work with its place. key names it to all processes; the key of a message that opens a turn is the turn's
// id.
type task struct {
	session   string
	key       uuid.UUID
	onPending services.OnPending
	// own is the request that recorded the step: what else it brought is not waited for. at is the sequence of the
	// event that did; 0 if that opened the turn.
	own string
	at  uint64
	// ends: the answer ends when the last caller has hung up, if all of them want that. keeps: what came of it until
	// then is recorded.
	ends, keeps bool
	// named: each attempt at the step has a name of its own, which is told with the step.
	named bool
	work
}

// outcome is what became of a task. begun: its step is in the log. repeated: it had its answer already.
type outcome struct {
	turn            services.Turn
	begun, repeated bool
}

// do has the model answer a task, and tells whoever listens. Once the task has begun, its answer is recorded even if
// ctx ends. The caller tells the end. Errors: those of the work, and ErrModelFailed.
func (s *Service) do(ctx context.Context, t task, to *running) (outcome, error) {
	a := &answering{Service: s, task: t, to: to, free: map[uuid.UUID]uint64{}, attempt: undecided}
	if err := a.begin(ctx); err != nil {
		return a.outcome, err
	}
	if a.answered(&a.turn.Turn) {
		a.repeated = true
		return a.outcome, nil
	}
	// From here on the answer is made for the log, and the client may disconnect.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	a.take(stop)
	a.live.enter(a, a.turn.Place)
	defer a.offer(ctx)()
	a.tell()
	a.maybeHungUp()
	err := a.answer(ctx)
	a.end(err)
	return a.outcome, err
}

// aside has the model answer what is not recorded.
func (s *Service) aside(
	ctx context.Context, p services.Prompt, step services.Step, to services.Listener,
) (services.ModelAnswer, error) {
	ctx, end := context.WithTimeout(ctx, s.cfg.Timeout)
	defer end()
	to.Begun(step)
	answer, err := s.cfg.Model.Answer(ctx, p, to.Piece)
	if err != nil {
		return answer, fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	}
	return answer.Whole(to.Piece), nil
}

// promptOf returns what the model gets of a context, with what is asked of the answer.
func promptOf(c *services.Context, o services.ModelOptions) services.Prompt {
	p := services.Prompt{System: c.System, Messages: make([]json.RawMessage, len(c.Messages)), ModelOptions: o}
	for i, m := range c.Messages {
		p.Messages[i] = m.JSON()
	}
	return p
}

// reason returns why an answer ended, as it is recorded: "" if it is whole.
func reason(answer services.ModelAnswer) string {
	if answer.Finish == services.FinishStop {
		return ""
	}
	return string(answer.Finish)
}

// answering is the work of this process on one task, up to its answer.
type answering struct {
	*Service
	task
	outcome

	to *running

	// callers wait for the answer, unless they have ended.
	callers []context.Context //nolint:containedctx // one for each call
	stop    context.CancelCauseFunc
	// leave ends the announcement; done is closed when this process has finished its work on the task.
	leave func()
	done  chan struct{}
	// free are steps before the task that nobody answers, as of their last events: they are asked about once.
	free map[uuid.UUID]uint64
	// since is a sequence of the log: only interrupting messages after it concern this attempt.
	since uint64
	// built is what the model was asked with; nil until it was.
	built *services.PromptSettings
	// attempt names the work; undecided while another may do it.
	attempt string
}

// undecided is the name of an attempt that has none yet.
const undecided = "-"

// errFollowed: the step is being answered already, and its caller does not wait.
var errFollowed = errors.New("the step is being answered")

// open reports whether the task still needs an answer.
func (a *answering) open() bool { return !a.answered(&a.turn.Turn) }

// look starts the work. Whoever asked for a step again hears at once that it is waited for, unless it matters which
// attempt answers it.
func (a *answering) look(ctx context.Context) (err error) {
	if a.turn, err = a.work.start(ctx); err == nil && a.turn.Duplicate && !a.named {
		a.tell()
	}
	return err
}

// tell tells the listener that the step is in the log.
func (a *answering) tell() {
	if !a.begun {
		a.begun = true
		a.to.Begun(a.step(&a.turn))
	}
}

// about says how this process answers the step.
func (a *answering) about() Answering {
	about := Answering{Heard: a.isHeard(), Queued: a.to.isQueued()}
	a.mu.Lock()
	defer a.mu.Unlock()
	about.Attempt = a.attempt
	return about
}

// mine names the attempt of this process: the first one has no name.
func (a *answering) mine() {
	name := ""
	if a.named && a.turn.Duplicate {
		name = items.NewAttempt(time.Now())
	}
	a.mu.Lock()
	a.attempt = name
	a.mu.Unlock()
	a.as(name)
}

// follows tells a caller that does not wait which attempt it would wait for.
func (a *answering) follows(of Answering) error {
	asker, goes := a.to.asker.(interface {
		Follows(s services.Step, queued bool)
	})
	if !goes || of.Attempt == undecided {
		return nil
	}
	a.as(of.Attempt)
	asker.Follows(a.step(&a.turn), of.Queued)
	return errFollowed
}

// begin records the step, and announces that this process answers it. If it is being answered already, here or by
// another process, begin waits for that answer.
func (a *answering) begin(ctx context.Context) error {
	other := a.register(ctx)
	err := a.look(ctx)
	for other != nil && err == nil && a.open() {
		if err = a.follows(other.about()); err != nil {
			break
		}
		select {
		case <-other.done:
			if other = a.register(ctx); other == nil {
				err = a.look(ctx)
			}
		case <-time.After(lookEvery):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if other != nil {
		return err
	}
	for mine := !a.turn.Duplicate; err == nil && !mine && a.open(); {
		if mine, err = a.takeOver(ctx); err == nil {
			err = a.look(ctx) // the other process may have answered it
		}
	}
	if err == nil && a.open() {
		a.mine()
		a.since, err = a.begins(ctx)
	}
	if err != nil || !a.open() {
		a.end(nil)
	}
	return err
}

// begins returns the sequence at which this attempt to answer begins; only later messages interrupt it. A retry begins
// at the session's last event, since the messages up to there ended the earlier attempts.
func (a *answering) begins(ctx context.Context) (uint64, error) {
	if !a.turn.Duplicate {
		return a.turn.Last(), nil
	}
	state, err := a.cfg.States.Session(ctx, a.session, 0)
	if err != nil {
		return 0, err
	}
	return max(state.Applied, a.turn.Last()), nil
}

// answer waits until the task may go on, calls the model and records its answer.
func (a *answering) answer(ctx context.Context) error {
	answer, err := a.ask(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the reason for the stop explains the failure
	}
	switch {
	case errors.Is(err, errInterrupted), errors.Is(err, errSettled):
		answer, err = services.ModelAnswer{Parts: wholeOf(a.to.parts()), Finish: services.FinishInterrupted}, nil
		if len(answer.Parts) == 0 {
			answer.Parts = []services.AnswerPart{{Kind: services.PartText, Text: interruptedText}}
		}
	case errors.Is(err, errHungUp) && a.keeps:
		left := services.ModelAnswer{Parts: wholeOf(a.to.parts()), Finish: services.FinishStopped}
		if left.Text() != "" {
			answer, err = left, nil
		}
	case errors.Is(err, errStopped):
		answer = services.ModelAnswer{Parts: wholeOf(a.to.parts()), Finish: services.FinishStopped}.Whole(a.to.Piece)
		err = nil
	}
	if err != nil {
		kv := []any{
			"session_id", a.session, "turn_id", a.turn.ID, "model_failed", errors.Is(err, services.ErrModelFailed),
		}
		if refused, ok := errors.AsType[*services.ModelRefusal](err); ok {
			kv = append(kv, "status", refused.Status)
		}
		a.cfg.Logger.Warn("a turn stays without an answer", kv...)
		return err
	}
	answer.Prompt = a.built
	if len(answer.Parts) >= a.to.count() { // else a call that was cut off is left out
		answer.Pieces = a.to.lengths()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordDeadline)
	defer cancel()
	turn, err := a.record(ctx, a.turn.ID, answer)
	if errors.Is(err, jetlog.ErrTooLarge) { // the answer counts, not how it came
		answer.Pieces, answer.Prompt = "", nil
		turn, err = a.record(ctx, a.turn.ID, answer)
	}
	if err == nil {
		a.turn = turn
	}
	return err
}

// ask returns the model's answer, or errInterrupted, or errSettled.
func (a *answering) ask(ctx context.Context) (services.ModelAnswer, error) {
	known, err := a.wait(ctx)
	if err != nil {
		return services.ModelAnswer{}, err
	}
	// The timeout does not include the time in the queue.
	ctx, end := context.WithTimeout(ctx, a.cfg.Timeout)
	defer end()
	sent, err := a.prompt(ctx, a.turn.ID, known)
	if err != nil {
		return services.ModelAnswer{}, err
	}
	sent.Conversation, a.built = a.session, sent.Settings
	calling, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.watch(calling, stop) })
	answer, err := a.cfg.Model.Answer(calling, sent, func(p services.AnswerPiece) {
		if p, tells := a.piece(p); tells {
			a.to.Piece(p)
		}
	})
	cause := context.Cause(calling)
	stop(nil)
	watching.Wait()
	switch {
	case errors.Is(cause, errInterrupted), errors.Is(cause, errSettled), errors.Is(cause, errStopped):
		return services.ModelAnswer{}, cause
	case err != nil:
		return services.ModelAnswer{}, fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	case a.empty(answer):
		return services.ModelAnswer{}, fmt.Errorf("%w: it said nothing", services.ErrModelFailed)
	default:
		return answer.Whole(a.to.Piece), nil
	}
}

// errHungUp ends an answer that nobody waits for any more.
var errHungUp = fmt.Errorf("%w: its caller hung up", services.ErrModelFailed)

const (
	recordDeadline  = 15 * time.Second
	interruptedText = "[Interrupted]"
)
