package answer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

var errNoFact = errors.New("the input of a response is not where it was recorded")

// recordInput records the input of a request where it belongs, and returns the step that it is. A call that comes again
// is given the first answer, also where what it names was deleted since.
func (s *Service) recordInput(ctx context.Context, a ask) (step, error) {
	added, err := s.recordedBefore(ctx, a)
	if errors.Is(err, services.ErrNotRepeated) {
		added, err = s.added(ctx, a)
	}
	if err != nil {
		return step{}, err
	}
	return s.stepAdded(ctx, a, added)
}

// stepAdded returns the step that messages are which were added, or had been.
func (s *Service) stepAdded(ctx context.Context, a ask, added services.AddedMessages) (step, error) {
	var err error
	if added.Duplicate {
		if added.TurnID == uuid.Nil { // it has left the log
			return step{}, services.ErrNoResponse
		}
		at := items.Step{Position: added.Position, TurnID: added.TurnID}
		st, _, err := s.find(ctx, items.ResponseID(at), a.Caller, services.ErrNoResponse)
		st.duplicate = true
		return st, err
	}
	var st step
	found := false
	if added.Event != nil {
		st, found = stepOf(added.Event)
	}
	if !found {
		st, found, err = s.stepAt(ctx, added.Position)
	}
	if err == nil && !found {
		err = fmt.Errorf("%w: %w", jetlog.ErrUnavailable, errNoFact)
	}
	st.place = added.Place // of the newest turn, about which the model is asked
	return st, err
}

// added adds the input of a request to its session, or begins one.
func (s *Service) added(ctx context.Context, a ask) (done services.AddedMessages, err error) {
	if a.Missing != nil {
		return done, a.Missing
	}
	if len(a.Input) == 0 {
		return done, services.ErrNoInput
	}
	at, err := s.place(ctx, a)
	if err == nil && len(at.rest) == 0 { // it names only what is gone
		err = services.ErrNoInput
	}
	if err == nil {
		err = s.fits(ctx, a, at)
	}
	if err != nil {
		return done, err
	}
	if at.fork != nil && a.again() {
		if done, err = s.repeatedIn(ctx, at.session, a.Call); !errors.Is(err, services.ErrNotRepeated) {
			return done, err
		}
	}
	keep := asked{Request: a.Settings, Conversation: a.Conversation != "", Previous: a.Previous}
	add := decide.AddMessages{
		SessionID: at.session, RequestID: a.RequestID, Settings: encode(keep), Now: s.cfg.Now(),
	}
	begin := func() (services.AddedMessages, error) {
		add.Messages = items.AllAdded(withKnownIDs(at.rest))
		return s.cfg.Messages.BeginSession(ctx, a.begins(add), a.Call)
	}
	if at.begins {
		return begin()
	}
	add.Messages = items.AllAdded(withoutIDs(at.rest))
	if err := s.placeOutputs(ctx, at.reading, add); err != nil {
		return done, err
	}
	if at.turn == uuid.Nil && at.after == 0 {
		return s.inConversationNow(ctx, a, add)
	}
	if at.after > 0 && at.kind == events.KindResponse { // nobody but responses adds to it
		add.After = at.after
		if done, err = s.addOnce(ctx, a, add); !errors.Is(err, decide.ErrWentOn) {
			return done, err
		}
		if at.turn == uuid.Nil { // nothing of it can be shared
			add.After, add.SessionID = 0, ownSession(a.Call)
			return begin()
		}
	}
	if at.inherited {
		at.end.Seq = 0
	}
	return s.inBranch(ctx, a, add, at)
}

// inConversationNow adds messages to a conversation, unless somebody is being answered there and the caller won't wait.
func (s *Service) inConversationNow(
	ctx context.Context, a ask, add decide.AddMessages,
) (done services.AddedMessages, err error) {
	if a.OnPending == services.Reject {
		add.Busy, err = s.busyIn(ctx, add.SessionID, func(t *session.Turn) bool {
			return s.young(t) || s.working(ctx, t.ID, t.CreatedAt)
		})
		if err != nil {
			return done, err
		}
	}
	done, err = s.addOnce(ctx, a, add)
	if errors.Is(err, decide.ErrSessionNotFound) || errors.Is(err, decide.ErrSessionErased) {
		err = services.ErrNoConversation
	}
	return done, err
}

// addOnce adds the input of a call, unless the same call added it before, and it has no answer or none that its caller
// waited for: clients send again what failed, some without a word. While another caller still waits for that answer it
// is a message of its own.
func (s *Service) addOnce(
	ctx context.Context, a ask, add decide.AddMessages,
) (services.AddedMessages, error) {
	call := a.Call
	call.Unanswered, call.Repeats = true, call.Repeats || a.missed
	done, err := s.cfg.Messages.AddMessages(ctx, add, call)
	if err != nil || !done.Duplicate || a.again() {
		return done, err
	}
	st, found, err := s.stepAt(ctx, done.Position)
	if err != nil || found && !s.calls.others(ctx, call.Body) && !s.heard(ctx, st.key(), st.createdAt) {
		return done, err
	}
	return s.cfg.Messages.AddMessages(ctx, add, a.Call)
}

// recordedBefore returns what an earlier call like this one has recorded, in whichever session; or
// services.ErrNotRepeated.
func (s *Service) recordedBefore(ctx context.Context, a ask) (done services.AddedMessages, err error) {
	session := a.Conversation
	switch {
	case !a.again():
		return done, services.ErrNotRepeated
	case session != "":
	case a.Previous != "":
		st, _, err := s.stood(ctx, a.Previous, a.Caller, services.ErrNotRepeated)
		if err != nil {
			return done, err
		}
		session = st.session
	case !a.named() && a.Missing == nil:
		return done, services.ErrNotRepeated // whoever begins a session finds out
	default:
		call := a.Call
		call.Only = true
		done, err = s.cfg.Messages.BeginSession(ctx, a.begins(decide.AddMessages{
			SessionID: ownSession(call), RequestID: a.RequestID, Now: s.cfg.Now(),
		}), call)
		if !errors.Is(err, services.ErrNotRepeated) {
			return done, err
		}
		if session, err = s.SessionOfItems(ctx, a.IDs, a.Caller); err != nil || session == "" {
			return done, cmp.Or(err, services.ErrNotRepeated)
		}
	}
	if err := may(ctx, a.Caller, session, services.ErrNotRepeated); err != nil {
		return done, err
	}
	done, err = s.repeatedIn(ctx, session, a.Call)
	if !errors.Is(err, services.ErrNotRepeated) || a.Conversation != "" {
		return done, err
	}
	branch, err := s.lastBranch(ctx, session, a)
	if err != nil || branch.ChildID == "" {
		return done, cmp.Or(err, services.ErrNotRepeated)
	}
	return s.repeatedIn(ctx, branch.ChildID, a.Call)
}

// repeatedIn returns what an earlier call like this one has recorded in a session; or services.ErrNotRepeated.
func (s *Service) repeatedIn(
	ctx context.Context, sessionID string, call services.Call,
) (services.AddedMessages, error) {
	call.Only = true
	done, err := s.cfg.Messages.AddMessages(ctx, decide.AddMessages{SessionID: sessionID, Now: s.cfg.Now()}, call)
	if isGone(err) || errors.Is(err, decide.ErrSessionNotFound) {
		err = services.ErrNotRepeated
	}
	return done, err
}

// begins returns the session of its own that a request begins with messages.
func (a ask) begins(add decide.AddMessages) services.NewSession {
	return services.NewSession{
		AddMessages: add, IdentityID: a.Identity, SourceHash: a.SourceHash, Kind: events.KindResponse,
		Drawn: a.Call.Key == "",
	}
}

// ownSession returns the id of the session that a call begins. A call with a key has the same one for ever.
func ownSession(call services.Call) string {
	if call.Key != "" {
		return items.ConversationID(sha256.Sum256([]byte("response\x00" + call.Key)))
	}
	return items.NewConversationID()
}

// withoutIDs returns items for a session that has others, perhaps of the same ids.
func withoutIDs(input []message.Item) []message.Item {
	out := make([]message.Item, len(input))
	for n, i := range input {
		out[n] = items.Unnamed(i)
	}
	return out
}

// withKnownIDs returns items for a new session. Those that a model gets as they came have the ids by which it, or
// another item, knows them.
func withKnownIDs(input []message.Item) []message.Item {
	out := withoutIDs(input)
	taken := map[string]bool{}
	for n, i := range input {
		if _, ours := items.Locate(i.ID()); items.KeepsID(i) && !ours && !taken[i.ID()] {
			out[n], taken[i.ID()] = i, true
		}
	}
	return out
}
