package respond

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// record records the input of a request where it belongs, and returns the step that it is.
func (s *Service) record(ctx context.Context, a Ask) (step, error) {
	if done, err := s.retried(ctx, a); !errors.Is(err, services.ErrNotRepeated) {
		if err != nil {
			return step{}, err
		}
		return s.recordedStep(ctx, a, done)
	}
	if a.Missing != nil {
		return step{}, a.Missing
	}
	if len(a.Input) == 0 {
		return step{}, errNoInput()
	}
	keep := asked{Request: a.Settings, Conversation: a.Conversation != "", Previous: a.Previous}
	add := conversation.AddMessages{RequestID: a.RequestID, Settings: encode(keep), Now: s.cfg.Now()}
	var added services.AddedMessages
	var err error
	switch {
	case a.Conversation != "":
		added, err = s.inConversation(ctx, a, add)
	case a.Previous != "":
		added, err = s.behind(ctx, a, add)
	default:
		added, err = s.begin(ctx, a, add)
	}
	if err != nil {
		return step{}, err
	}
	if added.Duplicate {
		return s.recordedStep(ctx, a, added)
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

func errNoInput() error { return refuse("missing_required_parameter", "input", "'input' is required.") }

// recordedStep returns the step of an earlier call, unless it was deleted since. What is left of its input does not
// matter.
func (s *Service) recordedStep(ctx context.Context, a Ask, added services.AddedMessages) (st step, err error) {
	at := items.Step{Position: added.Position, TurnID: added.TurnID}
	switch {
	case at.TurnID != uuid.Nil:
	case a.Call.Key != "": // it has left the log
		return st, ErrResponseNotFound
	default: // the call has begun a session, in which nothing else is
		if at, err = s.firstStep(ctx, added.SessionID); err != nil {
			return st, err
		}
	}
	st, _, err = s.find(ctx, items.ResponseID(at), a.Caller, ErrResponseNotFound)
	st.duplicate = true
	return st, err
}

// firstStep returns the step that began a session.
func (s *Service) firstStep(ctx context.Context, sessionID string) (items.Step, error) {
	ask := services.BesideAsk{SessionID: sessionID, Messages: 1}
	for more := true; more; {
		beside, _, err := s.cfg.Lookup.TurnsBeside(ctx, ask)
		if err != nil {
			return items.Step{}, err
		}
		for _, t := range beside.Turns {
			ask.At = events.Position{Partition: t.Partition, Seq: t.Started}
			if st, found, err := s.stepAt(ctx, ask.At); found || err != nil {
				return st.Step, err
			}
		}
		more = beside.More
	}
	return items.Step{}, ErrResponseNotFound // it was deleted since
}

func messagesOf(input []message.Item) (out []conversation.AddedMessage) {
	for _, i := range input {
		out = append(out, items.Added(i))
	}
	return out
}

// withoutIDs returns items for a session that has others, perhaps of the same ids.
func withoutIDs(input []message.Item) []message.Item {
	out := make([]message.Item, len(input))
	for n, i := range input {
		out[n] = i.WithoutID()
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

// begin records the input in a session of its own.
func (s *Service) begin(
	ctx context.Context, a Ask, add conversation.AddMessages,
) (services.AddedMessages, error) {
	h, err := s.shared(ctx, a)
	if err == nil {
		return s.goOn(ctx, a, add, h)
	}
	if !errors.Is(err, errNoHistory) {
		return services.AddedMessages{}, err
	}
	add.SessionID, add.Messages = ownSession(a.Call), messagesOf(withKnownIDs(h.rest))
	req := s.contextRequest(a)
	req.SessionID = add.SessionID
	if err := s.fits(ctx, a, req, h.rest); err != nil {
		return services.AddedMessages{}, err
	}
	return s.cfg.Messages.BeginSession(ctx, a.session(add), a.Call)
}

// session returns the session of its own that a request begins with messages.
func (a Ask) session(add conversation.AddMessages) services.NewSession {
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

// inReach returns ErrConversation if the request names a conversation that its caller may not know of.
func (a Ask) inReach(ctx context.Context) error {
	if conversation.ValidIDs("conversation", a.Conversation) != nil {
		return ErrConversation
	}
	return a.may(ctx, a.Conversation, ErrConversation)
}

// inConversation records the input in the conversation that the request names.
func (s *Service) inConversation(
	ctx context.Context, a Ask, add conversation.AddMessages,
) (services.AddedMessages, error) {
	if err := a.inReach(ctx); err != nil {
		return services.AddedMessages{}, err
	}
	add.SessionID = a.Conversation
	input, req := a.Input, s.contextRequest(a)
	var reading services.Reading
	// Otherwise it does not matter what stands in the conversation.
	if a.mayHave() || slices.ContainsFunc(input, message.Item.IsOutput) || a.OnPending == services.Reject {
		var err error
		reading, err = s.cfg.Sessions.Read(ctx, a.newest(add.SessionID))
		if err != nil {
			return services.AddedMessages{}, err
		}
		if a.OnPending == services.Reject && s.busy(ctx, reading.State) {
			return services.AddedMessages{}, ErrLocked
		}
		input = s.fresh(a, reading, math.MaxUint64)
	}
	req.SessionID = a.Conversation
	if err := s.fits(ctx, a, req, input); err != nil {
		return services.AddedMessages{}, err
	}
	add.Messages = messagesOf(withoutIDs(input))
	placeIn(reading, s.cfg.IDs, add.Messages)
	if err := PlaceOutputs(ctx, s.cfg.Sessions.Read, s.cfg.IDs, add.SessionID, add.Messages); err != nil {
		return services.AddedMessages{}, err
	}
	done, err := s.addOnce(ctx, a, add)
	return done, missing(err)
}

// addOnce adds the input of a call, unless the same call added it before and nobody answers it: clients send again what
// failed, some without a word. While somebody is being answered it is a message of its own.
func (s *Service) addOnce(
	ctx context.Context, a Ask, add conversation.AddMessages,
) (services.AddedMessages, error) {
	call := a.Call
	call.Unanswered = true
	done, err := s.cfg.Messages.AddMessages(ctx, add, call)
	if err != nil || !done.Duplicate || call.Key != "" || call.Repeats {
		return done, err
	}
	st, found, err := s.stepAt(ctx, done.Position)
	if err != nil || found && !s.cfg.Answers.Working(ctx, st.key(), st.createdAt) {
		return done, err
	}
	return s.cfg.Messages.AddMessages(ctx, add, a.Call)
}

// young is how long a turn counts as being answered though no process announces that: its pipeline may be about to.
const young = 120 * time.Second

// busy reports whether a turn of a session may still be being answered.
func (s *Service) busy(ctx context.Context, state *conversation.State) bool {
	return slices.ContainsFunc(state.Turns, func(t *conversation.Turn) bool {
		return t.Status == conversation.Pending &&
			(s.cfg.Now().Sub(t.CreatedAt) < young || s.cfg.Answers.Working(ctx, t.ID, t.CreatedAt))
	})
}

// before says how a response waits for a pending turn. What is part of its own input is never answered by itself. Of
// other messages that came without a pipeline's name nobody can tell whether a model is asked about them: they are the
// items of a client, or the input of another response, whose process announces it.
func (a Ask) before(t *conversation.Turn) services.Waiting {
	q := t.Question
	switch {
	case conversation.RequestOf(t.RequestID) == a.RequestID:
		return services.WaitNever
	case q != nil && q.PipelineName == "" && events.HasMessages(q.QuestionMessages):
		return services.WaitWhileAnnounced
	}
	return services.WaitWhileYoung
}

// missing turns the refusals of a conversation that there is not, or not any more, into one.
func missing(err error) error {
	if errors.Is(err, conversation.ErrSessionNotFound) || errors.Is(err, conversation.ErrSessionErased) {
		return ErrConversation
	}
	return err
}

// behind records the input behind a response.
func (s *Service) behind(
	ctx context.Context, a Ask, add conversation.AddMessages,
) (services.AddedMessages, error) {
	st, found, err := s.previous(ctx, a)
	if err != nil {
		return services.AddedMessages{}, err
	}
	end, answered := st.answerAt(found.Turn)
	if !answered {
		return services.AddedMessages{}, refuse("invalid_value", "previous_response_id",
			"The response in 'previous_response_id' has no answer yet: wait for it, or send its request again.")
	}
	rest, err := s.freshBehind(ctx, a, st, end)
	if err != nil {
		return services.AddedMessages{}, err
	}
	last, err := s.lastBefore(ctx, st, found.Turn)
	if err != nil {
		return services.AddedMessages{}, err
	}
	return s.goOn(ctx, a, add, &history{
		session: st.session, kind: found.Head.Description().Kind, turn: last, end: end,
		pruned: prunedAfter(found.Turn, end), rest: rest,
	})
}

// lastBefore returns the last turn of the history of a step of the turn t. It is newer than t if the step answers a
// call that t made before.
func (s *Service) lastBefore(ctx context.Context, st step, t *conversation.Turn) (uuid.UUID, error) {
	last := t
	if st.Position.Seq <= t.Final {
		return last.ID, nil
	}
	state, err := s.with(ctx, st.session, t.ID)
	if err != nil {
		return uuid.Nil, err
	}
	for _, newer := range state.Turns {
		if newer.Status == conversation.Finalized && state.Shown(newer) &&
			newer.Place > last.Place && newer.Place < st.Position.Seq {
			last = newer
		}
	}
	return last.ID, nil
}

// with reads a session's own turns from a turn on, or all of them if that is not among the newest.
func (s *Service) with(ctx context.Context, sessionID string, turn uuid.UUID) (*conversation.State, error) {
	ask := services.Ask{SessionID: sessionID, Shown: lookedBack, Pending: true, Own: true}
	reading, err := s.cfg.Sessions.Read(ctx, ask)
	if err == nil && reading.State.Turn(turn) == nil {
		ask.AllTurns = true
		reading, err = s.cfg.Sessions.Read(ctx, ask)
	}
	return reading.State, err
}

// prunedAfter returns the sequence of the prune that came after a turn's answer, which ends at a position, if nothing
// else did; else 0.
func prunedAfter(t *conversation.Turn, end events.Position) uint64 {
	if t.Final > end.Seq || slices.ContainsFunc(t.Extensions(), func(x conversation.Extended) bool {
		return x.Half != "" && x.Seq > end.Seq
	}) {
		return 0
	}
	return t.PrunedAt()
}

// history is where the history of an input ends: with a turn of a session, as it was at end. If the turn is inherited,
// end is the session's.
type history struct {
	session   string
	kind      events.SessionKind
	turn      uuid.UUID
	inherited bool
	end       events.Position
	// pruned, where it is after end, is what only took from the turn since.
	pruned uint64
	// rest is the input that follows.
	rest []message.Item
}

// goOn records the input behind its history: in the same session if that was made by responses alone and nothing came
// since, else in a branch.
func (s *Service) goOn(
	ctx context.Context, a Ask, add conversation.AddMessages, h *history,
) (services.AddedMessages, error) {
	if done, err := s.repeated(ctx, h.session, a); !errors.Is(err, services.ErrNotRepeated) {
		return done, err
	}
	req := s.contextRequest(a)
	req.SessionID, req.AsOf = h.session, &services.AsOf{Position: &h.end}
	if err := s.fits(ctx, a, req, h.rest); err != nil {
		return services.AddedMessages{}, err
	}
	add.SessionID, add.Messages = h.session, messagesOf(withoutIDs(h.rest))
	if err := PlaceOutputs(ctx, s.cfg.Sessions.Read, s.cfg.IDs, h.session, add.Messages); err != nil {
		return services.AddedMessages{}, err
	}
	if h.inherited {
		return s.inBranch(ctx, a, add, h.turn, 0)
	}
	if h.kind == events.KindResponse {
		add.After = max(h.end.Seq, h.pruned)
		done, err := s.addOnce(ctx, a, add)
		if !errors.Is(err, conversation.ErrWentOn) {
			return done, err
		}
	}
	return s.inBranch(ctx, a, add, h.turn, h.end.Seq)
}
