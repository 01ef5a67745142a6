package services

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// TurnLookup finds turns of a session that is in memory, or is then. What it costs does not grow with the session. A
// result includes all that was acknowledged before the call. Errors: those of a TurnWriter, among them
// conversation.ErrSessionErased also if the session's identity was erased.
type TurnLookup interface {
	// FindTurn returns a turn, whatever its status, without its texts. It fails with conversation.ErrTurnNotFound if
	// the session has none of the id. What a branch shares is not found in the branch.
	FindTurn(ctx context.Context, sessionID string, turn uuid.UUID) (FoundTurn, error)
	// TurnsBeside returns turns that stand side by side, also those that a branch shares. It reports false if the whole
	// session has to be read instead: since an erasure comes between, since there is nothing at ask.At, or since a turn
	// was pruned after a fork that shares only its beginning.
	TurnsBeside(ctx context.Context, ask BesideAsk) (TurnsBeside, bool, error)
}

// FoundTurn is a turn without its texts, and the head of its session.
type FoundTurn struct {
	Turn *conversation.Turn
	Head conversation.Head
}

// BesideAsk asks for turns that stand side by side, of those that are pending or finalized: since the session's last
// reset, or in a branch, since the boundary that holds there. They begin with the turn that the event at At opened,
// answered, extended or pruned, or where At is zero, with the first one; with Back, they end with it, or with the last
// one. They end once there are as many messages as asked for, beside the one at At; where that is 0, there is the turn
// at At alone, whole. Answer and Message say which message of the turn it is (items.Address). Known is as Ask.KnownSeq.
type BesideAsk struct {
	SessionID string
	At        events.Position
	Answer    bool
	Message   int
	Back      bool
	Messages  int
	Known     uint64
}

// StandingTurn is a turn with the session and the partition that it stands in. Of a turn that was extended, it may hold
// only some of the answer's messages that stand side by side, with the question or without. Skipped is how many there
// are before the first that it holds.
type StandingTurn struct {
	*conversation.Turn

	SessionID string
	Partition int
	Skipped   int
}

// TurnsBeside are turns, oldest first. More: there are further ones in the direction that was asked for.
type TurnsBeside struct {
	Turns []StandingTurn
	More  bool
}
