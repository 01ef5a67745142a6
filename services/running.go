package services

import (
	"context"
	"errors"

	"github.com/google/uuid"
)

// Errors of RunningAnswers.
var (
	// ErrNotRunning: no answer is being made there.
	ErrNotRunning = errors.New("no answer is being made")
	// ErrAnswerLost: the process that made the answer has died. The turn is pending.
	ErrAnswerLost = errors.New("the server that made the answer has ended")
)

// RunningAnswers are the answers that are being made, whatever surface asked for them.
type RunningAnswers interface {
	// Watch tells a listener of the answer that runs in a session, from its beginning until it has ended: that of a
	// turn, or, for the nil id, the one that runs before the others. A listener that takes its time holds nobody up. It
	// blocks until Ended was called, or returns ErrNotRunning before Begun was, ErrAnswerLost, or the error of ctx.
	Watch(ctx context.Context, sessionID string, turn uuid.UUID, to Listener) error
	// StopAnswer ends such an answer with what is there, and returns its turn. It does not wait for the record. Errors:
	// ErrNotRunning.
	StopAnswer(ctx context.Context, sessionID string, turn uuid.UUID) (uuid.UUID, error)
}
