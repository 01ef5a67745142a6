package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// rowOf returns the row of a turn in the table of those before it.
func rowOf(t *testing.T, body, turn string) string {
	t.Helper()
	found := regexp.MustCompile(`<td class="id">` + turn + `</td><td>(.*?)</td>`).FindStringSubmatch(body)
	require.NotNil(t, found, turn)
	return found[1]
}

func TestAnExplanation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turns := conversed(s)
	_, err := s.services.History.StartTurn(t.Context(), conversation.Start{
		SessionID: "s", RequestID: "german", Question: events.Question{
			QuestionNeutral: "good day", QuestionTranslated: "guten Tag",
		}, Answer: &events.Answer{AnswerNeutral: "bye", AnswerTranslated: "ade"},
	})
	require.NoError(t, err)
	asked := s.turn("s", "asked", "why is that?", "because")
	s.turn("s", "later", "a later question", "a later answer")
	address := "/console/sessions/s/turns/" + asked.ID.String()
	a := s.page(address, "")
	require.Equal(t, http.StatusOK, a.status)
	for _, want := range []string{"why is that?", "A plain answer.", "a corrected question", "It is sunny.",
		asked.ID.String(), `href="/console/sessions/s?at=0%3a15"`} {
		require.Contains(t, a.body, want)
	}
	for _, never := range []string{"unspeakable", "a later", "a misspelt question", "still open?"} {
		require.NotContains(t, a.body, never)
	}
	for name, want := range map[string]string{"plain": "shown", "wrong": "corrected", "gone": "redacted",
		"tools": "shown", "pending": "had no answer yet"} {
		require.Contains(t, rowOf(t, a.body, turns[name].ID.String()), want, name)
	}
	narrow := s.page(address+"?max_messages=2&pending=true", "").body
	require.Contains(t, rowOf(t, narrow, turns["plain"].ID.String()), "left out by the window")
	require.NotContains(t, a.body, "guten Tag")
	require.Contains(t, s.page(address+"?language=translated", "").body, "guten Tag")
	require.Contains(t, s.page(address+"?pending=true", "").body, "still open?")
	require.Contains(t, s.page("/console/sessions/s", "").body, `href="`+address+`"`)

	for _, none := range []string{"/console/sessions/s/turns/x", "/console/sessions/s/turns/" +
		events.TurnID("s", "none").String(), "/console/sessions/other/turns/" + asked.ID.String()} {
		require.Equal(t, http.StatusNotFound, s.page(none, "").status, none)
	}
	for _, wrong := range []string{"?max_messages=1", "?max_messages=x"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page(address+wrong, "").status)
	}
}

// A shared turn is explained in the session that it stands in.
func TestAnInheritedTurnIsExplained(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	first := s.turn("s", "1", "the first", "an answer")
	_, err := s.services.History.ForkSession(t.Context(), conversation.ForkSession{
		SessionID: "s", RequestID: "f", ChildID: "branch", TurnID: first.ID,
	})
	require.NoError(t, err)
	a := s.page("/console/sessions/branch/turns/"+first.ID.String(), "")
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "the branch shares the turn")
	require.Contains(t, a.body, `href="/console/sessions/s"`)
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
	require.Contains(t, a.body, "more messages than this page has room for")
	require.Contains(t, a.body, "250 older turns are not listed")
}
