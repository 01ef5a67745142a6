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
	"slices"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/export/explain"
)

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
		x.Saw(explain.Context{HistoryTurns: prompt.HistoryTurns, DroppedTurns: prompt.DroppedTurns}, false)
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
