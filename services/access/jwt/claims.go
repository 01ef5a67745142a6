package jwt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/access"
)

// claims are the claims of a token, as they came.
type claims map[string]json.RawMessage

// text returns a claim that is a string, or "" if it is not one.
func (c claims) text(name string) string {
	var s string
	_ = json.Unmarshal(c[name], &s) // a claim of another type counts as missing
	return s
}

// list returns a claim that is a list of strings, or a string with spaces between the items.
func (c claims) list(name string) []string {
	var several []string
	if json.Unmarshal(c[name], &several) == nil {
		return several
	}
	return strings.Fields(c.text(name))
}

// moment returns a claim that is a time (RFC 7519: seconds since 1970, with a fraction).
func (c claims) moment(name string) (at time.Time, there, ok bool) {
	raw, there := c[name]
	var seconds float64
	if !there || json.Unmarshal(raw, &seconds) != nil || string(raw) == "null" || math.Abs(seconds) > 1<<40 {
		return time.Time{}, there, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true, true
}

// within checks that the current time is within the token's times. It refuses a token without an end.
func (i *Issuer) within(c claims) error {
	now := time.Now()
	ends, _, ok := c.moment("exp")
	if !ok {
		return access.ErrUnauthenticated
	}
	if begins, there, ok := c.moment("nbf"); there && (!ok || now.Add(i.cfg.Leeway).Before(begins)) {
		return access.ErrUnauthenticated
	}
	if !now.Add(-i.cfg.Leeway).Before(ends) {
		return access.ErrTokenEnded
	}
	return nil
}

// caller returns the caller that a token belongs to. Scopes that Turnledger does not know belong to other programs. A
// user never has the scope admin, whatever the token says, since calls with that scope see everybody's data.
func (i *Issuer) caller(subject string, c claims) (access.Caller, error) {
	if subject == "" {
		return access.Caller{}, access.ErrUnauthenticated
	}
	ends, _, _ := c.moment("exp")
	out := access.Caller{Name: named(subject), Until: ends}
	for _, s := range c.list(i.cfg.ScopesClaim) {
		scope, _ := access.ParseScopes([]string{s}) // 0 for a scope that Turnledger does not know
		out.Scopes |= scope
	}
	if slices.Contains(i.cfg.Services, subject) {
		return out, nil
	}
	out.Scopes &^= access.Admin
	out.IdentityID = c.text(i.cfg.IdentityClaim)
	if events.ValidID(out.IdentityID) != nil {
		i.cfg.Logger.Debug("a token was refused: it names no identity", "claim", i.cfg.IdentityClaim)
		return access.Caller{}, access.ErrUnauthenticated
	}
	return out, nil
}

// Named reports whether a name is that of a subject.
func Named(name string) bool { return strings.HasPrefix(name, subjectName) }

const subjectName = "sub_"

// named returns a name for a subject. It is unique to the subject, and reveals no person.
func named(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return subjectName + hex.EncodeToString(sum[:6])
}
