package services

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Session is the answer to a write on a session.
type Session struct {
	SessionID string
	conversation.Head
	Position  events.Position
	Duplicate bool
}

// SessionWriter records what concerns a whole session.
type SessionWriter interface {
	LinkSession(ctx context.Context, sessionID, identityID, sourceHash string) (Session, error)
	ResetSession(ctx context.Context, sessionID, reason string) (Session, error)
}

// Ask says how much of a session a read needs.
type Ask struct {
	SessionID string
	// Shown is how many of the finalized turns that prompts may show are needed.
	Shown int
	// Whole asks for all turns, with tombstones and replaced turns; Shown does not matter then.
	Whole bool
	// Pending: turns without an answer count among the shown ones.
	Pending bool
	// MinPosition that the reading must have reached.
	MinPosition []events.Position
	// Known, where it is above 0, is a sequence in the session's partition. The caller saw it
	// durable after all that the reading must show, so that the read neither asks the log for
	// its end nor waits until what others wrote meanwhile is on disk.
	Known uint64
}

// Source says where a reading comes from.
type Source string

// The sources of a reading (docs/contract.md#context).
const (
	FromView    Source = "view"
	FromViewLog Source = "view+log"
	FromLog     Source = "log"
	FromRequest Source = "request"
)

// Reading is a session as it is at Position. The state is the caller's own.
type Reading struct {
	State    *conversation.State
	Position events.Position
	Source   Source
	// Gone are turns that a reading of the past left out, since they were redacted later.
	Gone []*conversation.Turn
}

// SessionReader reads sessions, at least as new as what was acknowledged before the call and as
// Ask.MinPosition (else ErrPositionNotReached). A failure is an error and never an empty session.
type SessionReader interface {
	Read(ctx context.Context, ask Ask) (Reading, error)
}
