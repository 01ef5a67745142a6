package console_test

import (
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
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services/access/jwt"
	"github.com/turnledger/turnledger/services/access/login"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

// withIssuer runs a console behind a proxy that ends TLS, in which people sign in at an issuer.
func withIssuer(t *testing.T) (*stack, *logintest.Issuer) {
	t.Helper()
	issuer := logintest.New(t)
	tokens, err := jwt.New(jwt.Config{URL: issuer.URL, Audience: logintest.Audience})
	require.NoError(t, err)
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
	for _, want := range []string{"__Host-turnledger-console-login=", "SameSite=Lax", "HttpOnly", "Secure", "Path=/",
		"Max-Age=600"} {
		require.Contains(t, set, want)
	}
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
