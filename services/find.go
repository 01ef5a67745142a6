package services

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// TurnLookup finds turns of a session. What it costs does not grow with the session in a process that writes. A result
// includes all that was acknowledged before the call. Errors: those of a TurnWriter, among them
// decide.ErrSessionErased also if the session's identity was erased.
type TurnLookup interface {
	// FindTurn returns a turn, whatever its status, without its texts. It fails with decide.ErrTurnNotFound if
	// the session has none of the id. What a branch shares is not found in the branch.
	FindTurn(ctx context.Context, sessionID string, turn uuid.UUID) (FoundTurn, error)
	// TurnsBeside returns turns that stand side by side, also those that a branch shares. It reports false if there is
	// no session, or nothing at ask.At.
	TurnsBeside(ctx context.Context, ask BesideAsk) (TurnsBeside, bool, error)
}

// FoundTurn is a turn without its texts, and the head of its session.
type FoundTurn struct {
	Turn *session.Turn
	Head session.Head
}

// BesideAsk asks for turns that stand side by side, of those that are pending or finalized: since the session's last
// reset, or in a branch, since the boundary that holds there. They begin with the turn that the event at At opened,
// answered, extended or pruned, or where At is zero, with the first one; with Back, they end with it, or with the last
// one. They end once there are as many messages as asked for, beside the one at At; where that is 0, there is the turn
// at At alone, whole. Answer and Message say which message of the turn it is (items.Address).
type BesideAsk struct {
	SessionID string
	At        events.Position
	Answer    bool
	Message   int
	Back      bool
	Messages  int
}

// StandingTurn is a turn with the session and the partition that it stands in. Of a turn that was extended, it may hold
// only some of the answer's messages that stand side by side, with the question or without. Skipped is how many there
// are before the first that it holds.
type StandingTurn struct {
	*session.Turn

	SessionID string
	Partition int
	Skipped   int
}

// TurnsBeside are turns, oldest first, as they are at Position. More: there are further ones in the direction that was
// asked for.
type TurnsBeside struct {
	Turns    []StandingTurn
	More     bool
	Position events.Position
}

// ItemReader reads sessions as items, each with its id. Errors: those of a TurnLookup, decide.ErrSessionNotFound,
// and ErrNoItem.
type ItemReader interface {
	// ItemPage returns a page of a session's items.
	ItemPage(ctx context.Context, sessionID string, p Paging) (ItemPage, error)
	// FindItem returns an item of a session.
	FindItem(ctx context.Context, sessionID, id string) (FoundItem, error)
	// References returns what finds the items that a request refers to. session is asked for the request's session, or
	// "", until it answers, and only if an item is looked for. reach returns ErrNoSession if the caller may not know of
	// a session.
	References(
		session func() (string, error), reach func(ctx context.Context, sessionID string) error,
	) ItemReferences
}

// FoundItem is an item with the turn that it stands in, as of Position.
type FoundItem struct {
	Item     message.Item
	Turn     StandingTurn
	Position events.Position
}

// ItemReferences finds items for one request.
type ItemReferences interface {
	// Item returns the item of an id in the request's session, or in another one of the caller's, without its id. It
	// fails with ErrNoItem, or with ErrManySessions if the request refers to too many others.
	Item(ctx context.Context, id string) (message.Item, error)
	// Keep lets items keep the ids that they bring, if they may. It fails with ErrItemTaken if the session has one of
	// such an id.
	Keep(ctx context.Context, given []message.Item) error
}
