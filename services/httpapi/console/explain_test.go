package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
)

// rowOf returns what the table of the turns before says of a turn: its question, and whether the prompt showed it.
func rowOf(t *testing.T, body, turn string) string {
	t.Helper()
	found := regexp.MustCompile(`#t-` + turn + `">[^<]*</a></td>(.*?)</tr>`).FindStringSubmatch(body)
	require.NotNil(t, found, turn)
	return found[1]
}

func TestAnExplanation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turns := conversed(s)
	must.Get(s.services.History.StartTurn(t.Context(), decide.Start{
		SessionID: "s", RequestID: "german", Question: events.Question{
			QuestionNeutral: "good day", QuestionTranslated: "guten Tag",
		}, Answer: &events.Answer{AnswerNeutral: "bye", AnswerTranslated: "ade"},
	}))(t)
	asked := s.turn("s", "asked", "why is that?", "because")
	s.turn("s", "later", "a later question", "a later answer")
	address := "/console/sessions/s/turns/" + asked.ID.String()
	a := s.page(address, "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body, "why is that?", "A plain answer.", "a corrected question", "It is sunny.",
		asked.ID.String(), `href="/console/sessions/s?at=0:10#t-`,
		`<output id="nth" for="n">12</output> of 15`, "[Image: https://elsewhere.example/cat.png]",
		`Tool: <bdi class="id">weather</bdi>`)
	prompt, rest, _ := strings.Cut(a.body, "What it was answered")
	answer, _, _ := strings.Cut(rest, "Turns before it")
	require.Contains(t, answer, ">because</div>")
	require.NotContains(t, prompt, "because")
	require.Contains(t, prompt, "with at most 20 messages of history. The log does not record")
	must.Lack(t, a.body, "unspeakable", "a later")
	must.Lack(t, prompt, "a misspelt question", "still open?")
	require.Contains(t, rowOf(t, a.body, turns["pending"].ID.String()), ">still open?</td>")
	require.Less(t, strings.Index(rest, "#t-"+turns["pending"].ID.String()),
		strings.Index(rest, "#t-"+turns["plain"].ID.String()), "the newest first")
	for name, want := range map[string]string{"plain": "shown", "wrong": "corrected", "gone": "redacted",
		"tools": "shown", "pending": "had no answer yet"} {
		require.Contains(t, rowOf(t, a.body, turns[name].ID.String()), want, name)
	}
	narrow := s.page(address+"?max_messages=2&pending=true", "").body
	require.Contains(t, narrow, "with at most 2 messages of history, questions that have no answer yet.")
	require.Contains(t, rowOf(t, narrow, turns["plain"].ID.String()), "left out by the window")
	require.NotContains(t, a.body, "guten Tag")
	require.Contains(t, s.page(address+"?language=translated", "").body, "guten Tag")
	require.Contains(t, s.page("/console/sessions/s/turns/"+turns["pending"].ID.String(), "").body,
		"The turn has no answer yet.")
	require.Contains(t, s.page("/console/sessions/s/turns/"+turns["gone"].ID.String(), "").body,
		"The turn was redacted: its answer is gone.")
	require.Contains(t, s.page(address+"?pending=true", "").body, "still open?")
	require.Contains(t, s.page("/console/sessions/s", "").body, `href="`+address+`"`)

	for _, none := range []string{"/console/sessions/s/turns/x", "/console/sessions/s/turns/" +
		events.TurnID("s", "none").String(), "/console/sessions/other/turns/" + asked.ID.String()} {
		require.Equal(t, http.StatusNotFound, s.page(none, "").status, none)
	}
	for _, wrong := range []string{"?max_messages=1", "?max_messages=x", "?max_tokens=x", "?max_tokens=-1"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page(address+wrong, "").status)
	}
}

// Each event of a session is a position of the slider: the page shows what a prompt could see there, with today's
// redactions.
func TestAnEventIsExplained(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	first := s.turn("s", "1", "the first", "an answer")                                         // 1, 2
	second := s.turn("s", "2", "the second", "a private address")                               // 3, 4
	s.correct("s", first, "a better answer")                                                    // 5
	_, err := s.services.History.RedactTurn(t.Context(), "s", decide.Redact{TurnID: second.ID}) // 6
	require.NoError(t, err)
	_, err = s.services.History.ResetSession(t.Context(), "s", "") // 7
	require.NoError(t, err)
	at := func(query string, want int) string {
		a := s.page("/console/sessions/s/explain"+query, "")
		require.Equal(t, want, a.status, query)
		require.NotContains(t, a.body, "a private address")
		return a.body
	}
	body := at("?n=2", http.StatusOK)
	must.Contain(t, body, "an answer", "by a question right after this event", "turn.finalized.v1",
		`<output id="nth" for="n">2</output> of 7`, `id="here" href="/console/sessions/s/explain?at=0%3A2"`,
		`href="/console/sessions/s/explain?at=0%3A1" rel="prev"`,
		`href="/console/sessions/s/explain?at=0%3A3" rel="next"`)
	require.NotContains(t, body, "the second")
	require.Equal(t, body, at("?at=0:2", http.StatusOK), "the number and the position are one place")
	require.Contains(t, rowOf(t, body, first.ID.String()), "shown")

	must.Contain(t, at("?at=0:3", http.StatusOK), "What the model was sent", second.ID.String())
	require.Contains(t, at("?n=4", http.StatusOK), "redacted")
	require.Contains(t, at("?n=4", http.StatusOK), "an answer")
	require.Contains(t, rowOf(t, at("?n=5", http.StatusOK), first.ID.String()), "corrected")
	require.Contains(t, at("?n=5", http.StatusOK), "a better answer")
	body = at("", http.StatusOK)
	require.Contains(t, body, "session.reset.v1", "without a place, the newest")
	must.Lack(t, body, "a better answer", `rel="next"`)
	kept := at("?n=2&pending=true&summary=true&max_tokens=1000&language=translated", http.StatusOK)
	require.Contains(t, kept, `explain?at=0%3A3&amp;language=translated&amp;max_tokens=1000&amp;pending=true`+
		`&amp;summary=true"`)
	require.Contains(t, kept, `type="hidden" name="max_tokens" value="1000"`, "the slider keeps the options")

	for _, none := range []string{"?n=8", "?at=0:8", "?at=1:1"} {
		at(none, http.StatusNotFound)
	}
	for _, wrong := range []string{"?n=0", "?n=x", "?at=x", "?at=0:0"} {
		at(wrong, http.StatusUnprocessableEntity)
	}
	require.Equal(t, http.StatusNotFound, s.page("/console/sessions/none/explain", "").status)
	must.Get(s.services.History.EraseSession(t.Context(), "s", services.Erasure{}))(t)
	at("?n=2", http.StatusNotFound)
}

// What a prompt leaves out is summarised where that is asked for.
func TestASummaryInAnExplanation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	first := s.turn("s", "1", "the first", "an answer")
	must.Get(s.services.History.SummarizeSession(t.Context(), decide.Summarize{ThroughTurnID: first.ID,
		Summary: events.SessionSummarized{SessionID: "s", RequestID: "m", SummaryNeutral: "They met."}}))(t)
	s.turn("s", "2", "the second", "an answer")
	last := s.turn("s", "3", "the third", "an answer")
	address := "/console/sessions/s/turns/" + last.ID.String() + "?max_messages=2"
	require.NotContains(t, s.page(address, "").body, "They met.")
	few := s.page("/console/sessions/s/turns/"+last.ID.String()+"?max_tokens=1", "").body
	require.Contains(t, rowOf(t, few, first.ID.String()), "left out by the window")
	body := s.page(address+"&summary=true", "").body
	require.Contains(t, body, "They met.")
	require.Contains(t, rowOf(t, body, first.ID.String()), "summarised")
}

// A shared turn is explained in the session that it stands in.
func TestAnInheritedTurnIsExplained(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	first := s.turn("s", "1", "the first", "an answer")
	must.Get(s.services.History.ForkSession(t.Context(), decide.ForkSession{
		SessionID: "s", RequestID: "f", ChildID: "branch", TurnID: first.ID,
	}))(t)
	a := s.page("/console/sessions/branch/turns/"+first.ID.String(), "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body, "the branch shares the turn", `href="/console/sessions/s?at=0`)
	require.Contains(t, a.body, `action="/console/sessions/s/explain"`, "the slider moves over that session")
}

func TestHostilePromptsAreText(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i, text := range hostile {
		session := fmt.Sprint("s", i)
		s.turn(session, "1", text, text)
		last := s.turn(session, "2", text, text)
		a := s.page("/console/sessions/"+session+"/turns/"+last.ID.String(), "")
		require.Equal(t, http.StatusOK, a.status)
		requireText(t, a.body)
		require.LessOrEqual(t, len(a.body), mostPage)
	}
	for i := range 400 {
		s.turn("long", fmt.Sprint(i), strings.Repeat(`"`, 500), "a")
	}
	last := s.turn("long", "last", "q", "a")
	a := s.page("/console/sessions/long/turns/"+last.ID.String()+"?max_messages=1000", "")
	require.LessOrEqual(t, len(a.body), mostPage)
	must.Contain(t, a.body, "more messages than this page has room for", "250 older turns are not listed")
}

// What a model was sent can't be shown any more where a turn was redacted after it was answered. The page says so, and
// says when, by whom and why; a turn that was redacted before was not in the prompt.
func TestAnExplanationSaysWhenATurnWasRedacted(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	redact := func(of services.Turn, reason string) string {
		done := must.Get(s.services.History.RedactTurn(t.Context(), "s", decide.Redact{
			TurnID: of.ID, Reason: reason, RedactedBy: "<b>support",
		}))(t)
		return done.Position.String()
	}
	early := s.turn("s", "1", "the first", "an answer")
	late := s.turn("s", "2", "a private address", "an answer")
	pending := s.turn("s", "3", "a private question", "")
	before := redact(early, "customer asked")
	asked := s.turn("s", "4", "the asked one", "an answer")
	after := redact(late, "asked <i>later")
	never := redact(pending, "")
	body := s.page("/console/sessions/s/turns/"+asked.ID.String(), "").body
	prompt, _, _ := strings.Cut(body, "What it was answered")
	must.Contain(t, prompt, "as far as it can still be shown",
		`Turn <span class="id">0:3</span> was redacted later, at`,
		`href="/console/sessions/s?at=`+after+"#e-", "&lt;b&gt;support", "asked &lt;i&gt;later",
		`href="/console/receipts?id=`+url.QueryEscape(after)+`"`, "The model probably had it",
		"0 messages of 0 earlier turns, and the question; 0 left out by the window, 3 redacted.")
	require.Equal(t, 1, strings.Count(prompt, "was redacted later"))
	require.Contains(t, rowOf(t, body, early.ID.String()), "before this, at <a")
	require.Contains(t, rowOf(t, body, early.ID.String()), before)
	require.Contains(t, rowOf(t, body, early.ID.String()), "customer asked")
	require.Contains(t, rowOf(t, body, late.ID.String()), "the model probably had it")
	require.Contains(t, rowOf(t, body, pending.ID.String()), "it had no answer yet")
	require.Contains(t, rowOf(t, body, pending.ID.String()), never)
	require.NotContains(t, s.page("/console/sessions/s/explain?at="+before, "").body, "The model probably had it")
	require.Contains(t, s.page("/console/sessions/s/explain?at="+before, "").body,
		"A question asked at this event would probably have been sent it")
	windowed := s.turn("s", "5", "q", "a")
	s.turn("s", "6", "q", "a")
	last := s.turn("s", "7", "q", "a")
	redact(windowed, "")
	narrow := s.page("/console/sessions/s/turns/"+last.ID.String()+"?max_messages=2", "").body
	require.Contains(t, rowOf(t, narrow, asked.ID.String()), "left out by the window")
	require.Contains(t, rowOf(t, narrow, windowed.ID.String()), "the model probably had it")
	require.Contains(t, rowOf(t, narrow, late.ID.String()), "before this")

	// The conversation says the same at the tombstone.
	body = s.page("/console/sessions/s", "").body
	require.Contains(t, body, "This turn was redacted at <a class=\"id\" href=\"/console/sessions/s?at="+after)
	require.Contains(t, body, "asked &lt;i&gt;later")
}

// A redacted turn has no question to show. Its page says what stood before it, and how to go on.
func TestAnExplanationOfARedactedTurn(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	first := s.turn("s", "1", "the first", "an answer")
	gone := s.turn("s", "2", "a private address", "an answer")
	last := s.turn("s", "3", "the last", "an answer")
	must.Get(s.services.History.RedactTurn(t.Context(), "s", decide.Redact{TurnID: gone.ID}))(t)
	body := s.page("/console/sessions/s/turns/"+gone.ID.String(), "").body
	must.Contain(t, body, "is gone; what stood before the turn", "its question is gone", "the first",
		"2 messages of 1 earlier turn; 0 left out by the window, 0 redacted",
		`<a class="do" href="/console/sessions/s/turns/`+first.ID.String()+`">Turn before</a>`,
		`<a class="do" href="/console/sessions/s/turns/`+last.ID.String()+`">Turn after</a>`)
	require.NotContains(t, body, "(no text)")
	require.NotContains(t, s.page("/console/sessions/s/turns/"+last.ID.String(), "").body, "Turn after")
	require.NotContains(t, s.page("/console/sessions/s/turns/"+first.ID.String(), "").body, "Turn before")
	between := s.page("/console/sessions/s/explain?n=2", "").body
	must.Contain(t, between, first.ID.String()+`">Turn before`, gone.ID.String()+`">Turn after`)
}
