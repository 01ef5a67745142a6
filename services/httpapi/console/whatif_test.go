package console_test

import (
	"archive/zip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// The page draws a bar for each answer that has tokens, and its table has what the API says.
func TestWhatIfIsDrawn(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i := range 3 {
		s.turn("s", fmt.Sprint(i), fmt.Sprint("question ", i), "answered")
	}
	require.Contains(t, s.page("/console/sessions/s", "").body, `href="/console/sessions/s/whatif"`)
	a := s.page("/console/sessions/s/whatif?max_messages=2", "")
	require.Equal(t, http.StatusOK, a.status, a.body)
	must.Contain(t, a.body, "3 answered turns: 0 told the same, 3 assumed", "1 turns left out", "answer 3: ",
		`<a href="/console/sessions/s?at=0:5#t-`, "What models were told", `value="2"`)
	require.Equal(t, 6, strings.Count(a.body, `<rect class="bar"`))
	s.turn("asked", "1", "a question", "")
	must.Contain(t, s.page("/console/sessions/asked/whatif", "").body, "No turn of the session has an answer.")
	require.Equal(t, http.StatusNotFound, s.page("/console/sessions/none/whatif", "").status)
	for _, wrong := range []string{"?max_messages=1", "?max_tokens=x"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/sessions/s/whatif"+wrong, "").status)
	}
}

func TestAPersonsDataFromTheConsole(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.turn("s", "1", "hello", "answered")
	_, err := s.services.History.LinkSession(t.Context(), "s", "ada", "")
	require.NoError(t, err)
	const at = "/console/identities/ada/archive"
	require.Contains(t, s.page("/console/?identity_id=ada", "").body, `href="`+at+`"`)
	a := s.page(at, "")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "application/zip", a.header.Get("Content-Type"))
	files := must.Get(zip.NewReader(strings.NewReader(a.body), int64(len(a.body))))(t)
	text := must.Get(io.ReadAll(must.Get(files.Open("sessions/s.md"))(t)))(t)
	require.Contains(t, string(text), "> hello")
}
