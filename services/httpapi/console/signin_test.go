package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logintest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/jwt"
	"github.com/turnledger/turnledger/services/access/login"
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
		must.Lack(t, a.body, "style=", "onclick", "http://", "https://", "<script>")
	}
	require.Contains(t, s.page("/console/assets/console.css", "").header.Get("Content-Type"), "text/css")
	require.Contains(t, s.page("/console/assets/console.js", "").header.Get("Content-Type"), "text/javascript")
}

func TestSigningInAndOut(t *testing.T) {
	t.Parallel()
	s := start(t, keys())
	a := s.page("/console/?identity_id=ada", "")
	require.Equal(t, http.StatusUnauthorized, a.status)
	must.Contain(t, a.body, `name="key"`, `value="/console/?identity_id=ada"`)
	require.NotContains(t, a.body, "<nav")

	require.Equal(t, http.StatusUnauthorized, s.do("POST", "/console/signin", url.Values{"key": {"none"}}).status)
	a = s.do("POST", "/console/signin", url.Values{"key": {" all\n"}, "to": {"/console/?identity_id=ada"}})
	require.Equal(t, http.StatusSeeOther, a.status)
	require.Equal(t, "/console/?identity_id=ada", a.header.Get("Location"))
	set := a.header.Get("Set-Cookie")
	must.Contain(t, set, "turnledger-console=", "HttpOnly", "SameSite=Strict", "Path=/")
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
		must.Contain(t, set, "; Secure", "Path=/")
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
	other := []byte(cookie) // a letter in the middle: some bits of the last one say nothing
	if at := len(other) / 2; other[at] == 'A' {
		other[at] = 'B'
	} else {
		other[at] = 'A'
	}
	for _, broken := range []string{string(other), "turnledger-console=", "turnledger-console=all"} {
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

// withIssuer runs a console behind a proxy that ends TLS, in which people sign in at an issuer.
func withIssuer(t *testing.T) (*stack, *logintest.Issuer) {
	t.Helper()
	issuer := logintest.New(t)
	tokens := must.Get(jwt.New(jwt.Config{URL: issuer.URL, Audience: logintest.Audience}))(t)
	natstest.Run(t, tokens.Run)
	hang.Until(t, func() bool { return tokens.Ready(t.Context()) == nil })
	s := start(t, keys(), func(c *console.Config) {
		c.Auth = tokens
		c.Login = login.New(issuer.Login("https://ledger.example" + console.Callback))
	})
	return s, issuer
}

// proxied are the headers of a request through the proxy.
var proxied = []string{"Host", "ledger.example", "X-Forwarded-Proto", "https"}

// begun opens a page, follows the link to the issuer, signs in there, and returns the address to which the browser is
// sent back, with the cookie of the attempt.
func begun(t *testing.T, s *stack, issuer *logintest.Issuer, page string) (back, cookie string) {
	t.Helper()
	a := s.do("GET", page, nil, proxied...)
	require.Equal(t, http.StatusUnauthorized, a.status)
	link := regexp.MustCompile(`href="(/console/signin/issuer[^"]*)"`).FindStringSubmatch(a.body)
	require.NotNil(t, link, a.body)
	a = s.do("GET", html.UnescapeString(link[1]), nil, proxied...)
	require.Equal(t, http.StatusSeeOther, a.status)
	set := a.header.Get("Set-Cookie")
	must.Contain(t, set, "__Host-turnledger-console-login=", "SameSite=Lax", "HttpOnly", "Secure", "Path=/",
		"Max-Age=600")
	cookie, _, _ = strings.Cut(set, ";")
	return console.Callback + "?" + issuer.Visit(t, a.header.Get("Location")).Encode(), cookie
}

func TestSigningInAtAnIssuer(t *testing.T) {
	t.Parallel()
	s, issuer := withIssuer(t)
	s.turn("own", "r", "my question", "")
	s.link("own", logintest.Subject)
	back, attempt := begun(t, s, issuer, "/console/sessions/own?language=translated")
	a := s.do("GET", back, nil, append(proxied, "Cookie", attempt, "Sec-Fetch-Site", "cross-site")...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, a.body, `http-equiv="refresh" content="0;url=/console/sessions/own?language=translated"`)
	set := a.header.Values("Set-Cookie")
	require.Len(t, set, 2)
	require.Contains(t, set[0], "Max-Age=0", "the attempt has ended")
	require.True(t, strings.HasPrefix(set[1], "__Host-turnledger-console="), set[1])
	require.Contains(t, set[1], "SameSite=Strict")
	cookie, _, _ := strings.Cut(set[1], ";")
	mine := append(proxied, "Cookie", cookie)
	require.Contains(t, s.do("GET", "/console/sessions/own", nil, mine...).body, "my question")
	require.Equal(t, http.StatusForbidden, s.do("GET", "/console/log", nil, mine...).status,
		"a user sees no more than their own")
	require.NotContains(t, s.logs.String(), attempt[len("__Host-turnledger-console-login="):])
}

// What comes back from elsewhere, too late, twice, or with another attempt's cookie signs nobody in.
func TestAForeignCallbackSignsNobodyIn(t *testing.T) {
	t.Parallel()
	s, issuer := withIssuer(t)
	back, attempt := begun(t, s, issuer, "/console/")
	_, other := begun(t, s, issuer, "/console/")
	refused := func(target string, headers ...string) {
		t.Helper()
		a := s.do("GET", target, nil, append(proxied, headers...)...)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.body, "begin again")
		for _, set := range a.header.Values("Set-Cookie") {
			require.NotContains(t, set, "turnledger-console=e")
			require.Contains(t, set, "Max-Age=0")
		}
	}
	refused(back)
	refused(back, "Cookie", other)
	refused(back, "Cookie", attempt, "Cookie", other)
	refused(back, "Cookie", attempt[:len(attempt)-2]+"AA")
	refused(console.Callback+"?"+url.Values{"error": {"access_denied"}}.Encode(), "Cookie", attempt)
	s.now.pass(11 * time.Minute)
	refused(back, "Cookie", attempt)
	s.now.pass(-11 * time.Minute)
	signed := s.do("GET", back, nil, append(proxied, "Cookie", attempt)...)
	require.Equal(t, http.StatusOK, signed.status)
	refused(back, "Cookie", attempt)

	// One kind of cookie is not taken for the other.
	session, _, _ := strings.Cut(signed.header.Values("Set-Cookie")[1], ";")
	_, sealed, _ := strings.Cut(session, "=")
	refused(back, "Cookie", "__Host-turnledger-console-login="+sealed)
	_, sealed, _ = strings.Cut(other, "=")
	a := s.do("GET", "/console/", nil, append(proxied, "Cookie", "__Host-turnledger-console="+sealed)...)
	require.Equal(t, http.StatusUnauthorized, a.status)

	issuer.Down.Store(true)
	fresh := start(t, keys(), func(c *console.Config) {
		c.Login = login.New(issuer.Login("https://x" + console.Callback))
	})
	require.Equal(t, http.StatusServiceUnavailable, fresh.do("GET", "/console/signin/issuer", nil).status)
}

// need is what a page needs: one of some scopes, or all of others, and whether a bound caller may see it.
type need struct {
	all, any access.Scopes
	// bound: a bound caller sees the page, of its own sessions only.
	bound, public bool
}

const (
	reads    = access.ContextRead
	follows  = access.EventsRead
	redacts  = access.TurnsRedact
	operates = access.Admin
	records  = access.TurnsWrite
)

// needs is what each page needs. A page that is not in it fails the test, so that its scope is somebody's decision.
var needs = map[string]need{
	"GET /console":               {public: true},
	"GET /console/assets/{file}": {public: true},
	"POST /console/signin":       {public: true},
	"POST /console/signout":      {public: true},
	"GET /console/":              {any: reads | follows, bound: true},
	"POST /console/":             {any: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}":          {all: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/explain":                  {all: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/live":                     {all: follows, bound: true},
	"GET /console/log/live":                                       {all: follows},
	"GET /console/playground":                                     {all: records | reads},
	"POST /console/playground/prompt":                             {all: records | reads},
	"POST /console/playground/send":                               {all: records | reads},
	"POST /console/playground/stream":                             {all: records | reads},
	"GET /console/open":                                           {any: reads | follows, bound: true},
	"GET /console/search":                                         {any: reads | follows, bound: true},
	"POST /console/search":                                        {any: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/export":                   {all: follows, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}/redact":   {all: redacts, bound: true},
	"POST /console/sessions/{session_id}/turns/{turn_id}/redact":  {all: redacts, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}/correct":  {all: records, bound: true},
	"POST /console/sessions/{session_id}/turns/{turn_id}/correct": {all: records, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}/fork":     {all: records | reads, bound: true},
	"POST /console/sessions/{session_id}/turns/{turn_id}/fork":    {all: records | reads, bound: true},
	"GET /console/sessions/{session_id}/describe":                 {all: records, bound: true},
	"POST /console/sessions/{session_id}/describe":                {all: records, bound: true},
	"GET /console/sessions/{session_id}/reset":                    {all: records, bound: true},
	"POST /console/sessions/{session_id}/reset":                   {all: records, bound: true},
	"GET /console/sessions/{session_id}/erase":                    {all: redacts, bound: true},
	"POST /console/sessions/{session_id}/erase":                   {all: redacts, bound: true},
	"GET /console/identities/{identity_id}/archive":               {all: reads, bound: true},
	"GET /console/sessions/{session_id}/whatif":                   {all: reads, bound: true},
	"GET /console/identities/{identity_id}/erase":                 {all: redacts, bound: true},
	"POST /console/identities/{identity_id}/erase":                {all: redacts, bound: true},
	"GET /console/views/{name}/rebuild":                           {all: operates},
	"POST /console/views/{name}/rebuild":                          {all: operates},
	"POST /console/views/{name}/cancel":                           {all: operates},
	"POST /console/views/{name}/verify":                           {all: operates},
	"POST /console/deadletters/{projection}/{position}/retry":     {all: operates},
	"GET /console/deadletters/{projection}/{position}/drop":       {all: operates},
	"POST /console/deadletters/{projection}/{position}/drop":      {all: operates},
	"GET /console/log":                                            {all: follows},
	"GET /console/views":                                          {all: operates},
	"GET /console/deadletters":                                    {all: operates},
	"GET /console/receipts":                                       {all: redacts},
	"GET /console/keys":                                           {all: operates},
	"GET /console/stats":                                          {any: follows | operates},
	"GET /console/sessions/{session_id}":                          {all: reads, bound: true},
	"GET /console/sessions/{session_id}/events/{position}":        {all: follows, bound: true},
}

// acts matches pages of actions that read nothing of their session where the caller may not.
var acts = regexp.MustCompile("/(describe|reset|erase|redact|correct)$")

// whose matches the paths that name a session or an identity.
var whose = regexp.MustCompile("{(session|identity)_id}")

// TestTheMatrixOfAuthorisation opens every page with each set of scopes, by a key for all and by a bound one, on a
// session of its own, another's, an anonymous one, one that was erased and one that does not exist.
func TestTheMatrixOfAuthorisation(t *testing.T) {
	t.Parallel()
	sets := []access.Scopes{0, access.TurnsWrite, reads, follows, redacts, operates, reads | follows, every}
	callers := map[string]access.Caller{}
	for _, set := range sets {
		callers[fmt.Sprint("free", set)] = access.Caller{Name: "free", Scopes: set}
		callers[fmt.Sprint("bound", set)] = access.Caller{Name: "bound", Scopes: set, IdentityID: "ada"}
	}
	s := start(t, newRing(callers))
	positions := map[string]string{"unknown": "0:1"}
	for session, identity := range map[string]string{"own": "ada", "foreign": "bob", "erased": "ada", "anonymous": ""} {
		positions[session] = s.turn(session, "r", "question of "+session, "").Position.String()
		if identity != "" {
			s.link(session, identity)
		}
	}
	must.Get(s.services.History.EraseSession(t.Context(), "erased", services.Erasure{}))(t)
	cells := 0
	for _, route := range s.api.Routes() {
		pattern := route.Method + " " + route.Path
		if !strings.Contains(pattern, " /console") {
			continue
		}
		want, ok := needs[pattern]
		require.True(t, ok, "%s: say in needs what it needs", pattern)
		require.Equal(t, want.public, route.Public, pattern)
		if want.public {
			continue
		}
		for _, set := range sets {
			for _, who := range []string{"free", "bound"} {
				cookie := s.cookieOf(fmt.Sprint(who, set))
				for _, session := range []string{"own", "foreign", "anonymous", "erased", "unknown"} {
					cells++
					id := session
					if session == "unknown" {
						id += fmt.Sprint(cells) // an action makes it known
					}
					identity := map[string]string{"own": "ada", "foreign": "bob", "erased": "ada"}[session]
					if identity == "" {
						identity = "nobody"
					}
					path := strings.NewReplacer("{identity_id}", identity, "{name}", "audit", "{projection}",
						"audit", "{session_id}", id, "{position}", positions[session],
						"{turn_id}", events.TurnID(id, "r").String()).Replace(route.Path)
					var form url.Values
					if route.Method == http.MethodPost {
						form = url.Values{}
					}
					a := s.do(route.Method, path, form, "Cookie", cookie)
					what := fmt.Sprintf("%s with %v, %s, %s session: %d", pattern, set.Names(), who, session, a.status)
					named := whose.MatchString(route.Path)
					if session == "erased" {
						require.NotContains(t, a.body, "question of erased", what)
					}
					read := needs[pattern].all&follows == 0 || strings.Contains(route.Path, "{turn_id}")
					switch {
					case set&want.all != want.all, want.any != 0 && set&want.any == 0:
						require.Equal(t, http.StatusForbidden, a.status, what)
					case who == "bound" && !want.bound:
						require.Equal(t, http.StatusForbidden, a.status, what)
					case who == "bound" && named && identity != "ada":
						require.Equal(t, http.StatusNotFound, a.status, what)
						require.NotContains(t, a.body, "question of")
					default:
						require.NotContains(t, []int{401, 403, 500}, a.status, what)
						if read && route.Method == http.MethodGet && !acts.MatchString(route.Path) &&
							strings.Contains(route.Path, "{session_id}") {
							there := session != "unknown" && session != "erased"
							require.Equal(t, there, a.status == http.StatusOK, what)
						}
					}
				}
				require.Equal(t, http.StatusUnauthorized, s.do(route.Method, route.Path, nil).status, pattern)
			}
		}
	}
	require.NotZero(t, cells)
}
