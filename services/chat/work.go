package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/turnledger/turnledger/services"
)

// Do implements services.Answerer.
func (s *Service) Do(
	ctx context.Context, t Task, hear func(services.AnswerPiece),
) (turn services.Turn, repeated bool, err error) {
	a := &answering{Service: s, Task: t, hear: hear}
	if err := a.begin(ctx); err != nil {
		return a.turn, false, err
	}
	if a.Answered(&a.turn.Turn) {
		return a.turn, true, nil
	}
	// From here on the answer is made for the log, and the client may disconnect.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	a.take(stop)
	err = a.answer(ctx)
	a.end(err)
	return a.turn, false, err
}

// answering is the work of this process on one task, up to its answer.
type answering struct {
	*Service
	Task

	hear func(services.AnswerPiece)
	turn services.Turn
	// answerText is the answer so far. It is recorded if the answer is interrupted.
	answerText strings.Builder

	stop context.CancelCauseFunc
	// leave ends the announcement; done is closed when this process has finished its work on the task.
	leave func()
	done  chan struct{}
	// since is a sequence of the log: only interrupting messages after it concern this attempt.
	since uint64
}

// open reports whether the task still needs an answer.
func (a *answering) open() bool { return !a.Answered(&a.turn.Turn) }

func (a *answering) start(ctx context.Context) (err error) {
	a.turn, err = a.Start(ctx)
	return err
}

// begin records the step, and announces that this process answers it. If it is being answered already, here or by
// another process, begin waits for that answer.
func (a *answering) begin(ctx context.Context) error {
	other := a.register()
	err := a.start(ctx)
	for other != nil && err == nil && a.open() {
		select {
		case <-other:
			if other = a.register(); other == nil {
				err = a.start(ctx)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if other != nil {
		return err
	}
	for mine := !a.turn.Duplicate; err == nil && !mine && a.open(); {
		if mine, err = a.takeOver(ctx); err == nil {
			err = a.start(ctx) // the other process may have answered it
		}
	}
	if err == nil && a.open() {
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
	state, err := a.cfg.Sessions.Session(ctx, a.SessionID, 0)
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
	if errors.Is(err, errInterrupted) || errors.Is(err, errSettled) {
		text := cmp.Or(a.answerText.String(), interruptedText)
		answer, err = services.ModelAnswer{
			Parts: []services.AnswerPart{{Kind: services.PartText, Text: text}}, Finish: services.FinishInterrupted,
		}, nil
	}
	if err != nil {
		kv := []any{
			"session_id", a.SessionID, "turn_id", a.turn.ID, "model_failed", errors.Is(err, services.ErrModelFailed),
		}
		if refused, ok := errors.AsType[*services.ModelRefusal](err); ok {
			kv = append(kv, "status", refused.Status)
		}
		a.cfg.Logger.Warn("a turn stays without an answer", kv...)
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordDeadline)
	defer cancel()
	turn, err := a.Record(ctx, a.turn.ID, answer)
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
	sent, err := a.Prompt(ctx, a.turn.ID, known)
	if err != nil {
		return services.ModelAnswer{}, err
	}
	sent.Conversation = a.SessionID
	calling, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.watch(calling, stop) })
	answer, err := a.cfg.Model.Answer(calling, sent, func(p services.AnswerPiece) {
		if p.Said() {
			a.answerText.WriteString(p.Text)
		}
		a.hear(p)
	})
	cause := context.Cause(calling)
	stop(nil)
	watching.Wait()
	switch {
	case errors.Is(cause, errInterrupted), errors.Is(cause, errSettled):
		return services.ModelAnswer{}, cause
	case err != nil:
		return services.ModelAnswer{}, fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	case a.Empty(answer):
		return services.ModelAnswer{}, fmt.Errorf("%w: it said nothing", services.ErrModelFailed)
	default:
		return answer.Whole(a.hear), nil
	}
}

const (
	recordDeadline  = 15 * time.Second
	interruptedText = "[Interrupted]"
)
