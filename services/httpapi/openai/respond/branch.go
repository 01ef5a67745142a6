package respond

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// inBranch records the input in a branch that begins with all up to a turn, as it was at a sequence (0: as it is now).
// Calls that are the same make branches with numbers, so that a call that comes again is found in the branch that it
// made. A branch without an input, after a crash, is taken by the next such call.
func (s *Service) inBranch(
	ctx context.Context, a Ask, add conversation.AddMessages, turn uuid.UUID, through uint64,
) (services.AddedMessages, error) {
	fork := conversation.ForkSession{SessionID: add.SessionID, TurnID: turn, Through: through}
	add.After, add.Begins = 0, true
	n, err := s.lastBranch(ctx, fork.SessionID, a, 0)
	for err == nil {
		var done services.AddedMessages
		fork.RequestID, fork.ChildID = branchOf(fork.SessionID, a, n)
		if done, err = s.beginBranch(ctx, a, add, fork); err == nil {
			return done, nil
		}
		if errors.Is(err, conversation.ErrWentOn) { // it is another call's
			n, err = s.lastBranch(ctx, fork.SessionID, a, n+1)
		}
	}
	if a.Previous != "" && (isGone(err) || errors.Is(err, conversation.ErrTurnRedacted)) { // since it was found
		err = ErrPrevious
	}
	return services.AddedMessages{}, err
}

// lastBranch returns the number of the last branch that calls like this one have made of a session, of those from a
// number on, or of the next one if there is none or if it was erased. A call with a key has one branch for ever: once
// that was erased, the response is gone. Branches are numbered without gaps, so the first free number is found in steps
// that grow, and then between the last two of them.
func (s *Service) lastBranch(ctx context.Context, sessionID string, a Ask, from int) (n int, err error) {
	there, erased := from-1, true // the last one known to be there
	look := func(n int) (bool, error) {
		_, branch := branchOf(sessionID, a, n)
		reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: branch, Shown: 1, Own: true})
		gone := err == nil && reading.State.Erased != 0
		if gone && a.Call.Key != "" {
			return false, ErrResponseNotFound
		}
		if err != nil || !gone && reading.State.Fork().ForkedAt == 0 {
			return false, err
		}
		there, erased = n, gone
		return true, nil
	}
	is, step := true, 1
	for ; is && err == nil; step *= 2 {
		is, err = look(there + step)
	}
	for free := there + step/2; err == nil && free-there > 1; {
		middle := (there + free) / 2
		if is, err = look(middle); !is {
			free = middle
		}
	}
	if erased {
		there++
	}
	return there, err
}

// beginBranch records the input in a branch that has none, and makes the branch if there is none.
func (s *Service) beginBranch(
	ctx context.Context, a Ask, add conversation.AddMessages, fork conversation.ForkSession,
) (services.AddedMessages, error) {
	child, err := s.cfg.SessionWrites.ForkSession(ctx, fork)
	if errors.Is(err, conversation.ErrForkTooDeep) {
		err = ErrTooDeep
	}
	if err != nil {
		return services.AddedMessages{}, err
	}
	_, err = s.cfg.SessionWrites.DescribeSession(ctx, conversation.Describe{
		SessionID: child.SessionID, RequestID: "response", Kind: events.KindResponse,
	})
	if err != nil {
		return services.AddedMessages{}, err
	}
	add.SessionID = child.SessionID
	return s.cfg.Messages.AddMessages(ctx, add, a.Call)
}

// branchOf returns the request that makes a branch of a session for calls like this one, and the branch's id.
func branchOf(sessionID string, a Ask, n int) (request, id string) {
	name := "call." + a.Call.Body
	if a.Call.Key != "" {
		name = "key." + a.Call.Key
	}
	request = fmt.Sprintf("%s#%d", name, n)
	return request, items.ConversationID(sha256.Sum256([]byte(sessionID + "\x00" + request)))
}
