package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

func keys() *ring {
	return newRing(map[string]access.Caller{
		"all": {Name: "all-key", Scopes: every}, "ada": {Name: "ada-key", Scopes: every, IdentityID: "ada"},
	})
}

func TestEachAnswerHasTheContentPolicy(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	cookie := s.cookieOf("all")
	for _, a := range []answer{
		s.page("/console/", ""), s.page("/console/", cookie), s.page("/console/none", cookie), s.page("/console", ""),
		s.page("/console/assets/console.css", ""), s.page("/console/assets/console.js", ""),
		s.page("/console/assets/none", ""), s.do("POST", "/console/signout", url.Values{}),
		s.do("POST", "/console/signin", url.Values{"key": {"all"}}), s.do("DELETE", "/console/", nil),
		s.do("POST", "/console/signin", url.Values{}, "Sec-Fetch-Site", "cross-site"),
	} {
		policy := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
			"form-action 'self'", "base-uri 'none'"} {
			require.Contains(t, policy, want, a.status)
		}
		require.NotContains(t, policy, "unsafe")
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
			"Cross-Origin-Opener-Policy": "same-origin", "X-Frame-Options": "DENY",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			require.Equal(t, want, a.header.Get(name), name)
		}
		// Nothing that the policy would stop, and nothing from elsewhere.
		for _, never := range []string{"style=", "onclick", "http://", "https://", "<script>"} {
			require.NotContains(t, a.body, never)
		}
	}
	require.Contains(t, s.page("/console/assets/console.css", "").header.Get("Content-Type"), "text/css")
	require.Contains(t, s.page("/console/assets/console.js", "").header.Get("Content-Type"), "text/javascript")
}

func TestSigningInAndOut(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	a := s.page("/console/?identity_id=ada", "")
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.body, `name="key"`)
	require.Contains(t, a.body, `value="/console/?identity_id=ada"`)
	require.NotContains(t, a.body, "<nav")

	require.Equal(t, http.StatusUnauthorized, s.do("POST", "/console/signin", url.Values{"key": {"none"}}).status)
	a = s.do("POST", "/console/signin", url.Values{"key": {" all\n"}, "to": {"/console/?identity_id=ada"}})
	require.Equal(t, http.StatusSeeOther, a.status)
	require.Equal(t, "/console/?identity_id=ada", a.header.Get("Location"))
	set := a.header.Get("Set-Cookie")
	for _, want := range []string{"turnledger-console=", "HttpOnly", "SameSite=Strict", "Path=/"} {
		require.Contains(t, set, want)
	}
	require.NotContains(t, set, "Secure") // on this machine, without TLS
	cookie, _, _ := strings.Cut(set, ";")
	require.Equal(t, http.StatusOK, s.page("/console/", cookie).status)
	require.Contains(t, s.page("/console/", cookie).body, "all-key")
	require.NotContains(t, s.page("/console/", cookie).body+s.logs.String(), `"all"`)

	out := s.do("POST", "/console/signout", url.Values{}, "Cookie", cookie)
	require.Equal(t, http.StatusSeeOther, out.status)
	require.Contains(t, out.header.Get("Set-Cookie"), "Max-Age=0")
}

// Where a form leads is a page of the console.
func TestASignInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	for _, to := range []string{"https://evil.example/", "//evil.example/console/", "/\\evil.example/console/",
		"/v1/sessions",
		"/console/\\evil.example", "javascript:alert(1)", "", "/console/\r\nSet-Cookie: a=b", "/consoleevil/"} {
		a := s.do("POST", "/console/signin", url.Values{"key": {"all"}, "to": {to}})
		require.Equal(t, "/console/", a.header.Get("Location"), to)
	}
}

// Over HTTPS, here or at a proxy, the cookie has the prefix that binds it to the host, and no other cookie is taken.
func TestTheCookieIsBoundToItsHost(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	for _, headers := range [][]string{
		{"Host", "turnledger.example"}, {"X-Forwarded-Proto", "https"}, {"Host", "10.0.0.1:8480"},
	} {
		a := s.do("POST", "/console/signin", url.Values{"key": {"all"}}, headers...)
		set := a.header.Get("Set-Cookie")
		require.True(t, strings.HasPrefix(set, "__Host-turnledger-console="), set)
		require.Contains(t, set, "; Secure")
		require.Contains(t, set, "Path=/")
		require.NotContains(t, set, "Domain")
		cookie, _, _ := strings.Cut(set, ";")
		require.Equal(t, http.StatusOK, s.do("GET", "/console/", nil, append(headers, "Cookie", cookie)...).status)
		plain := strings.TrimPrefix(cookie, "__Host-")
		a = s.do("GET", "/console/", nil, append(headers, "Cookie", plain)...)
		require.Equal(t, http.StatusUnauthorized, a.status)
		two := append(headers, "Cookie", cookie, "Cookie", cookie)
		require.Equal(t, http.StatusUnauthorized, s.do("GET", "/console/", nil, two...).status)
	}
}

func TestARevokedKeyIsOutAtOnce(t *testing.T) {
	t.Parallel()
	r := keys()
	s := start(t, r)
	cookie := s.cookieOf("all")
	require.Equal(t, http.StatusOK, s.page("/console/", cookie).status)
	r.callers.Delete("all")
	a := s.page("/console/", cookie)
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.header.Get("Set-Cookie"), "Max-Age=0")
}

func TestOldCookiesAndThoseOfOtherDeploymentsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	cookie := s.cookieOf("all")
	elsewhere := start(t, keys(), func(c *console.Config) { c.SealKey = []byte("another key") })
	require.Equal(t, http.StatusUnauthorized, elsewhere.page("/console/", cookie).status)
	require.Equal(t, http.StatusOK, elsewhere.page("/console/", elsewhere.cookieOf("all")).status)
	for _, broken := range []string{cookie[:len(cookie)-2] + "AA", "turnledger-console=", "turnledger-console=all"} {
		require.Equal(t, http.StatusUnauthorized, s.page("/console/", broken).status)
	}
	// Unused for an hour it ends; used, it is renewed, for at most twelve hours.
	s.now.pass(59 * time.Minute)
	a := s.page("/console/", cookie)
	require.Equal(t, http.StatusOK, a.status)
	renewed, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	s.now.pass(2 * time.Minute)
	require.Equal(t, http.StatusUnauthorized, s.page("/console/", cookie).status)
	use := func() {
		a := s.page("/console/", renewed)
		require.Equal(t, http.StatusOK, a.status)
		renewed, _, _ = strings.Cut(a.header.Get("Set-Cookie"), ";")
	}
	use()
	for range 11 {
		s.now.pass(59 * time.Minute)
		use()
	}
	s.now.pass(11 * time.Minute)
	require.Equal(t, http.StatusUnauthorized, s.page("/console/", renewed).status)
}

// A page of another site can't act here, and this site's own can.
func TestPostsOfOtherSitesAreForbidden(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	cookie := s.cookieOf("all")
	for _, path := range []string{"/console/signin", "/console/signout", "/console/"} {
		form := url.Values{"key": {"all"}}
		for _, headers := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"},
		} {
			a := s.do("POST", path, form, append(headers, "Cookie", cookie)...)
			require.Equal(t, http.StatusForbidden, a.status, path)
			require.Empty(t, a.header.Get("Set-Cookie"))
		}
		a := s.do("POST", path, form, "Sec-Fetch-Site", "same-origin", "Origin", "null", "Cookie", cookie)
		require.Less(t, a.status, 400, path)
	}
}

// Without authentication the console is open as the API is: to this machine alone.
func TestAnOpenConsole(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	a := s.page("/console/", "")
	require.Equal(t, http.StatusOK, a.status)
	require.NotContains(t, a.body, "Sign out")
	require.Equal(t, http.StatusForbidden, s.do("GET", "/console/", nil, "Host", "evil.example").status)
	require.Equal(t, "/console/", s.page("/console", "").header.Get("Location"))
}

func TestAFormInAnEncodingThatIsNotRead(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	for encoding, status := range map[string]int{
		"br": http.StatusUnsupportedMediaType, "gzip": http.StatusBadRequest, "identity": http.StatusUnauthorized,
	} {
		a := s.do("POST", "/console/signin", url.Values{"key": {"none"}}, "Content-Encoding", encoding)
		require.Equal(t, status, a.status, a.body)
	}
}
