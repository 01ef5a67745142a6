package contextbuilder_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
)

// A tree of forks gives the same contexts, lists and explanations as plain copies that were edited alike, and the same
// contexts as it gave then, by position and by time.
//
//conformance:s26
func TestForksAreAsCopies(t *testing.T) {
	checks := 12
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		checks = 400
	}
	viewtest.Checks(t, checks)
	rapid.Check(t, func(rt *rapid.T) {
		f := newForest(t, rt, natstest.Log(t, rapid.SampledFrom([]int{1, 4}).Draw(rt, "partitions")))
		for range rapid.IntRange(10, 40).Draw(rt, "steps") {
			f.step()
		}
		f.checkContexts()
		f.checkPast()
		f.checkLists()
		f.checkExplanations()
	})
}

// forest is a tree of sessions, and what it should show.
type forest struct {
	*rapid.T
	ctx      testing.TB
	writes   *history.Service
	log      *jetlog.Log
	builders map[string]*contextbuilder.Builder
	apis     map[string]http.Handler
	replay   *replay.Replay
	sessions []*planted
	identity string
	requests int
	seen     []glimpse
	asked    []explained
}

// planted is a session as a plain copy would be.
type planted struct {
	id     string
	turns  []*leaf
	erased bool
}

// leaf is a turn in a copy: the text is one for all copies, and the boundary each copy's own.
type leaf struct {
	*text
	hidden bool
}

// text is a turn: its standing version, and the versions before that one. The events at are gone once it is scrubbed.
type text struct {
	session                              string
	id                                   uuid.UUID
	question, answer                     string
	redacted, finished, scrubbed, erased bool
	replaced                             []version
	at                                   []events.Position
}

type version struct {
	id       uuid.UUID
	question string
}

// glimpse is what a session showed at a position, or at a time.
type glimpse struct {
	session *planted
	at      services.AsOf
	// by is the turn whose event stands at the position, if one does. With that event the position's time may leave
	// the log.
	by    *text
	turns []text
	of    []*text
}

func newForest(t *testing.T, rt *rapid.T, log *jetlog.Log) *forest {
	t.Helper()
	f := &forest{T: rt, ctx: t, log: log, replay: replay.New(log, owners.New(log, nil)),
		builders: map[string]*contextbuilder.Builder{}, apis: map[string]http.Handler{}}
	natstest.Run(t, f.replay.Run)
	f.writes = history.New(history.On(log), history.Config{Rules: rules})
	natstest.Run(t, f.writes.Run)
	view := memory.New(recent.Limits{TTL: rules.SessionTTL, MaxTurns: 3}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	for name, v := range map[string]read.View{"log": nil, "view": view} {
		r := read.New(log, read.Config{View: v, Rules: rules, Deadline: time.Minute})
		f.builders[name] = contextbuilder.NewBuilder(r, contextbuilder.Config{})
		f.apis[name] = servicetest.Services{History: f.writes, Reader: r, Contexts: f.builders[name]}.
			API(wire.Config{Open: true}, v1.Config{})
	}
	f.sessions = []*planted{{id: "root"}}
	f.say(f.sessions[0], true)
	return f
}

func (f *forest) request() string {
	f.requests++
	return fmt.Sprint("r", f.requests)
}

func (f *forest) step() {
	s := rapid.SampledFrom(f.sessions).Draw(f.T, "session")
	if s.erased {
		return
	}
	var at events.Position
	var by *text
	switch rapid.SampledFrom([]string{"say", "say", "say", "ask", "finish", "fork", "fork", "correct", "redact",
		"redact", "reset", "link", "erase"}).Draw(f.T, "step") {
	case "say":
		at = f.say(s, true)
		by = s.turns[len(s.turns)-1].text
	case "ask":
		at = f.say(s, false)
		by = s.turns[len(s.turns)-1].text
	case "finish":
		at, by = f.finish(s)
	case "fork":
		f.fork(s)
	case "correct":
		f.correct(s)
	case "redact":
		f.redact(s)
	case "reset":
		at = f.reset(s)
	case "link":
		f.link(s)
	case "erase":
		if rapid.IntRange(0, 4).Draw(f.T, "rarely") == 0 {
			f.erase(s)
		}
	}
	if at.Seq != 0 {
		g := f.look(s, services.AsOf{Position: &at})
		g.by = by
		f.seen = append(f.seen, g)
	}
	other := rapid.SampledFrom(f.sessions).Draw(f.T, "seen")
	f.seen = append(f.seen, f.look(other, services.AsOf{Time: f.now()}))
}

// now returns the time of the newest event, after all that was recorded.
func (f *forest) now() (last time.Time) {
	for partition := range f.log.Partitions() {
		head := must.Get(f.log.Head(f.ctx.Context(), partition))(f)
		if head.Seq == 0 {
			continue
		}
		// The newest event of a partition is never one that was scrubbed, since a redaction stands behind those.
		e, found, err := f.log.At(f.ctx.Context(), head)
		require.NoError(f, err)
		require.True(f, found, "%s", head)
		if e.Time.After(last) {
			last = e.Time
		}
	}
	return last
}

func (f *forest) say(s *planted, whole bool) events.Position {
	r := f.request()
	c := conversation.Start{SessionID: s.id, RequestID: r, Question: events.Question{QuestionNeutral: "q" + r}}
	x := &text{session: s.id, id: events.TurnID(s.id, r), question: "q" + r}
	if whole {
		c.Answer = &events.Answer{AnswerNeutral: "a" + r}
		x.answer, x.finished = "a"+r, true
	}
	f.explain(s, x)
	made := must.Get(f.writes.StartTurn(f.ctx.Context(), c))(f)
	x.at = []events.Position{made.Position}
	if whole { // the start stands right before the answer
		x.at = append(x.at, events.Position{Partition: made.Position.Partition, Seq: made.Position.Seq - 1})
	}
	s.turns = append(s.turns, &leaf{text: x})
	return made.Position
}

// pick draws a turn of a session.
func (f *forest) pick(s *planted, wanted func(*leaf) bool) *leaf {
	var some []*leaf
	for _, l := range s.turns {
		if wanted(l) {
			some = append(some, l)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(f.T, "turn")
}

func (f *forest) finish(s *planted) (events.Position, *text) {
	l := f.pick(s, func(l *leaf) bool { return !l.finished && !l.redacted && l.session == s.id })
	if l == nil {
		return events.Position{}, nil
	}
	made := must.Get(f.writes.FinalizeTurn(f.ctx.Context(), conversation.Finalize{SessionID: s.id, TurnID: l.id,
		Answer: events.Answer{AnswerNeutral: "late"}}))(f)
	l.answer, l.finished, l.at = "late", true, append(l.at, made.Position)
	return made.Position, l.text
}

func (f *forest) fork(s *planted) {
	c := conversation.ForkSession{SessionID: s.id, RequestID: f.request(), ChildID: fmt.Sprint("b", f.requests)}
	until := len(s.turns)
	switch rapid.IntRange(0, 2).Draw(f.T, "way") {
	case 0:
		if l := f.pick(s, func(l *leaf) bool { return l.finished && !l.redacted && !l.hidden }); l != nil {
			c.TurnID, until = l.id, slices.Index(s.turns, l)+1
		}
	case 1:
		if l := f.pick(s, func(l *leaf) bool { return !l.redacted && !l.hidden }); l != nil {
			c.BeforeTurnID, until = l.id, slices.Index(s.turns, l)
		}
	}
	made := must.Get(f.writes.ForkSession(f.ctx.Context(), c))(f)
	child := &planted{id: made.SessionID}
	for until > 0 && (!s.turns[until-1].finished || s.turns[until-1].redacted || s.turns[until-1].hidden) {
		until--
	}
	for _, l := range s.turns[:until] {
		if l.finished {
			child.turns = append(child.turns, &leaf{l.text, l.hidden})
		}
	}
	f.sessions = append(f.sessions, child)
	f.seen = append(f.seen, f.look(child, services.AsOf{Position: &made.Position}))
}

func (f *forest) correct(s *planted) {
	l := f.pick(s, func(l *leaf) bool { return l.finished && !l.redacted })
	if l == nil {
		return
	}
	words := "better " + f.request()
	c := conversation.Correct{SessionID: l.session, RequestID: words, TurnID: l.id, QuestionNeutral: &words}
	made := must.Get(f.writes.CorrectTurn(f.ctx.Context(), c))(f)
	l.replaced = append(l.replaced, version{l.id, l.question})
	l.question, l.id, l.at = words, made.ID, append(l.at, made.Position)
	if l.session != s.id {
		must.Fail(f.writes.CorrectTurn(f.ctx.Context(), conversation.Correct{SessionID: s.id, RequestID: words,
			TurnID: l.id, QuestionNeutral: &words}))(f, conversation.ErrTurnInherited)
	}
}

func (f *forest) redact(s *planted) {
	l := f.pick(s, func(l *leaf) bool { return !l.redacted })
	if l == nil {
		return
	}
	// The last shared turn is where a segment ends, so it is redacted more often than the others.
	if rapid.Bool().Draw(f.T, "the last shared") {
		for _, shared := range s.turns {
			if shared.session != s.id && !shared.redacted {
				l = shared
			}
		}
	}
	must.Get(f.writes.RedactTurn(f.ctx.Context(), l.session, conversation.Redact{TurnID: l.id}))(f)
	l.redacted = true
	if l.scrubbed = rapid.Bool().Draw(f.T, "scrubbed"); l.scrubbed {
		for _, at := range l.at {
			must.Get(overwrite.On(f.log).Erase(f.ctx.Context(), at))(f)
		}
	}
}

// link links the tree by one of its sessions; a later link to another identity is refused.
func (f *forest) link(s *planted) {
	if f.sessions[0].erased {
		return // the link is judged there
	}
	must.Get(f.writes.LinkSession(f.ctx.Context(), s.id, "ada", ""))(f)
	f.identity = "ada"
	must.Fail(f.writes.LinkSession(f.ctx.Context(), s.id, "bob", ""))(f, conversation.ErrLinkedElsewhere)
}

func (f *forest) reset(s *planted) events.Position {
	made := must.Get(f.writes.ResetSession(f.ctx.Context(), s.id, ""))(f)
	for _, l := range s.turns {
		l.hidden = true
	}
	return made.Position
}

func (f *forest) erase(s *planted) {
	must.Get(f.writes.EraseSession(f.ctx.Context(), s.id, services.Erasure{}))(f)
	s.erased = true
	for _, other := range f.sessions {
		for _, l := range other.turns {
			if l.session == s.id {
				l.erased, l.redacted = true, true
			}
		}
	}
}
