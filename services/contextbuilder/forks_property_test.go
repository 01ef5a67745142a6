package contextbuilder_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/projections/viewtest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
)

// A tree of forks gives the same contexts as plain copies that were edited alike, and the same as it gave then.
func TestForksAreAsCopies(t *testing.T) {
	checks := 12
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		checks = 400
	}
	viewtest.Checks(t, checks)
	rapid.Check(t, func(rt *rapid.T) {
		f := newForest(t, rt, natstest.Log(t, rapid.SampledFrom([]int{1, 4}).Draw(rt, "partitions")))
		for range rapid.IntRange(5, 30).Draw(rt, "steps") {
			f.step()
		}
		f.check()
	})
}

// forest is a tree of sessions, and what it should show.
type forest struct {
	*rapid.T
	ctx      testing.TB
	writes   *history.Service
	builders map[string]*contextbuilder.Builder
	sessions []*planted
	requests int
	seen     []glimpse
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

type text struct {
	session            string
	id                 uuid.UUID
	question, answer   string
	redacted, finished bool
}

// glimpse is what a session showed at a position.
type glimpse struct {
	session *planted
	at      events.Position
	turns   []text
	of      []*text
}

func newForest(t *testing.T, rt *rapid.T, log *jetlog.Log) *forest {
	t.Helper()
	f := &forest{T: rt, ctx: t, builders: map[string]*contextbuilder.Builder{}}
	f.writes = history.New(history.On(log), history.Config{Rules: rules})
	natstest.Run(t, f.writes.Run)
	view := memory.New(recent.Limits{TTL: rules.SessionTTL, MaxTurns: 3}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	for name, v := range map[string]contextbuilder.View{"log": nil, "view": view} {
		r := contextbuilder.NewReader(log, contextbuilder.ReaderConfig{View: v, Rules: rules, Deadline: time.Minute})
		f.builders[name] = contextbuilder.NewBuilder(r, contextbuilder.Config{})
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
	switch rapid.SampledFrom([]string{"say", "say", "say", "ask", "finish", "fork", "fork", "correct", "redact",
		"reset", "erase"}).Draw(f.T, "step") {
	case "say":
		at = f.say(s, true)
	case "ask":
		at = f.say(s, false)
	case "finish":
		at = f.finish(s)
	case "fork":
		f.fork(s)
	case "correct":
		f.correct(s)
	case "redact":
		f.redact(s)
	case "reset":
		at = f.reset(s)
	case "erase":
		if rapid.IntRange(0, 4).Draw(f.T, "rarely") == 0 {
			f.erase(s)
		}
	}
	if at.Seq != 0 {
		f.seen = append(f.seen, f.look(s, at))
	}
}

func (f *forest) say(s *planted, whole bool) events.Position {
	r := f.request()
	c := conversation.Start{SessionID: s.id, RequestID: r, Question: events.Question{QuestionNeutral: "q" + r}}
	x := &text{session: s.id, id: events.TurnID(s.id, r), question: "q" + r}
	if whole {
		c.Answer = &events.Answer{AnswerNeutral: "a" + r}
		x.answer, x.finished = "a"+r, true
	}
	made, err := f.writes.StartTurn(f.ctx.Context(), c)
	require.NoError(f, err)
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

func (f *forest) finish(s *planted) events.Position {
	l := f.pick(s, func(l *leaf) bool { return !l.finished && !l.redacted && l.session == s.id })
	if l == nil {
		return events.Position{}
	}
	made, err := f.writes.FinalizeTurn(f.ctx.Context(), conversation.Finalize{SessionID: s.id, TurnID: l.id,
		Answer: events.Answer{AnswerNeutral: "late"}})
	require.NoError(f, err)
	l.answer, l.finished = "late", true
	return made.Position
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
	made, err := f.writes.ForkSession(f.ctx.Context(), c)
	require.NoError(f, err)
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
	f.seen = append(f.seen, f.look(child, made.Position))
}

func (f *forest) correct(s *planted) {
	l := f.pick(s, func(l *leaf) bool { return l.finished && !l.redacted })
	if l == nil {
		return
	}
	words := "better " + f.request()
	c := conversation.Correct{SessionID: l.session, RequestID: words, TurnID: l.id, QuestionNeutral: &words}
	made, err := f.writes.CorrectTurn(f.ctx.Context(), c)
	require.NoError(f, err)
	l.question, l.id = words, made.ID
	if l.session != s.id {
		_, err = f.writes.CorrectTurn(f.ctx.Context(), conversation.Correct{SessionID: s.id, RequestID: words,
			TurnID: l.id, QuestionNeutral: &words})
		require.ErrorIs(f, err, conversation.ErrTurnInherited)
	}
}

func (f *forest) redact(s *planted) {
	l := f.pick(s, func(l *leaf) bool { return !l.redacted })
	if l == nil {
		return
	}
	_, err := f.writes.RedactTurn(f.ctx.Context(), l.session, conversation.Redact{TurnID: l.id})
	require.NoError(f, err)
	l.redacted = true
}

func (f *forest) reset(s *planted) events.Position {
	made, err := f.writes.ResetSession(f.ctx.Context(), s.id, "")
	require.NoError(f, err)
	for _, l := range s.turns {
		l.hidden = true
	}
	return made.Position
}

func (f *forest) erase(s *planted) {
	_, err := f.writes.EraseSession(f.ctx.Context(), s.id, services.Erasure{})
	require.NoError(f, err)
	s.erased = true
	for _, other := range f.sessions {
		for _, l := range other.turns {
			l.redacted = l.redacted || l.session == s.id
		}
	}
}

// look notes what a session shows now.
func (f *forest) look(s *planted, at events.Position) glimpse {
	g := glimpse{session: s, at: at}
	for _, l := range s.turns {
		if !l.hidden && !l.redacted {
			g.turns, g.of = append(g.turns, *l.text), append(g.of, l.text)
		}
	}
	return g
}

// shows are the messages of what is seen, without what was redacted since.
func (g glimpse) shows(pending bool) (out []string) {
	for i, x := range g.turns {
		switch {
		case g.of[i].redacted || g.session.erased:
		case x.finished:
			out = append(out, x.question, x.answer)
		case pending:
			out = append(out, x.question)
		}
	}
	return append(out, "now")
}

func (f *forest) check() {
	build := func(b *contextbuilder.Builder, r services.ContextRequest) []string {
		r.Message = "now"
		got, err := b.Build(f.ctx.Context(), r)
		require.NoError(f, err)
		var out []string
		for _, m := range got.Messages {
			out = append(out, m.Text())
		}
		return out
	}
	for name, b := range f.builders {
		for _, s := range f.sessions {
			for _, pending := range []bool{false, true} {
				want := f.look(s, events.Position{}).shows(pending)
				ask := services.ContextRequest{SessionID: s.id, MaxMessages: 1000, IncludePending: pending}
				require.Equal(f, want, build(b, ask), "%s: %s, pending %v", name, s.id, pending)
				if ask.MaxMessages = 2; !pending && len(want) > 2 {
					require.Equal(f, want[len(want)-3:], build(b, ask), "%s: %s, the last", name, s.id)
				}
			}
		}
	}
	for _, g := range f.seen {
		got := build(f.builders["log"], services.ContextRequest{SessionID: g.session.id, MaxMessages: 1000,
			IncludePending: true, AsOf: &services.AsOf{Position: &g.at}})
		require.Equal(f, g.shows(true), got, "%s as of %s", g.session.id, g.at)
	}
}
