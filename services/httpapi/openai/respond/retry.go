package respond

import (
	"context"
	"errors"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// A retry is a call that comes again: it has the key of an earlier one, or says so and has its body. It is given the
// first answer, also where what it names was deleted since. What an input has of a history is another question
// (services/align).

// retried returns what an earlier call like this one has recorded, in whichever session; or services.ErrNotRepeated.
func (s *Service) retried(ctx context.Context, a Ask) (done services.AddedMessages, err error) {
	if a.Call.Key == "" && !a.Call.Repeats {
		return done, services.ErrNotRepeated
	}
	session := a.Conversation
	switch {
	case session != "":
	case a.Previous != "":
		st, _, err := s.find(ctx, a.Previous, a.Caller, ErrPrevious)
		if err != nil && !errors.Is(err, ErrPrevious) {
			return done, err
		}
		session = st.session
	case !a.named() && a.Missing == nil:
		return done, services.ErrNotRepeated // whoever begins a session finds out
	default:
		call := a.Call
		call.Only = true
		done, err = s.cfg.Messages.BeginSession(ctx, a.session(conversation.AddMessages{
			SessionID: ownSession(call), RequestID: a.RequestID, Now: s.cfg.Now(),
		}), call)
		if !errors.Is(err, services.ErrNotRepeated) {
			return done, err
		}
		if session, err = s.SessionOfItems(ctx, a.IDs, a.Caller); err != nil {
			return done, err
		}
	}
	if session == "" {
		return done, services.ErrNotRepeated
	}
	if err := a.may(ctx, session, services.ErrNotRepeated); err != nil {
		return done, err
	}
	done, err = s.repeated(ctx, session, a)
	if !errors.Is(err, services.ErrNotRepeated) || a.Conversation != "" {
		return done, err
	}
	n, err := s.lastBranch(ctx, session, a, 0)
	if err != nil {
		return done, err
	}
	_, branch := branchOf(session, a, n)
	return s.repeated(ctx, branch, a)
}

// repeated is retried in one session.
func (s *Service) repeated(ctx context.Context, sessionID string, a Ask) (services.AddedMessages, error) {
	if a.Call.Key == "" && !a.Call.Repeats {
		return services.AddedMessages{}, services.ErrNotRepeated
	}
	call := a.Call
	call.Only = true
	done, err := s.cfg.Messages.AddMessages(ctx, conversation.AddMessages{SessionID: sessionID, Now: s.cfg.Now()}, call)
	if isGone(err) || errors.Is(err, conversation.ErrSessionNotFound) {
		err = services.ErrNotRepeated
	}
	return done, err
}
