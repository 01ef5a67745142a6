package services

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Errors of RunningAnswers.
var (
	// ErrNotRunning: no answer is being made there.
	ErrNotRunning = errors.New("no answer is being made")
	// ErrAnswerLost: the process that made the answer has died. The turn is pending.
	ErrAnswerLost = fmt.Errorf("%w: the server that made the answer has ended", ErrModelFailed)
	// ErrTooManyAnswers: as many answers as may be run in the background for the caller.
	ErrTooManyAnswers = errors.New("too many answers run in the background")
)

// RunningAnswers are the answers that are being made, whatever surface asked for them, and in whatever process.
type RunningAnswers interface {
	// Watch tells a listener of the answer that runs in a session, from its beginning until it has ended: that of a
	// turn, or, for the nil id, the one that runs before the others. A listener that takes its time holds nobody up.
	// It blocks until Ended was called, or returns ErrNotRunning before Begun was, ErrAnswerLost, or the error of ctx.
	// After ErrAnswerLost the answer may go on, or stand in the log: watch it anew, and leave out what was told.
	Watch(ctx context.Context, sessionID string, turn uuid.UUID, to Listener) error
	// StopAnswer ends such an answer with what is there, and returns its turn. It does not wait for the record. Errors:
	// ErrNotRunning.
	StopAnswer(ctx context.Context, sessionID string, turn uuid.UUID) (uuid.UUID, error)
}
