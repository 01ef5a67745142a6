package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// Bounds of forms. A browser keeps no cookie of more than 4 KiB, so no key may be longer.
const (
	mostSignIn = 16 << 10
	mostKey    = 2500
	// mostForm bounds other forms: a turn's texts may be as long as the API takes them, and a form's encoding may take
	// three bytes for one.
	mostForm = 4 << 20
)

// errForm says that a form is malformed.
var errForm = problems.New(problems.CodeMalformed, "the form can't be read")

// readForm reads the body of a form.
func readForm(r *http.Request, most int64) (url.Values, error) {
	raw, err := wire.ReadBody(r, most)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return nil, errForm
	}
	return form, nil
}

// signIn takes a key, and answers with a cookie.
func (s *surface) signIn(w http.ResponseWriter, r *http.Request) error {
	form, err := readForm(r, mostSignIn)
	if err != nil {
		return err
	}
	if s.cfg.Auth != nil {
		if err := s.admit(w, r, strings.TrimSpace(form.Get("key"))); err != nil {
			return err
		}
	}
	http.Redirect(w, r, within(form.Get("to")), http.StatusSeeOther)
	return nil
}

// signOut takes the cookie away.
func (s *surface) signOut(w http.ResponseWriter, r *http.Request) error {
	clearCookie(w, r)
	http.Redirect(w, r, root+"/", http.StatusSeeOther)
	return nil
}

// within returns an address if it is a page of the console, else the first page. Anything else could lead elsewhere.
func within(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.EscapedPath(), root+"/") ||
		strings.ContainsAny(to, "\\\r\n\t") {
		return root + "/"
	}
	return u.RequestURI()
}

// Names of the cookie. Browsers keep a __Host- cookie only over HTTPS, and only for the host that has set it.
const (
	secureCookie = "__Host-turnledger-console"
	localCookie  = "turnledger-console"
)

// overTLS reports whether the browser speaks HTTPS, to this process or to a proxy. Everything counts as HTTPS but plain
// HTTP on this machine.
func overTLS(r *http.Request) bool {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return true
	}
	host := r.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return !wire.Loopback(host)
}

func newCookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks HTTPS
		Name: localCookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(age.Seconds()), Secure: overTLS(r),
	}
	if c.Secure {
		c.Name = secureCookie
	}
	return c
}

func (s *surface) setCookie(w http.ResponseWriter, r *http.Request, p pass) {
	http.SetCookie(w, newCookie(r, s.seal.close(cookiePurpose, p), longest))
}

func clearCookie(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, newCookie(r, "", -time.Second))
}

// passOf returns the pass in a request's cookie. A request with two such cookies has none.
func (s *surface) passOf(r *http.Request) (pass, bool) {
	found := r.CookiesNamed(newCookie(r, "", 0).Name)
	if len(found) != 1 || s.cfg.Now == nil {
		return pass{}, false
	}
	var p pass
	ok := s.seal.open(cookiePurpose, found[0].Value, &p)
	return p, ok && p.valid(s.cfg.Now())
}

// token returns the key that a request's caller has signed in with; the wire asks the authenticator for it each time.
func (s *surface) token(r *http.Request) (string, bool) {
	p, ok := s.passOf(r)
	return p.Key, ok
}

// renewAfter is how old the use in a cookie may be before the cookie is set again.
const renewAfter = time.Minute

// renew notes in the cookie that it was used.
func (s *surface) renew(w http.ResponseWriter, r *http.Request) {
	now := s.cfg.Now()
	if p, ok := s.passOf(r); ok && now.Sub(p.Used) >= renewAfter {
		p.Used = now
		s.setCookie(w, r, p)
	}
}

// How long a sign-in lasts: at most longest, and idle without a request.
const (
	longest = 12 * time.Hour
	idle    = time.Hour
)

// pass is what a cookie holds: the caller's key, and when it was shown and last used.
type pass struct {
	Key  string    `json:"key"`
	From time.Time `json:"from"`
	Used time.Time `json:"used"`
}

// valid reports whether a pass still counts at a time.
func (p pass) valid(now time.Time) bool {
	return now.Sub(p.From) < longest && now.Sub(p.Used) < idle && !p.Used.After(now.Add(idle))
}

// seal encrypts cookies, so that nobody else can read or make them.
type seal struct{ aead cipher.AEAD }

// purpose is authenticated with each cookie, so that one kind is not taken for another.
type purpose string

const (
	cookiePurpose purpose = "turnledger console cookie 1"
	loginPurpose  purpose = "turnledger console sign-in 1"
)

func newSeal(key []byte) seal {
	if len(key) == 0 {
		key = []byte(rand.Text())
	}
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(sum[:])
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return seal{aead}
		}
	}
	panic(err) // never happens: the key has the length of an AES key
}

func (s seal) close(of purpose, v any) string {
	plain, _ := json.Marshal(v)                        // what cookies hold always encodes
	sealed := s.aead.Seal(nil, nil, plain, []byte(of)) //nolint:gosec // the AEAD draws the nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// open reads a cookie that this deployment has sealed.
func (s seal) open(of purpose, cookie string, v any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil || s.aead == nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(of))
	return err == nil && json.Unmarshal(plain, v) == nil
}
