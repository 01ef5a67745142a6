package services

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
)

// Work is a step of a session that a model has to answer: a message that opens a turn, or one that goes on with a turn.
type Work interface {
	// Start records the step, or finds it in the log, and returns its turn. If another call has recorded the step, the
	// turn is a Duplicate.
	Start(ctx context.Context) (Turn, error)
	// Answered reports whether a turn needs no answer to the step any more, since it has one or is gone.
	Answered(t *conversation.Turn) bool
	// Prompt returns what the model is asked. The session need be known no further than the sequence known.
	Prompt(ctx context.Context, turn uuid.UUID, known uint64) (Prompt, error)
	// Empty reports whether an answer says nothing that can be recorded.
	Empty(answer ModelAnswer) bool
	// Record records the answer. If another process has recorded one first, that answer stays.
	Record(ctx context.Context, turn uuid.UUID, answer ModelAnswer) (Turn, error)
}

// Task is a Work with its place. Key names it to all processes; the key of a message that opens a turn is the turn's
// id.
type Task struct {
	SessionID string
	Key       uuid.UUID
	OnPending OnPending
	// Before, where not nil, says how the task waits for a pending turn that stands before it.
	Before func(*conversation.Turn) Waiting
	Work
}

// Waiting is how a task waits for a pending turn.
type Waiting uint8

// A turn may be waited for while somebody may still answer it, or while a process announces that it does, or not at
// all.
const (
	WaitWhileYoung Waiting = iota
	WaitWhileAnnounced
	WaitNever
)

// Answerer has a model answer tasks.
type Answerer interface {
	// Do has the model answer a task, and calls hear with the pieces of the answer. repeated: the task had its answer
	// already, and hear was not called. Once the task has begun, its answer is recorded even if ctx ends. Errors: those
	// of the Work, and ErrModelFailed.
	Do(ctx context.Context, t Task, hear func(AnswerPiece)) (turn Turn, repeated bool, err error)
	// Working reports whether a process works on the task of a key, also where it waits for others, or may be about to:
	// for two seconds after the task was recorded, or where that can't be told.
	Working(ctx context.Context, key uuid.UUID, since time.Time) bool
}
