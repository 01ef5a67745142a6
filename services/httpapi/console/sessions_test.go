package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// hostile are texts that would do something if a page took them for more than text.
var hostile = []string{
	`<script>alert(1)</script>`, `<svg onload=alert(1)>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	`javascript:alert(1)`, `{{.}} ${x}`, `</textarea></div></details></main>`,
	"\u202eevil\u202d", "a\x00b\x1b[31mred\x07",
	"data:image/png;base64,AAAA", strings.Repeat("x", 1<<20),
}

// requireText fails if a page holds a hostile text as anything but text.
func requireText(t *testing.T, body string) {
	t.Helper()
	for _, never := range []string{"<script>alert", "<svg onload", "<img", "onmouseover='", `href="javascript`,
		"</textarea>", "\x00", "\x1b", "\x07", `src="data`} {
		require.NotContains(t, body, never)
	}
}

func TestTheListOfSessions(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.lists.page = services.SessionPage{NextCursor: "next", Sessions: []projections.ListedSession{
		listed("a/b?c", "ada", "A title", "Who is that?"), listed("anonymous", "", "", ""),
	}}
	a := s.page("/console/?identity_id=ada&since=2026-01-02T03:04&until=2026-01-03T00:00:00Z&cursor=c", "")
	require.Equal(t, http.StatusOK, a.status)
	for _, want := range []string{`href="/console/sessions/a%2Fb%3Fc"`, "A title", "Who is that?", "anonymous",
		"1970-01-01 00:00:02", `identity_id=ada`, `cursor=next`} {
		require.Contains(t, a.body, want)
	}
	require.Equal(t, "ada", s.lists.asked.IdentityID)
	require.Equal(t, "c", s.lists.asked.Cursor)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), s.lists.asked.Since)
	require.Equal(t, time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), s.lists.asked.Until)
	s.lists.page = services.SessionPage{}
	require.Contains(t, s.page("/console/?identity_id=ada", "").body, "If the identity was erased, the page Receipts")
	require.NotContains(t, s.page("/console/?state=pending", "").body, "was erased")
	for _, wrong := range []string{"?since=soon", "?state=odd"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/"+wrong, "").status)
	}
	s.lists.err = services.ErrBehind
	require.Equal(t, http.StatusServiceUnavailable, s.page("/console/", "").status)
}

// A title is a text: it is posted, and stands neither in an address, nor in a page's title or a log line.
func TestATitleIsPosted(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.lists.page = services.SessionPage{NextCursor: "next", Sessions: []projections.ListedSession{
		listed("s", "", "secret plan", "a secret question")}}
	a := s.do("POST", "/console/", url.Values{"title": {"secret"}, "identity_id": {"ada"}, "key": {"folder"},
		"value": {"secret folder"}})
	require.Equal(t, map[string]string{"folder": "secret folder"}, s.lists.asked.Metadata)
	require.Equal(t, "secret", s.lists.asked.Title)
	require.Equal(t, "ada", s.lists.asked.IdentityID)
	for line := range strings.SplitSeq(a.body, "\n") {
		if strings.Contains(line, "href=") || strings.Contains(line, "action=") || strings.Contains(line, "<title>") {
			for _, attribute := range strings.Split(line, `href="`)[1:] {
				address, _, _ := strings.Cut(attribute, `"`)
				require.NotContains(t, address, "secret")
			}
			require.NotRegexp(t, `<title>[^<]*secret`, line)
		}
	}
	s.page("/console/?title=secret&key=secret&value=secret", "")
	require.Empty(t, s.lists.asked.Metadata)
	require.Empty(t, s.lists.asked.Title, "a title in an address is not read")
	require.NotContains(t, s.logs.String(), "secret")
}

func TestHostileTextsOfTheListAreText(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for _, text := range hostile {
		short := text[:min(len(text), 200)]
		s.lists.page = services.SessionPage{NextCursor: "c", Sessions: []projections.ListedSession{
			listed("id"+short, "of "+short, short, short)}}
		a := s.do("POST", "/console/", url.Values{"title": {short}, "identity_id": {short}, "key": {short},
			"value": {short}})
		if strings.ContainsFunc(short, unicode.IsControl) {
			require.Equal(t, http.StatusUnprocessableEntity, a.status)
		} else {
			require.Equal(t, http.StatusOK, a.status)
		}
		requireText(t, a.body)
		requireText(t, s.page("/console/", "").body)
		escaped := url.QueryEscape(short)
		requireText(t, s.page("/console/?identity_id="+escaped+"&cursor="+escaped, "").body)
		requireText(t, s.page("/console/"+url.PathEscape(short), "").body)
	}
	require.NotContains(t, s.logs.String(), "alert")
}

// A bound key sees the sessions of its identity; without events:read a key names one.
func TestWhoseSessionsAreListed(t *testing.T) {
	t.Parallel()
	s := start(t, newRing(map[string]access.Caller{
		"ada": {Name: "ada", Scopes: reads, IdentityID: "ada"}, "reader": {Name: "reader", Scopes: reads},
	}))
	ada, reader := s.cookieOf("ada"), s.cookieOf("reader")
	require.Equal(t, http.StatusOK, s.page("/console/", ada).status)
	require.Equal(t, "ada", s.lists.asked.IdentityID)
	require.Equal(t, http.StatusForbidden, s.page("/console/?identity_id=bob", ada).status)
	s.lists.asked = services.SessionsAsk{}
	require.Contains(t, s.page("/console/", reader).body, "events:read")
	require.Zero(t, s.lists.asked, "nothing was read")
	s.page("/console/?identity_id=bob", reader)
	require.Equal(t, "bob", s.lists.asked.IdentityID)
}
