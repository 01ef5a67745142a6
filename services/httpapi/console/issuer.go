package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Login signs people in at an issuer; *login.Login implements it.
type Login interface {
	Begin(ctx context.Context) (address string, a access.Attempt, err error)
	Finish(ctx context.Context, a access.Attempt, state, code string) (tokens []string, err error)
}

// Callback is the path to which an issuer sends people back.
const Callback = root + "/signin/callback"

// attemptTime is how long somebody may take at the issuer.
const attemptTime = 10 * time.Minute

// attempted is what the cookie of an attempt to sign in holds.
type attempted struct {
	access.Attempt
	To   string    `json:"to"`
	From time.Time `json:"from"`
}

// attemptCookie returns the cookie of an attempt. It is Lax, since the browser comes back from another site.
func attemptCookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	c := newCookie(r, value, age) //nolint:gosec // Secure wherever the browser speaks HTTPS
	c.Name += "-login"
	c.SameSite = http.SameSiteLaxMode
	return c
}

// toIssuer sends the browser to the issuer.
func (s *surface) toIssuer(w http.ResponseWriter, r *http.Request) error {
	address, a, err := s.cfg.Login.Begin(r.Context())
	if err != nil {
		return err
	}
	sealed := s.seal.close(loginPurpose, attempted{a, within(r.URL.Query().Get("to")), s.cfg.Now()})
	http.SetCookie(w, attemptCookie(r, sealed, attemptTime))
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// fromIssuer takes the code with which the browser comes back. It answers with a page that leads on by itself: browsers
// don't send a Strict cookie while they are redirected from another site.
func (s *surface) fromIssuer(w http.ResponseWriter, r *http.Request) error {
	var a attempted
	found := r.CookiesNamed(attemptCookie(r, "", 0).Name)
	http.SetCookie(w, attemptCookie(r, "", -time.Second))
	if len(found) != 1 || !s.seal.open(loginPurpose, found[0].Value, &a) || s.cfg.Now().Sub(a.From) > attemptTime {
		return access.ErrAttempt
	}
	query := r.URL.Query()
	tokens, err := s.cfg.Login.Finish(r.Context(), a.Attempt, query.Get("state"), query.Get("code"))
	if err != nil {
		return err
	}
	for _, token := range tokens {
		if err = s.admit(w, r, token); err == nil {
			return s.render(w, r, http.StatusOK, view{"landed", "Signed in", landed{within(a.To)}})
		}
	}
	return err
}

// landed is the page after a sign-in at an issuer.
type landed struct{ To string }

// issuerHref returns the address that leads to the issuer, and later to a page of the console.
func issuerHref(to string) string { return root + "/signin/issuer?" + url.Values{"to": {to}}.Encode() }

// admit signs a caller in by a key or a token.
func (s *surface) admit(w http.ResponseWriter, r *http.Request, key string) error {
	if key == "" || len(key) > mostKey {
		return access.ErrUnauthenticated
	}
	caller, err := s.cfg.Auth.Authenticate(r.Context(), key)
	if err != nil {
		return err
	}
	c := wire.CallOf(r.Context())
	c.Caller = caller
	c.Prominent()
	now := s.cfg.Now()
	s.setCookie(w, r, pass{key, now, now})
	return nil
}
