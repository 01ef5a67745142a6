package answer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/align"
	"github.com/turnledger/turnledger/services/items"
)

// mostPlacings bounds how often a chat completion is placed anew since others added to its session meanwhile.
const mostPlacings = 16

// recordCompletion records what is new of a chat completion where it belongs, and returns the step that it is. From
// then on the request says which history its model is shown.
func (s *Service) recordCompletion(ctx context.Context, a *ask) (st step, err error) {
	c := *a.Completion
	a.Completion = &c
	for range mostPlacings {
		st, err = s.placeCompletion(ctx, a)
		if !errors.Is(err, decide.ErrWentOn) {
			return st, err
		}
	}
	return st, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, services.ErrBusy)
}

func (s *Service) placeCompletion(ctx context.Context, a *ask) (st step, err error) {
	c := a.Completion
	if c.Chat != nil {
		return s.placeChat(ctx, a)
	}
	if st, err = s.completedBefore(ctx, *a, c.Session); !errors.Is(err, services.ErrNotRepeated) {
		return st, err
	}
	client, err := s.sendsHistory(ctx, *a)
	if err != nil {
		return st, err
	}
	var to placed
	if c.History = services.HistoryServer; client {
		c.History = services.HistoryClient
		to, err = s.aligned(ctx, *a)
	} else {
		to, err = s.behindAll(ctx, *a)
	}
	if err == nil && to.session != c.Session {
		if st, err = s.completedBefore(ctx, *a, to.session); !errors.Is(err, services.ErrNotRepeated) {
			return st, err
		}
		err = nil
	}
	switch {
	case err != nil:
		return st, err
	case to.again != nil:
		return *to.again, nil
	}
	return s.addCompletion(ctx, *a, to)
}

// completedBefore returns the step that an earlier call like this one has recorded in a session; or
// services.ErrNotRepeated.
func (s *Service) completedBefore(ctx context.Context, a ask, sessionID string) (st step, err error) {
	if !a.again() {
		return st, services.ErrNotRepeated
	}
	added, err := s.repeatedIn(ctx, sessionID, a.Call)
	if err != nil {
		return st, err
	}
	return s.completionAdded(ctx, a, added)
}

// completionAdded is stepAdded for a chat completion. A step that stands asks its model with the history that it was
// recorded with.
func (s *Service) completionAdded(ctx context.Context, a ask, added services.AddedMessages) (step, error) {
	st, err := s.stepAdded(ctx, a, added)
	if st.asked.History != "" {
		a.Completion.History = st.asked.History
	}
	return st, err
}

// sendsHistory reports whether the client of a session keeps the history itself, by what it sends or has sent before.
func (s *Service) sendsHistory(ctx context.Context, a ask) (bool, error) {
	c := a.Completion
	said := func(i message.Item) bool { return i.ByAssistant() && i.Words() != "" }
	if c.History != services.HistoryAuto {
		return c.History == services.HistoryClient, nil
	}
	outputs := a.hasOutput() && !slices.ContainsFunc(a.Input, message.Item.Asks)
	if !outputs && slices.ContainsFunc(a.Input, said) {
		return true, nil
	}
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: c.Session, Shown: 1, Pending: true})
	if err != nil {
		return false, err
	}
	if outputs {
		if s.newestCalls(reading, a.Input) {
			return false, nil
		}
		if slices.ContainsFunc(a.Input, said) {
			return true, nil
		}
	}
	fork, err := s.cfg.SessionWrites.LastFork(ctx, c.Session, inputForks)
	if err != nil || fork.RequestID != "" {
		return err == nil, err
	}
	looked := 0
	for _, t := range slices.Backward(reading.State.Turns) {
		_, partition, inherited := reading.State.Origin(t, reading.Position.Partition)
		if !t.Asked || inherited || !shown(t) {
			continue
		}
		st, found, err := s.stepAt(ctx, events.Position{Partition: partition, Seq: t.Started})
		if err != nil || found && st.asked.History != "" {
			return st.asked.History == services.HistoryClient, err
		}
		if looked++; looked == mostLookedUp {
			break
		}
	}
	return false, nil
}

// newestCalls reports whether the newest turn of a session makes the calls of all outputs among items.
func (s *Service) newestCalls(r services.Reading, all []message.Item) bool {
	turns := r.State.Turns
	if len(turns) == 0 {
		return false
	}
	t := turns[len(turns)-1]
	from, partition, _ := r.State.Origin(t, r.Position.Partition)
	of := s.cfg.IDs.OfTurn(from, partition, t)
	return !slices.ContainsFunc(all, func(output message.Item) bool {
		makes := func(i message.Item) bool { return i.IsCall() && i.CallID() == output.CallID() }
		return output.IsOutput() && !slices.ContainsFunc(of, makes)
	})
}

// placed is where a chat completion belongs: in a session, in a branch of it that may have to be made, or nowhere anew
// since it is a step that stands.
type placed struct {
	session string
	fork    *decide.ForkSession
	begins  bool
	rest    []message.Item
	again   *step
	// request of the turn, where that is not the call's.
	request string
	// after is the last text that was read of the session, and none that there was none. Neither: it does not matter.
	after   uint64
	none    bool
	reading services.Reading
}

// behindAll places a chat completion behind all that its session has: its question is new, and of a tool's outputs and
// what stands beside them only what the session lacks.
func (s *Service) behindAll(ctx context.Context, a ask) (to placed, err error) {
	to.session = a.Completion.Session
	if to.reading, err = s.recent(ctx, a, to.session); err != nil {
		return to, err
	}
	if err = a.mayAddTo(to.reading.State); err != nil {
		return to, err
	}
	to.begins = !to.reading.State.Found()
	to.rest = s.fresh(a, to.reading, ^uint64(0))
	return to, nil
}

// aligned places a chat completion whose messages are a history: behind the turns that it shares with the session or
// with the branch of it that shares the most.
func (s *Service) aligned(ctx context.Context, a ask) (to placed, err error) {
	h, err := s.historyOf(ctx, a.Completion.Session, align.Input{
		Items: a.Input, IDs: make([]string, len(a.Input)),
	}, true)
	for {
		if err == nil {
			err = a.mayAddTo(h.State)
		}
		if err != nil {
			return to, err
		}
		to = placed{
			session: h.State.SessionID, reading: h.Reading, begins: !h.State.Found(), rest: h.in.Items[h.with.Rest:],
		}
		if to.after = h.State.LastText(); to.after == 0 {
			to.none = true
		}
		if h.with.Ends {
			if to.again, err = s.unanswered(ctx, h.Reading, h.of[h.with.At]); err != nil || to.again != nil {
				return to, err
			}
		}
		if !h.with.Diverges && !h.lacks() {
			return to, nil
		}
		next, err := s.onward(ctx, &h, h.with.Diverges)
		switch {
		case err != nil:
			return to, err
		case next != nil:
			h = *next
		default:
			if h.with.Diverges {
				fork := h.behindShared()
				fork.IdentityID = a.Identity
				to.fork, to.after, to.none = &fork, 0, true
			}
			return to, nil
		}
	}
}

// mayAddTo refuses a session that is erased, or that another identity has begun since the caller was let in.
func (a ask) mayAddTo(s *session.State) error {
	switch {
	case s.Erased != 0:
		return decide.ErrSessionErased
	case a.Identity != "" && s.Applied != 0 && s.Identity != a.Identity:
		return services.ErrNoSession
	}
	return nil
}

// unanswered returns the step of a turn that still needs its answer; nil if it has that.
func (s *Service) unanswered(ctx context.Context, r services.Reading, t *session.Turn) (*step, error) {
	_, partition, inherited := r.State.Origin(t, r.Position.Partition)
	if inherited || !shown(t) {
		return nil, nil //nolint:nilnil // most turns have their answers
	}
	st, found, err := s.stepAt(ctx, events.Position{Partition: partition, Seq: t.Last()})
	pending := t.Status == session.Pending
	if err != nil || !found && !pending {
		return nil, err
	}
	if !found { // somebody else has recorded it
		st = step{session: r.State.SessionID, createdAt: t.CreatedAt, first: t.Started}
		st.Position, st.TurnID = events.Position{Partition: partition, Seq: t.Started}, t.ID
	}
	if _, has := st.answerAt(t); has {
		return nil, nil //nolint:nilnil // it has its answer
	}
	st.place, st.duplicate = t.Place, true
	return &st, nil
}

// addCompletion records what is new of a chat completion where it belongs.
func (s *Service) addCompletion(ctx context.Context, a ask, to placed) (st step, err error) {
	if len(to.rest) == 0 {
		return st, services.ErrNoInput
	}
	add := decide.AddMessages{
		SessionID: to.session, RequestID: cmp.Or(to.request, a.RequestID), Now: s.cfg.Now(),
		Named:    a.Completion.Chat != nil,
		Messages: items.AllAdded(withoutIDs(to.rest)),
		Settings: encode(asked{Request: a.Settings, History: a.Completion.History}),
	}
	var added services.AddedMessages
	switch {
	case to.begins:
		n := a.begins(add)
		n.Kind, n.Drawn = events.KindConversation, false
		added, err = s.cfg.Messages.BeginSession(ctx, n, a.Call)
		if err == nil && added.Duplicate && added.TurnID == uuid.Nil { // another call has begun it
			err = decide.ErrWentOn
		}
	case to.fork != nil:
		if err = s.forkFor(ctx, *to.fork); err == nil {
			add.SessionID, add.Begins = to.fork.ChildID, true
			added, err = s.addIn(ctx, a, add, services.Reading{})
		}
	default:
		add.After, add.Begins = to.after, to.none
		added, err = s.addIn(ctx, a, add, to.reading)
	}
	if err != nil {
		return st, err
	}
	if st, err = s.completionAdded(ctx, a, added); to.fork != nil && !st.duplicate {
		st.recorded = services.RecordedFork
	}
	return st, err
}

// forkFor makes a branch for a chat completion, unless it is there.
func (s *Service) forkFor(ctx context.Context, fork decide.ForkSession) error {
	if _, err := s.cfg.SessionWrites.ForkSession(ctx, fork); err != nil {
		return err
	}
	_, err := s.cfg.SessionWrites.DescribeSession(ctx, decide.Describe{
		SessionID: fork.ChildID, RequestID: "completion", Kind: events.KindConversation,
	})
	return err
}

// addIn adds messages to a session that there is.
func (s *Service) addIn(
	ctx context.Context, a ask, add decide.AddMessages, read services.Reading,
) (services.AddedMessages, error) {
	if err := s.placeOutputs(ctx, read, add); err != nil {
		return services.AddedMessages{}, err
	}
	if a.OnPending == services.Reject {
		busy, err := s.busyIn(ctx, add.SessionID, func(t *session.Turn) bool {
			return s.young(t) || s.working(ctx, t.ID, t.CreatedAt)
		})
		if err != nil {
			return services.AddedMessages{}, err
		}
		add.Busy = busy
	}
	return s.addOnce(ctx, a, add)
}

// exact returns the prompt that a chat completion brings itself.
func (s *Service) exact(a ask) (p services.Prompt, tokens int64) {
	sent := message.ParseAll(a.Completion.Sent)
	tokens = int64(s.toolTokens(a))
	for _, m := range sent {
		tokens += int64(s.cfg.Count(m.Words()))
	}
	p = services.Prompt{Messages: a.Completion.Sent, Exact: true, ModelOptions: a.Options}
	if s.cfg.Model.Format() == services.Anthropic {
		p.System, sent = message.Anthropic(sent)
		p.Messages = nil
		for _, m := range sent {
			p.Messages = append(p.Messages, m.JSON())
		}
	}
	return p, tokens
}

// withSent returns a prompt that tells which messages a chat completion brings, with its system messages in place of
// their texts.
func (a ask) withSent(p services.Prompt, format services.Format) services.Prompt {
	c := a.Completion
	if c == nil || format != services.OpenAI {
		return p
	}
	if len(c.System) > 0 && a.Instructions != "" {
		p.Messages = append(slices.Clone(c.System), p.Messages[1:]...)
	}
	p.Sent = map[string]bool{}
	for _, raw := range c.Sent {
		p.Sent[string(raw)], p.Sent[string(events.Raw(raw))] = true, true // or as the builder writes it
	}
	return p
}
