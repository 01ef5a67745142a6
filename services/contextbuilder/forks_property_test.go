package contextbuilder_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/export/explain"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
	"github.com/turnledger/turnledger/services/write"
)

// A tree of forks gives the same contexts, lists and explanations as plain copies that were edited alike, and the same
// contexts as it gave then, by position and by time.
//
//conformance:i8 i40 f11 f12 h24 h26 h38 s26
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
	writes   *write.Service
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
	f.writes = write.New(write.On(log), write.Config{Rules: rules})
	natstest.Run(t, f.writes.Run)
	view := memory.New(recent.Limits{TTL: rules.SessionTTL, MaxTurns: 3}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	for name, v := range map[string]read.View{"log": nil, "view": view} {
		r := read.New(log, read.Config{View: v, Rules: rules, Deadline: hang.Limit})
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
	c := decide.Start{SessionID: s.id, RequestID: r, Question: events.Question{QuestionNeutral: "q" + r}}
	x := &text{session: s.id, id: events.TurnID(s.id, r), question: "q" + r}
	if whole {
		c.Answer = &events.Answer{AnswerNeutral: "a" + r}
		x.answer, x.finished = "a"+r, true
	}
	f.explain(s, x)
	made := must.Get(f.writes.StartTurn(f.ctx.Context(), c))(f)
	x.at = []events.Position{made.Position}
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
	made := must.Get(f.writes.FinalizeTurn(f.ctx.Context(), decide.Finalize{SessionID: s.id, TurnID: l.id,
		Answer: events.Answer{AnswerNeutral: "late"}}))(f)
	l.answer, l.finished, l.at = "late", true, append(l.at, made.Position)
	return made.Position, l.text
}

func (f *forest) fork(s *planted) {
	c := decide.ForkSession{SessionID: s.id, RequestID: f.request(), ChildID: fmt.Sprint("b", f.requests)}
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
	c := decide.Correct{SessionID: l.session, RequestID: words, TurnID: l.id, QuestionNeutral: &words}
	made := must.Get(f.writes.CorrectTurn(f.ctx.Context(), c))(f)
	l.replaced = append(l.replaced, version{l.id, l.question})
	l.question, l.id, l.at = words, made.ID, append(l.at, made.Position)
	if l.session != s.id {
		must.Fail(f.writes.CorrectTurn(f.ctx.Context(), decide.Correct{SessionID: s.id, RequestID: words,
			TurnID: l.id, QuestionNeutral: &words}))(f, decide.ErrTurnInherited)
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
	must.Get(f.writes.RedactTurn(f.ctx.Context(), l.session, decide.Redact{TurnID: l.id}))(f)
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
	must.Fail(f.writes.LinkSession(f.ctx.Context(), s.id, "bob", ""))(f, decide.ErrLinkedElsewhere)
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

// look notes what a session shows now.
func (*forest) look(s *planted, at services.AsOf) glimpse {
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

func (f *forest) build(b *contextbuilder.Builder, r services.ContextRequest) (out []string) {
	r.Message = "now"
	got := must.Get(b.Build(f.ctx.Context(), r))(f)
	for _, m := range got.Messages {
		out = append(out, m.Text())
	}
	return out
}

func (f *forest) checkContexts() {
	for name, b := range f.builders {
		for _, s := range f.sessions {
			for _, pending := range []bool{false, true} {
				want := f.look(s, services.AsOf{}).shows(pending)
				ask := services.ContextRequest{SessionID: s.id, MaxMessages: 1000, IncludePending: pending}
				require.Equal(f, want, f.build(b, ask), "%s: %s, pending %v", name, s.id, pending)
				if ask.MaxMessages = 2; !pending && len(want) > 2 {
					require.Equal(f, want[len(want)-3:], f.build(b, ask), "%s: %s, the last", name, s.id)
				}
			}
		}
	}
}

func (f *forest) checkPast() {
	for _, g := range f.seen {
		if g.by != nil && g.by.scrubbed {
			continue // nothing says when the position was
		}
		got := f.build(f.builders["log"], services.ContextRequest{SessionID: g.session.id, MaxMessages: 1000,
			IncludePending: true, AsOf: &g.at})
		require.Equal(f, g.shows(true), got, "%s as of %v %s", g.session.id, g.at.Position, g.at.Time)
	}
}

// listed is a turn of a list.
type listed struct {
	SessionID  string  `json:"session_id"`
	IdentityID *string `json:"identity_id"`
	TurnID     string  `json:"turn_id"`
	Status     string  `json:"status"`
	Question   *string `json:"question_neutral"`
	Version    int     `json:"record_version"`
	Inherited  bool    `json:"inherited"`
}

// list is what a list of a session's turns should be.
func (f *forest) list(s *planted, status string) []listed {
	out := []listed{}
	for _, l := range s.turns {
		if s.erased || l.erased {
			continue
		}
		for i, v := range append(slices.Clone(l.replaced), version{l.id, l.question}) {
			x := listed{SessionID: l.session, TurnID: v.id.String(), Question: &v.question, Version: i + 1,
				Inherited: l.session != s.id}
			if f.identity != "" {
				x.IdentityID = &f.identity
			}
			switch {
			case l.redacted:
				x.Status, x.Question = "redacted", nil
			case i < len(l.replaced):
				x.Status = "replaced"
			case l.finished:
				x.Status = "finalized"
			default:
				x.Status = "pending"
			}
			if status == "all" || status == x.Status {
				out = append(out, x)
			}
		}
	}
	return out
}

func (f *forest) checkLists() {
	for name, api := range f.apis {
		for _, s := range f.sessions {
			for _, status := range []string{"finalized", "pending", "all"} {
				limit := rapid.SampledFrom([]int{1, 2, 3, 1000}).Draw(f.T, "limit")
				got, cursor := []listed{}, ""
				for more := true; more; more = cursor != "" {
					at := fmt.Sprintf("http://127.0.0.1/v1/sessions/%s/turns?status=%s&limit=%d", s.id, status, limit)
					if cursor != "" {
						at += "&cursor=" + cursor
					}
					answer := httptest.NewRecorder()
					api.ServeHTTP(answer, httptest.NewRequestWithContext(f.ctx.Context(), http.MethodGet, at, nil))
					require.Equal(f, http.StatusOK, answer.Code, answer.Body)
					var page struct {
						Turns      []listed `json:"turns"`
						NextCursor *string  `json:"next_cursor"`
					}
					require.NoError(f, json.Unmarshal(answer.Body.Bytes(), &page))
					require.LessOrEqual(f, len(page.Turns), limit)
					got = append(page.Turns, got...)
					cursor = *cmp.Or(page.NextCursor, new(string))
				}
				require.Equal(f, f.list(s, status), got, "%s: %s, %s by %d", name, s.id, status, limit)
			}
		}
	}
}

// explained is a turn, and what stood before it when it was asked.
type explained struct {
	session *planted
	turn    *text
	before  []reason
}

// reason says why a version of an earlier turn was not shown, or that it was.
type reason struct {
	of   *text
	id   uuid.UUID
	seen string
}

// explain notes why a turn that is about to be asked sees what it sees.
func (f *forest) explain(s *planted, x *text) {
	e := explained{session: s, turn: x}
	for _, l := range s.turns {
		for _, v := range l.replaced {
			e.before = append(e.before, reason{l.text, v.id, "corrected"})
		}
		seen := "shown"
		switch {
		case l.hidden:
			seen = "before a reset or a silence"
		case !l.finished:
			seen = "had no answer yet"
		}
		e.before = append(e.before, reason{l.text, l.id, seen})
	}
	f.asked = append(f.asked, e)
}

// lines are the events of a session as a replay prints them.
func (f *forest) lines(session string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := must.Get(f.replay.OpenEvents(f.ctx.Context(), services.EventQuery{SessionID: session}))(f)
		defer s.Close()
		for {
			batch, err := s.Next(f.ctx.Context())
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(f, err)
			for _, e := range batch {
				if !yield(e.JSON, nil) {
					return
				}
			}
		}
	}
}

func (f *forest) checkExplanations() {
	for _, e := range f.asked {
		if e.session.erased || e.turn.scrubbed {
			continue
		}
		x := must.Get(explain.New(e.session.id, e.turn.id, f.lines, false))(f)
		inherited := *x
		at := must.Get(events.ParsePosition(x.AsOf))(f)
		prompt := must.Get(f.builders["log"].Build(f.ctx.Context(), services.ContextRequest{SessionID: x.SessionID,
			Message: "now", TurnID: x.Root, MaxMessages: 1000, AsOf: &services.AsOf{Position: &at}}))(f)
		seen := explain.Context{HistoryTurns: prompt.HistoryTurns, DroppedTurns: prompt.DroppedTurns}
		for _, id := range prompt.TurnIDs {
			seen.TurnIDs = append(seen.TurnIDs, id.String())
		}
		x.Saw(seen, false)
		var want, got []string
		shown := 0
		for _, r := range e.before {
			seen := r.seen
			switch {
			case r.of.erased:
				continue
			case r.of.redacted:
				seen = "redacted"
			case seen == "shown":
				shown++
			}
			want = append(want, fmt.Sprint(r.of.session, r.id, seen, r.of.session != e.session.id))
		}
		for _, t := range x.Turns {
			got = append(got, fmt.Sprint(t.SessionID, t.TurnID, t.Seen, t.Inherited))
		}
		require.Equal(f, want, got, "%s of %s", e.turn.id, e.session.id)
		require.Equal(f, shown, prompt.HistoryTurns)
		f.checkInherited(&inherited, e.turn)
	}
}

// checkInherited asks the branches that share a turn for its explanation, which is that of its own session.
func (f *forest) checkInherited(want *explain.Explanation, turn *text) {
	for _, s := range f.sessions {
		shares := slices.ContainsFunc(s.turns, func(l *leaf) bool { return l.text == turn })
		if !shares || s.id == turn.session || s.erased {
			continue
		}
		got := must.Get(explain.New(s.id, turn.id, f.lines, false))(f)
		require.True(f, got.Inherited)
		got.Inherited = false
		require.Equal(f, want, got, "%s through %s", turn.id, s.id)
	}
}
