package answer

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// States reads a session with all its pending turns. The session is as it is now, or, if known is above 0, as it is
// at that sequence or later; the caller then knows that it needs no later event.
type States interface {
	Session(ctx context.Context, sessionID string, known uint64) (*session.State, error)
}

// Questions reads what was asked.
type Questions interface {
	Question(ctx context.Context, sessionID string, turn uuid.UUID) (*events.Question, error)
}

// Log reads an event.
type Log interface {
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Partitions() int
}

// Presence lets the processes of a deployment know which steps are being answered, by their keys.
type Presence interface {
	// Announce announces that this process answers a step, until leave is called. about says how.
	Announce(key uuid.UUID, about func() Answering) (leave func(), err error)
	// Present reports whether some process answers a step, and what it says of that.
	Present(ctx context.Context, key uuid.UUID) (present bool, about Answering, err error)
	// Claimed returns a number that changes with each claim of a step.
	Claimed(ctx context.Context, key uuid.UUID) (uint64, error)
	// Claim takes a step over. It returns false if the step was claimed since Claimed returned the number since.
	Claim(ctx context.Context, key uuid.UUID, since uint64) (bool, error)
}

// Answering is what a process says of a step that it answers.
type Answering struct {
	// Heard: a caller of that process waits for the answer. Queued: the answer waits for others.
	Heard, Queued bool
	// Attempt names the attempt at the step: "" is the first, and "-" one that has no name yet.
	Attempt string
}

// Relay carries answers that are being made between processes, so that nobody outside of the deployment reads or ends
// them.
type Relay interface {
	// Offer lets other processes watch and stop the answer to a step, until leave is called. Who watches then goes on.
	Offer(ctx context.Context, step uuid.UUID, o Offer) (leave func(), err error)
	// Offered reports whether a process makes an answer to a step. Stop ends that answer, if there is one.
	Offered(ctx context.Context, step uuid.UUID) (bool, error)
	Stop(ctx context.Context, step uuid.UUID) (bool, error)
	// Attach calls each with what Serve sends of the answer to a step, until that is all. Errors:
	// services.ErrNotRunning before the first frame, services.ErrAnswerLost after it, and that of ctx.
	Attach(ctx context.Context, step uuid.UUID, each func(frame []byte)) error
}

// Offer is an answer that this process makes. Serve sends it from its beginning to its end, unless ctx ends. Go runs
// what the process must not stop under.
type Offer struct {
	Serve func(ctx context.Context, send func(frame []byte))
	Stop  func()
	Go    func(func())
}

// Contexts builds prompts.
type Contexts interface {
	// Valid returns the error that Build would return for a bad request. It is called before a message is recorded.
	Valid(r services.ContextRequest) error
	// Settings returns what a prompt was built with.
	Settings(r services.ContextRequest, built *services.Context) services.PromptSettings
	services.ContextBuilder
}
