package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scopes are permissions of a caller; a call needs one or more. The zero value allows nothing.
type Scopes uint8

// The scopes. None contains another: Admin operates the system and reads no text
// (docs/decisions.md#no-scope-contains-another).
const (
	TurnsWrite  Scopes = 1 << iota // record turns, link and reset sessions
	ContextRead                    // read sessions, turns and contexts
	EventsRead                     // read the log
	TurnsRedact                    // redact and erase
	Admin                          // views, dead letters
	TokensIssue                    // make tokens for browsers
)

// scopeNames are in the order of the bits.
var scopeNames = []string{"turns:write", "context:read", "events:read", "turns:redact", "admin", "tokens:issue"}

// ParseScopes reads names of scopes, such as turns:write.
func ParseScopes(names []string) (Scopes, error) {
	var out Scopes
	for _, name := range names {
		i := slices.Index(scopeNames, name)
		if i < 0 {
			return 0, fmt.Errorf("%q is no scope; there are %s", name, strings.Join(scopeNames, ", "))
		}
		out |= 1 << i
	}
	return out, nil
}

// Names returns the names that ParseScopes reads.
func (s Scopes) Names() []string {
	var out []string
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Caller is the program or the user that sends a request. Name identifies the caller in the log and is no secret. A
// caller with an IdentityID is bound: it reaches only sessions that are linked to this identity. To a bound caller, any
// other session seems not to exist.
type Caller struct {
	Name       string
	Scopes     Scopes
	IdentityID string
	// Until is when what the caller showed ends; the zero time if it has no end.
	Until time.Time
	// Maker is who made the token that the caller showed; Token: it was one of a TokenIssuer.
	Maker string
	Token bool
}

// Authenticator finds the caller that a token belongs to. Its errors are the errors below, plain or wrapped, and never
// hold the token. Safe for concurrent use.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Caller, error)
}

// Errors of an Authenticator.
var (
	ErrUnauthenticated = errors.New("send a valid key as Authorization: Bearer KEY (the command line takes it from " +
		"TURNLEDGER_KEY); turnledger keys create makes one")
	ErrKeyEnded   = errors.New("the key has expired or was revoked: turnledger keys create makes another")
	ErrTokenEnded = errors.New("the token has expired, or what it rests on has ended: get another one from its issuer")
	// ErrNoKeys: the token can't be checked, since this process does not have the issuer's keys yet.
	ErrNoKeys = errors.New("the issuer of tokens does not answer, so that they can't be checked: try again")
)

// Ended reports whether an error of an Authenticator says that the caller is not, or is no longer, authenticated.
func Ended(err error) bool {
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrKeyEnded) || errors.Is(err, ErrTokenEnded)
}

// Attempt is what one attempt to sign in at an issuer is known by when the browser comes back. The browser keeps it.
type Attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// Errors of signing in at an issuer.
var (
	// ErrIssuer: the issuer does not answer, or not as OpenID Connect says.
	ErrIssuer = errors.New("the issuer of tokens does not answer: try again")
	// ErrAttempt: what came back from the issuer does not belong to this attempt to sign in.
	ErrAttempt = errors.New("this sign-in was not begun here, or has ended: begin again")
)
