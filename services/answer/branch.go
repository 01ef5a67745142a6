package answer

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// inBranch records the input in a branch that begins with all up to a turn, as it was at a sequence (0: as it is now).
// The last branch that a call like this one has made is tried first: it may be this call's, or a crash may have left it
// without an input. A call with a key has one branch for ever: once that was erased, the response is gone.
func (s *Service) inBranch(
	ctx context.Context, a ask, add decide.AddMessages, turn uuid.UUID, through uint64,
) (done services.AddedMessages, err error) {
	fork, err := s.lastBranch(ctx, add.SessionID, a)
	if err != nil {
		return done, err
	}
	fork.SessionID, fork.TurnID, fork.Through = add.SessionID, turn, through
	add.After, add.Begins = 0, true
	if fork.RequestID != "" {
		done, err = s.beginBranch(ctx, a, add, fork)
		erased := errors.Is(err, decide.ErrSessionErased)
		if erased && a.Call.Key != "" {
			return done, services.ErrNoResponse
		}
		if !erased && !errors.Is(err, decide.ErrWentOn) {
			return done, err
		}
	}
	for first := fork.RequestID == ""; ; first = false {
		fork.RequestID = a.branches() + uuid.NewString()
		if first && a.Call.Key != "" {
			fork.RequestID = a.branches() // the same for all that come at once
		}
		fork.ChildID = items.ConversationID(sha256.Sum256([]byte(fork.SessionID + "\x00" + fork.RequestID)))
		done, err = s.beginBranch(ctx, a, add, fork)
		switch {
		case errors.Is(err, decide.ErrWentOn): // another call has taken it
			continue
		case a.Previous != "" && (isGone(err) || errors.Is(err, decide.ErrTurnRedacted)): // since it was found
			err = services.ErrNoPrevious
		}
		return done, err
	}
}

// branches begins the requests that make branches for calls like this one.
func (a ask) branches() string {
	if a.Call.Key != "" {
		return "key." + a.Call.Key + "#"
	}
	return "call." + a.Call.Body + "#"
}

// lastBranch returns the fork by which calls like this one have branched off a session last; an empty one if none has.
func (s *Service) lastBranch(ctx context.Context, sessionID string, a ask) (decide.ForkSession, error) {
	return s.cfg.SessionWrites.LastFork(ctx, sessionID, a.branches())
}

// beginBranch records the input in a branch that has none, and makes the branch if there is none.
func (s *Service) beginBranch(
	ctx context.Context, a ask, add decide.AddMessages, fork decide.ForkSession,
) (services.AddedMessages, error) {
	child, err := s.cfg.SessionWrites.ForkSession(ctx, fork)
	if err != nil {
		return services.AddedMessages{}, err
	}
	_, err = s.cfg.SessionWrites.DescribeSession(ctx, decide.Describe{
		SessionID: child.SessionID, RequestID: "response", Kind: events.KindResponse,
	})
	if err != nil {
		return services.AddedMessages{}, err
	}
	add.SessionID = child.SessionID
	return s.addOnce(ctx, a, add)
}
