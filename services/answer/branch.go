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

// inBranch records the input in a branch that begins with all up to its place. The branch that such an input makes is
// tried first, and then the last that a call like this one has made: it may be this call's, or a crash may have left it
// without an input. A call with a key has one branch for ever: once that was erased, the response is gone.
func (s *Service) inBranch(
	ctx context.Context, a ask, add decide.AddMessages, at place,
) (done services.AddedMessages, err error) {
	fork, err := s.lastBranch(ctx, add.SessionID, a)
	if err != nil {
		return done, err
	}
	var tries []decide.ForkSession
	if at.fork != nil && a.Call.Key == "" {
		tries = append(tries, *at.fork)
	}
	if fork.RequestID != "" {
		tries = append(tries, fork)
	}
	add.After, add.Begins = 0, true
	for n := 0; ; n++ {
		if n < len(tries) {
			fork = tries[n]
		} else {
			fork.RequestID = a.branches() + uuid.NewString()
			if n == 0 && a.Call.Key != "" {
				fork.RequestID = a.branches() // the same for all that come at once
			}
			fork.ChildID = items.ConversationID(sha256.Sum256([]byte(add.SessionID + "\x00" + fork.RequestID)))
		}
		fork.SessionID, fork.TurnID, fork.Through = at.session, at.turn, at.end.Seq
		done, err = s.beginBranch(ctx, a, add, fork)
		switch erased := errors.Is(err, decide.ErrSessionErased); {
		case errors.Is(err, decide.ErrWentOn), erased && n < len(tries) && a.Call.Key == "":
			continue // another call has taken it
		case erased && n < len(tries):
			err = services.ErrNoResponse
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
