package services

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// TurnLookup finds turns of a session that is in memory, or is then. What it costs does not grow with the session. A
// result includes all that was acknowledged before the call. What a branch shares is not found in the branch. Errors:
// those of a TurnWriter, among them conversation.ErrSessionErased also if the session's identity was erased.
type TurnLookup interface {
	// FindTurn returns a turn, whatever its status, without its texts. It fails with conversation.ErrTurnNotFound if
	// the session has none of the id.
	FindTurn(ctx context.Context, sessionID string, turn uuid.UUID) (FoundTurn, error)
	// TurnsBeside returns turns that stand side by side. It reports false if the whole session has to be read instead:
	// since it shares turns, since an erasure comes between, or since there is nothing at ask.At.
	TurnsBeside(ctx context.Context, ask BesideAsk) (TurnsBeside, bool, error)
}

// FoundTurn is a turn without its texts, and the head of its session.
type FoundTurn struct {
	Turn *conversation.Turn
	Head conversation.Head
}

// BesideAsk asks for turns that stand side by side, of those since the session's last reset that are pending or
// finalized: from the turn on that the event at At opened, answered or pruned, or where At is zero, from the first one
// on; with Back, to the ones before it, or from the last one. They end once there are as many messages as asked for,
// beside those of the turn at At. Known is as Ask.KnownSeq.
type BesideAsk struct {
	SessionID string
	At        events.Position
	Back      bool
	Messages  int
	Known     uint64
}

// TurnsBeside are turns of a session of a partition, oldest first. More: there are further ones in the direction that
// was asked for.
type TurnsBeside struct {
	Turns     []*conversation.Turn
	Partition int
	More      bool
}
