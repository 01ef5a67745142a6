package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// hostile are texts that would run, load or break something if a page took them for more than text.
var hostile = []string{
	`<script>window.ran = 1</script>`, `<img src=x onerror="window.ran = 1">`, `<svg onload="window.ran = 1">`,
	`"><script>window.ran = 1</script>`, `javascript:window.ran=1`, `</textarea></main></body><h1>mine</h1>`,
	`<style>body { display: none }</style>`, `<link rel=stylesheet href=https://example.org/a.css>`,
	"\u202eright to left\u202c", "\u2066isolated", "bell\x07 escape\x1b[31m", "![x](https://example.org/x.png)",
	`<meta http-equiv=refresh content="0;url=https://example.org/">`, `<base href=https://example.org/>`,
	strings.Repeat("x", 900_000),
}

// Whatever a conversation holds is text: nothing runs or is loaded, and the pages keep their form.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	w := open(t, p.URL)
	const session = `<b>"hostile"&amp;/?#`
	path := stack.SessionPath(session)
	last := ""
	for i, text := range hostile {
		last = p.RecordTurn(t, session, fmt.Sprint("r", i), text, text)
		title := strings.Map(func(c rune) rune {
			if c < ' ' {
				return -1
			}
			return c
		}, text[:min(len(text), 190)])
		p.Must(t, http.StatusOK, http.MethodPatch, path, map[string]any{"title": title,
			"metadata": map[string]any{"k": title}})
	}
	p.LinkIdentity(t, session, `<i onclick="window.ran = 1">`)
	here := "/console/sessions/" + strings.TrimPrefix(path, "/v1/sessions/")
	for _, at := range []string{"/console/", here, here + "/turns/" + last, here + "/turns/" + last + "/correct",
		here + "/describe", here + "/explain", "/console/log",
		"/console/playground?thread_id=" + strings.TrimPrefix(path, "/v1/sessions/")} {
		for _, look := range []shape{desk, phone} {
			w.shape(look)
			w.visit(at, http.StatusOK)
			w.clean(at)
			w.fits(at)
			ran, own := false, 0
			w.eval(`Boolean(window.ran)`, &ran)
			w.eval(`document.querySelectorAll("h1").length`, &own)
			require.False(t, ran, at)
			require.Equal(t, 1, own, at)
			require.Equal(t, at, w.path())
		}
	}
	w.barriers(here)
}

// record records turns, each made of its number.
func record(t testing.TB, p *stack.Process, turns int, line func(i int) string) {
	t.Helper()
	const atOnce = 1000
	for n := 0; n < turns; n += atOnce {
		var lines strings.Builder
		for i := n; i < n+atOnce; i++ {
			lines.WriteString(line(i) + "\n")
		}
		resp, err := http.Post(p.URL+"/v1/turns", "application/x-ndjson", strings.NewReader(lines.String()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
}

// A session of 5,000 turns has pages of at most 300 KB, which lead through all of it.
func TestALongSession(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	text := strings.Repeat("Some words of a conversation. ", 12)
	record(t, p, 5000, func(i int) string {
		const form = `{"session_id":"long","request_id":"%d","question_neutral":"question %d: %s","answer_neutral":%q}`
		return fmt.Sprintf(form, i, i, text, text)
	})
	w := open(t, p.URL)
	w.visit("/console/sessions/long", http.StatusOK)
	for _, newest := range []int{4999, 4979, 4959} {
		require.Contains(t, w.text("#rows"), fmt.Sprintf("question %d:", newest))
		size := 0
		w.json(`fetch(location.href).then(r => r.arrayBuffer()).then(b => String(b.byteLength))`, &size)
		require.Less(t, size, 300_000)
		require.Positive(t, size)
		w.follow("a[rel=prev]", http.StatusOK)
	}
	w.fits("a long session")
}

// Of 10,000 sessions the list shows pages, which lead through all of them.
func TestManySessions(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	w := open(t, p.URL)
	record(t, p, 10_000, func(i int) string {
		return fmt.Sprintf(`{"session_id":"s%d","request_id":"r","question_neutral":"q %d"}`, i, i)
	})
	w.visit("/console/", http.StatusOK)
	seen := map[string]bool{}
	for range 3 {
		list := w.hrefs("tbody td:nth-child(2) a")
		require.Len(t, list, 50)
		for _, href := range list {
			require.False(t, seen[href], href)
			seen[href] = true
		}
		w.follow("a[rel=next]", http.StatusOK)
	}
	w.fits("many sessions")
}
