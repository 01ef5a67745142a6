package respond

import (
	"context"
	"errors"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// repeated returns what an earlier call has recorded in a session, if the call says that it may repeat one; otherwise
// services.ErrNotRepeated.
func (s *Service) repeated(ctx context.Context, sessionID string, a Ask) (services.AddedMessages, error) {
	if a.Call.Key == "" && !a.Call.Repeats {
		return services.AddedMessages{}, services.ErrNotRepeated
	}
	call := a.Call
	call.Only = true
	return s.cfg.Messages.AddMessages(ctx, conversation.AddMessages{SessionID: sessionID, Now: s.cfg.Now()}, call)
}

// recordedBefore returns the step of the earlier call that this one repeats, although what both name has been deleted
// since. If there is none it fails with none.
func (s *Service) recordedBefore(ctx context.Context, a Ask, none error) (step, error) {
	done, err := s.repeatedAnywhere(ctx, a)
	switch {
	case errors.Is(err, services.ErrNotRepeated) || isGone(err) || errors.Is(err, conversation.ErrSessionNotFound):
		return step{}, none
	case err != nil:
		return step{}, err
	}
	return s.recordedStep(ctx, a, done)
}

// repeatedAnywhere is repeated for the sessions in which the call may have recorded something.
func (s *Service) repeatedAnywhere(ctx context.Context, a Ask) (done services.AddedMessages, err error) {
	session := a.Conversation
	switch {
	case session != "":
	case a.Previous != "":
		st, _, err := s.find(ctx, a.Previous, a.Caller, ErrPrevious)
		if err != nil && !errors.Is(err, ErrPrevious) {
			return done, err
		}
		session = st.session
	default:
		call := a.Call
		call.Only = true
		return s.cfg.Messages.BeginSession(ctx, a.session(conversation.AddMessages{
			SessionID: ownSession(call), RequestID: a.RequestID, Now: s.cfg.Now(),
		}), call)
	}
	if session == "" {
		return done, services.ErrNotRepeated
	}
	if err := a.may(ctx, session, services.ErrNotRepeated); err != nil {
		return done, err
	}
	done, err = s.repeated(ctx, session, a)
	if !errors.Is(err, services.ErrNotRepeated) || a.Previous == "" {
		return done, err
	}
	n, err := s.lastBranch(ctx, session, a, 0)
	if err != nil {
		return done, err
	}
	_, branch := branchOf(session, a, n)
	return s.repeated(ctx, branch, a)
}
