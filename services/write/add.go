package write

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

var _ services.MessageWriter = (*Service)(nil)

// AddMessages records messages with one atomic append. Calls that add to one session, and come to this process at once,
// share an append. If another process comes first, the messages are decided again, until ctx ends.
func (s *Service) AddMessages(
	ctx context.Context, c decide.AddMessages, call services.Call,
) (services.AddedMessages, error) {
	if err := decide.ValidIDs("session_id", c.SessionID); err != nil {
		return services.AddedMessages{}, err
	}
	return s.add(ctx, &adding{AddMessages: c, call: call})
}

// BeginSession records a session's description, its link and its first messages with one atomic append.
func (s *Service) BeginSession(
	ctx context.Context, c services.NewSession, call services.Call,
) (services.AddedMessages, error) {
	if err := decide.ValidIDs("session_id", c.SessionID, "request_id", c.RequestID); err != nil {
		return services.AddedMessages{}, err
	}
	if done, err := s.begun(ctx, call, c.Now); !errors.Is(err, services.ErrNotRepeated) {
		return done, err
	}
	describe, err := decide.NormalDescribe(decide.Describe{
		SessionID: c.SessionID, RequestID: c.RequestID, Metadata: c.Metadata, Kind: c.Kind,
	})
	if err != nil {
		return services.AddedMessages{}, err
	}
	begins := func(st *session.State) decide.Added {
		switch {
		case st.Erased != 0:
			return decide.Added{Decision: decide.Decision{Err: decide.ErrSessionErased}}
		case st.Applied != 0:
			return decide.Added{Decision: decide.Decision{RestsOn: st.Applied}}
		}
		d := describe.On(st, s.log.Partition(c.SessionID))
		if c.IdentityID != "" {
			d.Facts = append(decide.Link(st, c.IdentityID, c.SourceHash).Facts, d.Facts...)
		}
		return behind(d, c.AddMessages.On(st))
	}
	return s.add(ctx, &adding{
		AddMessages: c.AddMessages, call: call, begins: begins, identity: c.IdentityID, drawn: c.Drawn,
	})
}

// behind returns a decision with the facts of another one before those of added messages.
func behind(first decide.Decision, more decide.Added) decide.Added {
	if first.Err != nil {
		return decide.Added{Decision: first}
	}
	n := len(first.Facts)
	for i := range more.At {
		more.At[i].Fact += n
	}
	more.Facts = append(first.Facts, more.Facts...)
	more.Bases = append(make([]int, n), more.Bases...)
	return more
}

// adding is a call that adds messages to a session.
type adding struct {
	decide.AddMessages

	ctx  context.Context //nolint:containedctx // of one call
	call services.Call
	// begins, if set, decides in place of decide.Adds: the call begins the session, perhaps with an identity.
	begins   func(*session.State) decide.Added
	identity string
	drawn    bool
	// plan is the last decision, and first the place of its first fact in the append. repeats is the append of an
	// earlier call that this one repeats.
	plan    decide.Added
	first   int
	repeats *calledAppend

	done services.AddedMessages
	err  error
}

// add records messages, perhaps together with those of other calls.
func (s *Service) add(ctx context.Context, a *adding) (services.AddedMessages, error) {
	a.ctx, a.err = ctx, jetlog.ErrUnavailable
	p := s.inFlight.pin(a.SessionID)
	defer s.inFlight.unpin(a.SessionID, p)
	if err := p.adds.Do(ctx, a, shareAppend, s.addTogether); err != nil {
		return services.AddedMessages{}, jetlog.Unavailable("", err)
	}
	return a.done, a.err
}

// shareAppend returns how many of the calls that wait may share an append: their decisions do not depend on each
// other's being in the log. If the first one is a single message it goes alone, since one event needs no atomic batch,
// which costs several fsyncs. Where the first one needs a batch, the others come along
// (docs/decisions.md#calls-share-an-append).
func shareAppend(waiting []*adding) (n int) {
	first, messages, size := waiting[0], 0, 0
	if first.alone() || len(first.Messages) == 1 {
		return 1
	}
	keys := map[string]bool{}
	for _, a := range waiting {
		messages += len(a.Messages)
		for _, m := range a.Messages {
			size += len(m.JSON)
		}
		key := a.call.Key
		if n > 0 && (a.alone() || keys[key] || messages > 2*runTurns || size > runBytes) {
			break
		}
		keys[key] = key != ""
		n++
	}
	return n
}

// alone reports whether the call needs an append of its own. What comes before it in the log decides what it does.
func (a *adding) alone() bool {
	return a.begins != nil || a.call.Repeats || a.call.Only || a.After > 0 || a.Begins || a.Busy != nil
}

// addTogether records the messages of calls with one append. It goes on until the last of its callers has given up.
func (s *Service) addTogether(calls []*adding, yield func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(calls[0].ctx))
	defer cancel()
	var waiting atomic.Int64
	waiting.Add(int64(len(calls)))
	for _, a := range calls {
		defer context.AfterFunc(a.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	w := &additions{writing: s.writing(calls[0].SessionID), all: calls}
	w.yield = yield
	switch err := w.run(ctx); {
	case err == nil:
	case len(calls) > 1 && errors.Is(err, jetlog.ErrTooLarge):
		// One event is too large for the log, which took none of them.
		for i := range calls {
			s.addTogether(calls[i:i+1], yield)
		}
	default:
		for _, a := range calls {
			a.err = err
		}
	}
}

// additions is a writing of the messages of calls.
type additions struct {
	*writing

	all []*adding
}

// run records what the calls add, and answers each with its messages where they stand.
func (w *additions) run(ctx context.Context) error {
	defer w.pin()()
	first := w.deciding
	if a := w.all[0]; a.begins != nil {
		first, w.unseen = w.beginning, a.drawn
		if a.identity != "" {
			if err := w.mayBegin(ctx, a.identity); err != nil {
				return err
			}
		}
	}
	var v verdict
	var err error
	for {
		v, err = w.writing.run(ctx, first, w.next)
		if !errors.Is(err, services.ErrBusy) || ctx.Err() != nil {
			break
		}
		first, w.rounds = w.deciding, 0
	}
	if err != nil {
		return err
	}
	for _, a := range w.all {
		a.err = w.answerTo(ctx, a, v)
	}
	return nil
}

// answerTo answers a call with its messages.
func (w *additions) answerTo(ctx context.Context, a *adding, v verdict) (err error) {
	a.done = services.AddedMessages{SessionID: w.id, Head: v.head, Position: v.position}
	if a.repeats != nil || w.own.last == 0 {
		a.done.Duplicate = true
		if a.repeats != nil {
			a.done.Position = w.at(a.repeats.last())
			err = w.recorded(ctx, a)
		}
		return err
	}
	for i, at := range a.plan.At {
		begun := at.Begun
		if begun == 0 {
			begun = w.own.first + uint64(at.Fact) //nolint:gosec // an index
		}
		a.done.Messages = append(a.done.Messages, services.AddedMessage{
			JSON: a.Messages[i].JSON, Answer: at.Answer, Message: at.Message, First: w.at(begun),
		})
	}
	a.done.Position = w.at(w.own.first + uint64(a.first+len(a.plan.Facts)) - 1) //nolint:gosec // an index
	a.done.Place = w.placeOf(a)
	if o, counted := w.outcome(a.done.Position.Seq); counted {
		a.done.Event = &events.Recorded{
			Position: a.done.Position, Time: o.time, ID: o.id, Call: o.call, SessionID: w.id,
			Fact: a.plan.Facts[len(a.plan.Facts)-1],
		}
	}
	return nil
}

func (w *additions) at(seq uint64) events.Position {
	return events.Position{Partition: w.partition, Seq: seq}
}

// next decides, unless the messages stand already: appended by this write, or by calls that these repeat.
func (w *additions) next(st *session.State) (all decide.Decision) {
	if w.own.last != 0 {
		return decide.Decision{RestsOn: w.own.last}
	}
	w.calls = nil
	var fresh []*adding
	for _, a := range w.all {
		a.repeats = nil
		if w.watched != nil && st.Erased == 0 {
			a.repeats = w.watched.calls.repeated(a.call, a.Now)
		}
		switch {
		case a.repeats != nil:
			all.RestsOn = max(all.RestsOn, a.repeats.last())
		case a.call.Only:
			return decide.Decision{Err: services.ErrNotRepeated}
		default:
			fresh = append(fresh, a)
		}
	}
	for i, plan := range planned(st, fresh) {
		a := fresh[i]
		if a.plan = plan; plan.Err != nil {
			return plan.Decision // all are refused alike
		}
		a.first = len(all.Facts)
		all.Facts = append(all.Facts, plan.Facts...)
		all.Expect, all.RestsOn = all.Expect || plan.Expect, max(all.RestsOn, plan.RestsOn)
		w.calls = append(w.calls, headers(a.call, plan.Bases)...)
	}
	return all
}

// planned returns the decisions of calls.
func planned(st *session.State, calls []*adding) []decide.Added {
	if len(calls) > 0 && calls[0].begins != nil {
		return []decide.Added{calls[0].begins(st)}
	}
	commands := make([]decide.AddMessages, len(calls))
	for i, a := range calls {
		commands[i] = a.AddMessages
	}
	return decide.Adds(st, commands)
}

// recorded answers a repeated call with what is left of its append.
func (w *additions) recorded(ctx context.Context, a *adding) error {
	before := uint64(0)
	for {
		st, err := w.now(ctx, w.id)
		if err != nil || st.Applied == before {
			return err
		}
		before = st.Applied
		lost, err := w.left(ctx, a, st)
		if err != nil || !lost {
			return err
		}
		// An event has left the log since the state was copied, or has been lost: then the state stays as it is.
	}
}

// left answers a call with the messages of the append that it repeats, as far as they stand, and with the turn of the
// last of them. A message of a pruned turn stands in the prune: the event that brought it is about to leave the log.
// lost says that the log lacks an event which the state asks for.
func (w *additions) left(ctx context.Context, a *adding, st *session.State) (lost bool, err error) {
	a.done.Messages, a.done.TurnID = nil, uuid.Nil
	var e events.Recorded
	for seq := a.repeats.first; seq <= a.repeats.last(); seq++ {
		i := st.BroughtBy(w.at(seq), w.partition)
		if i < 0 {
			continue // it names no turn
		}
		t := st.Turns[i]
		a.done.TurnID = t.ID
		if t.Status != session.Pending && t.Status != session.Finalized {
			continue
		}
		if at := w.at(max(seq, t.PrunedAt())); e.Position != at {
			var found bool
			if e, found, err = w.log.At(ctx, at); err != nil {
				return false, err
			}
			if !found {
				lost = true
				continue
			}
		}
		if e.Position.Seq == seq {
			a.done.Messages = append(a.done.Messages, w.ofFact(t, e)...)
			continue
		}
		for _, m := range session.Messages(t, []events.Recorded{e}) {
			if m.First == seq {
				a.done.Messages = append(a.done.Messages, services.AddedMessage{
					JSON: m.Raw, Answer: m.Half == events.HalfAnswer, First: w.at(m.Begun), Message: m.Number,
				})
			}
		}
	}
	return lost, nil
}

// ofFact returns the messages that a recorded fact brought to a turn, where they stand.
func (w *additions) ofFact(t *session.Turn, e events.Recorded) (out []services.AddedMessage) {
	c, _ := parseCall(e.Call)
	add := func(half events.Half, messages json.RawMessage, base int) {
		var list []json.RawMessage
		_ = json.Unmarshal(messages, &list) // a body that was decoded holds a list
		for i, raw := range list {
			out = append(out, services.AddedMessage{
				JSON: raw, Answer: half == events.HalfAnswer, First: w.at(t.Begun(half)), Message: base + i,
			})
		}
	}
	texts := events.TextsOf(e.Fact)
	if q := texts.Question; q != nil {
		add(events.HalfQuestion, q.QuestionMessages, c.base)
	}
	if a := texts.Answer; a != nil {
		add(events.HalfAnswer, a.AnswerMessages, 0)
	}
	if x := texts.Extension; x != nil {
		add(x.Half, x.Messages, c.base)
	}
	return out
}
