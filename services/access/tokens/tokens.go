// Package tokens makes and checks short-lived tokens for browsers. A token is bound to an identity, and signed under a
// key that all processes share: whoever has the key can check it, and nothing is stored. It is void once it has
// expired, its maker may not make it any more, or its identity was erased.
package tokens

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Issuer makes tokens, and finds their callers. Safe for concurrent use.
type Issuer struct {
	// Key signs tokens. Without it none is made, and none counts.
	Key []byte
	// Maker returns what the caller of a name may do now; its errors are those of access.Authenticator.
	Maker func(name string) (access.Caller, error)
	// Erased reports whether an identity is erased.
	Erased func(ctx context.Context, identityID string) (bool, error)
	// Now is time.Now by default.
	Now func() time.Time
}

var (
	_ access.TokenIssuer   = (*Issuer)(nil)
	_ access.Authenticator = (*Issuer)(nil)
)

// claims are what a token says, in JSON.
type claims struct {
	Identity string   `json:"sub"`
	Maker    string   `json:"by,omitempty"`
	Scopes   []string `json:"scp"`
	Expires  int64    `json:"exp"` // Unix seconds
	// Path is the one that a ticket opens.
	Path string `json:"pth,omitempty"`
}

func (i *Issuer) now() time.Time {
	if i.Now == nil {
		return time.Now()
	}
	return i.Now()
}

// IssueToken implements access.TokenIssuer.
func (i *Issuer) IssueToken(ctx context.Context, ask access.TokenAsk) (access.Token, error) {
	maker := access.CallOf(ctx).Caller
	if missing := ask.Scopes &^ maker.Scopes; maker.Scopes != 0 && missing != 0 {
		return access.Token{}, &access.MissingScopes{Scopes: missing}
	}
	if len(i.Key) == 0 {
		return access.Token{}, access.ErrNoTokenKey
	}
	name := maker.Name
	if maker.Token {
		name = maker.Maker
	}
	erased, err := i.erased(ctx, ask.IdentityID)
	if err == nil && erased {
		err = access.ErrIdentityErased
	}
	if err != nil {
		return access.Token{}, err
	}
	ends := i.now().Add(ask.Life)
	if !maker.Until.IsZero() && maker.Until.Before(ends) {
		ends = maker.Until
	}
	raw, err := json.Marshal(claims{ask.IdentityID, name, ask.Scopes.Names(), ends.Unix(), ask.Path})
	if err != nil {
		return access.Token{}, err
	}
	said := base64.RawURLEncoding.EncodeToString(raw)
	text := access.TokenText(said + "." + base64.RawURLEncoding.EncodeToString(i.sign(said)))
	return access.Token{Text: text, ExpiresAt: time.Unix(ends.Unix(), 0).UTC()}, nil
}

// sign returns the signature of what a token says. It covers the version of the form.
func (i *Issuer) sign(said string) []byte {
	mac := hmac.New(sha256.New, i.Key)
	mac.Write([]byte(access.TokenText(said)))
	return mac.Sum(nil)
}

// Authenticate returns the caller that a token belongs to.
func (i *Issuer) Authenticate(ctx context.Context, token string) (access.Caller, error) {
	c, scopes, ok := i.read(token)
	if !ok || c.Path != "" && c.Path != access.CallOf(ctx).Path {
		return access.Caller{}, access.ErrUnauthenticated
	}
	ends := time.Unix(c.Expires, 0)
	maker, err := i.Maker(c.Maker)
	switch {
	case !i.now().Before(ends), access.Ended(err), maker.IdentityID != "" && maker.IdentityID != c.Identity:
		return access.Caller{}, access.ErrTokenEnded
	case err != nil:
		return access.Caller{}, err
	}
	erased, err := i.erased(ctx, c.Identity)
	if err == nil && erased {
		err = access.ErrTokenEnded
	}
	if err != nil {
		return access.Caller{}, err
	}
	return access.Caller{
		Name: "token of " + c.Maker, Scopes: scopes & maker.Scopes & access.TokenScopes, IdentityID: c.Identity,
		Until: ends, Maker: c.Maker, Token: true,
	}, nil
}

// erased reports whether an identity is erased; a ticket may have none.
func (i *Issuer) erased(ctx context.Context, identityID string) (bool, error) {
	if identityID == "" {
		return false, nil
	}
	return i.Erased(ctx, identityID)
}

// read returns what a token says, if it was signed here.
func (i *Issuer) read(token string) (c claims, scopes access.Scopes, ok bool) {
	body, is := access.TokenBody(token)
	said, signature, _ := strings.Cut(body, ".")
	sum, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if !is || err != nil || len(i.Key) == 0 || !hmac.Equal(sum, i.sign(said)) {
		return c, 0, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(said)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err == nil {
		scopes, err = access.ParseScopes(c.Scopes)
	}
	return c, scopes, err == nil
}
