package history

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

var _ services.MessageWriter = (*Service)(nil)

// AddMessages records messages with one atomic append. Those of one session that come to this process are recorded one
// after the other; if another process comes first, the messages are decided again, until ctx ends.
func (s *Service) AddMessages(
	ctx context.Context, c conversation.AddMessages, call services.Call,
) (services.AddedMessages, error) {
	if err := conversation.ValidIDs("session_id", c.SessionID); err != nil {
		return services.AddedMessages{}, err
	}
	a := &adding{writing: s.writing(c.SessionID), messages: c.Messages, call: call, now: c.Now}
	return a.run(ctx, a.deciding, func(st *conversation.State) conversation.Added { return st.DecideAdd(c) })
}

// BeginSession records a session's description, its link and its first messages with one atomic append.
func (s *Service) BeginSession(
	ctx context.Context, c services.NewSession, call services.Call,
) (services.AddedMessages, error) {
	if err := conversation.ValidIDs("session_id", c.SessionID, "request_id", c.RequestID); err != nil {
		return services.AddedMessages{}, err
	}
	if earlier, err := s.begun(ctx, call); earlier != "" || err != nil {
		return services.AddedMessages{SessionID: earlier, Duplicate: true}, err
	}
	describe, err := conversation.NormalDescribe(conversation.Describe{
		SessionID: c.SessionID, RequestID: c.RequestID, Metadata: c.Metadata, Kind: c.Kind,
	})
	if err != nil {
		return services.AddedMessages{}, err
	}
	a := &adding{writing: s.writing(c.SessionID), messages: c.Messages, call: call, now: c.Now}
	if c.IdentityID != "" {
		if err := a.mayBegin(ctx, c.IdentityID); err != nil {
			return services.AddedMessages{}, err
		}
	}
	return a.run(ctx, a.beginning, func(st *conversation.State) conversation.Added {
		switch {
		case st.Erased != 0:
			return conversation.Added{Decision: conversation.Decision{Err: conversation.ErrSessionErased}}
		case st.Applied != 0:
			return conversation.Added{Decision: conversation.Decision{RestsOn: st.Applied}}
		}
		d := st.DecideDescribe(describe, a.partition)
		if c.IdentityID != "" {
			d.Facts = append(st.DecideLink(c.IdentityID, c.SourceHash).Facts, d.Facts...)
		}
		return behind(d, st.Add(c.AddMessages))
	})
}

// behind returns a decision with the facts of another one before those of added messages.
func behind(first conversation.Decision, more conversation.Added) conversation.Added {
	if first.Err != nil {
		return conversation.Added{Decision: first}
	}
	n := len(first.Facts)
	for i := range more.At {
		more.At[i].Fact += n
	}
	more.Facts = append(first.Facts, more.Facts...)
	more.Bases = append(make([]int, n), more.Bases...)
	return more
}

// adding is a writing of messages.
type adding struct {
	*writing

	messages []conversation.AddedMessage
	call     services.Call
	now      time.Time
	// plan is the last decision, and repeats the append of an earlier call that this one repeats.
	plan    conversation.Added
	repeats *calledAppend
}

// run records what plan decides, and answers with the messages where they stand.
func (a *adding) run(
	ctx context.Context, first state, plan func(*conversation.State) conversation.Added,
) (services.AddedMessages, error) {
	defer a.pin()()
	leave, err := a.alone(ctx)
	if err != nil {
		return services.AddedMessages{}, err
	}
	a.yield = sync.OnceFunc(leave)
	defer a.yield()
	var v verdict
	for {
		v, err = a.writing.run(ctx, first, func(st *conversation.State) conversation.Decision {
			return a.next(st, plan)
		})
		if !errors.Is(err, services.ErrBusy) || ctx.Err() != nil {
			break
		}
		first, a.rounds = a.deciding, 0
	}
	if err != nil {
		return services.AddedMessages{}, err
	}
	out := services.AddedMessages{
		SessionID: a.id, Head: v.head, Position: v.position, Duplicate: a.own.last == 0,
	}
	if out.Duplicate {
		out.Messages, err = a.recorded(ctx)
		return out, err
	}
	for i, at := range a.plan.At {
		begun := at.Begun
		if begun == 0 {
			begun = a.own.first + uint64(at.Fact) //nolint:gosec // an index
		}
		out.Messages = append(out.Messages, services.AddedMessage{
			JSON: a.messages[i].JSON, Answer: at.Answer, Message: at.Message, First: a.at(begun),
		})
	}
	return out, nil
}

func (a *adding) at(seq uint64) events.Position {
	return events.Position{Partition: a.partition, Seq: seq}
}

// next decides, unless the messages stand already: appended by this call, or by one that it repeats.
func (a *adding) next(
	st *conversation.State, plan func(*conversation.State) conversation.Added,
) conversation.Decision {
	if a.own.last != 0 {
		return conversation.Decision{RestsOn: a.own.last}
	}
	a.repeats = nil
	if a.watched != nil {
		a.repeats = a.watched.calls.repeated(a.call, st.Applied, a.now)
	}
	if a.repeats != nil && st.Erased == 0 {
		return conversation.Decision{RestsOn: a.repeats.last()}
	}
	if a.call.Only {
		return conversation.Decision{Err: services.ErrNotRepeated}
	}
	a.plan = plan(st)
	a.calls = headers(a.call, a.plan.Bases)
	return a.plan.Decision
}

// recorded returns the messages of the append that the call repeats, as far as they are in the log.
func (a *adding) recorded(ctx context.Context) ([]services.AddedMessage, error) {
	if a.repeats == nil {
		return nil, nil
	}
	st, err := a.copied(ctx)
	if err != nil {
		return nil, err
	}
	var out []services.AddedMessage
	for seq := a.repeats.first; seq <= a.repeats.last(); seq++ {
		e, found, err := a.log.At(ctx, a.at(seq))
		if err != nil {
			return nil, err
		}
		if found {
			out = append(out, a.ofFact(st, e)...)
		}
	}
	return out, nil
}

// ofFact returns the messages of a recorded fact where they stand.
func (a *adding) ofFact(st *conversation.State, e events.Recorded) (out []services.AddedMessage) {
	texts, first := events.TextsOf(e.Fact), e.Position
	var messages json.RawMessage
	answer := texts.Answer != nil
	switch {
	case texts.Question != nil:
		messages = texts.Question.QuestionMessages
	case answer:
		messages = texts.Answer.AnswerMessages
	case texts.Extension != nil:
		t := st.Turn(events.NamesOf(e.Fact).TurnID)
		if t == nil {
			return nil
		}
		messages, answer = texts.Extension.Messages, texts.Extension.Half == events.HalfAnswer
		first = a.at(t.Begun(texts.Extension.Half))
	}
	var list []json.RawMessage
	_ = json.Unmarshal(messages, &list) // a fact that names no turn has none
	c, _ := parseCall(e.Call)
	for i, raw := range list {
		out = append(out, services.AddedMessage{JSON: raw, Answer: answer, First: first, Message: c.base + i})
	}
	return out
}
