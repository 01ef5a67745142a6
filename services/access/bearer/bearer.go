// Package bearer authenticates callers by a bearer token: an API key, the token of an OpenID Connect issuer, or one
// that a caller of either kind was given for a browser.
package bearer

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
	"github.com/turnledger/turnledger/services/access/jwt"
	"github.com/turnledger/turnledger/services/access/tokens"
)

// Callers authenticates callers. Keys is nil if no API keys are configured, Issuer if no issuer of tokens is. Tokens
// checks the tokens that are made here; nil: none counts.
type Callers struct {
	Keys   *apikeys.Ring
	Issuer *jwt.Issuer
	Tokens *tokens.Issuer
}

// Open reports whether nobody needs a key.
func (c *Callers) Open() bool { return c.Keys == nil && c.Issuer == nil }

// ErrSources says that a list of sources is malformed. It does not repeat the list, which may hold a key by mistake.
var ErrSources = errors.New("must be keys:FILE, with a file that turnledger keys create makes, " +
	"or oidc:ISSUER, with the address of an issuer of tokens, or both with a comma between")

// Sources are the places where callers are looked up; an empty source is not used.
type Sources struct {
	Keys   apikeys.File
	Issuer string
}

// ParseSources reads a list such as keys:FILE,oidc:ISSUER.
func ParseSources(list string) (out Sources, err error) {
	if list == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		kind, value, _ := strings.Cut(strings.TrimSpace(part), ":")
		switch {
		case value != "" && kind == "keys" && out.Keys == "":
			out.Keys = apikeys.File(value)
		case value != "" && kind == "oidc" && out.Issuer == "":
			out.Issuer = value
		default:
			return Sources{}, ErrSources
		}
	}
	return out, nil
}

// List returns what may be shown of the keys in the file, which is read anew.
func (s Sources) List() ([]access.Key, error) {
	if s.Keys == "" {
		return nil, nil
	}
	list, err := s.Keys.Keys()
	out := make([]access.Key, len(list))
	for i, k := range list {
		out[i] = k.Shown()
	}
	return out, err
}

// Open opens the sources. It uses all of jwt.Config but the issuer's address.
func (s Sources) Open(c jwt.Config) (*Callers, error) {
	out := &Callers{}
	var err error
	if s.Keys != "" {
		out.Keys, err = apikeys.Open(s.Keys, apikeys.Config{Logger: c.Logger})
	}
	if err == nil && s.Issuer != "" {
		c.URL = s.Issuer
		out.Issuer, err = jwt.New(c)
	}
	return out, err
}

var _ access.Authenticator = (*Callers)(nil)

// Authenticate implements access.Authenticator. An issuer's token has two dots; a key has none.
func (c *Callers) Authenticate(ctx context.Context, shown string) (access.Caller, error) {
	_, made := access.TokenBody(shown)
	switch {
	case made && c.Tokens != nil:
		return c.Tokens.Authenticate(ctx, shown)
	case c.Issuer != nil && (c.Keys == nil || strings.Count(shown, ".") == 2):
		return c.Issuer.Authenticate(ctx, shown)
	case c.Keys != nil:
		return c.Keys.Authenticate(ctx, shown)
	default:
		return access.Caller{}, access.ErrUnauthenticated
	}
}

// Maker returns what the maker of a token may do now, by the name that the token has of it: that of a key, as the file
// of keys has it. What the issuer's tokens let their callers do is known from them alone, so they make none that lasts
// longer.
func (c *Callers) Maker(name string) (access.Caller, error) {
	all := access.Caller{Scopes: access.TokenScopes}
	switch {
	case name == "" && c.Open(), c.Issuer != nil && jwt.Named(name):
		return all, nil
	case c.Keys != nil:
		return c.Keys.Named(name)
	default:
		return access.Caller{}, access.ErrUnauthenticated
	}
}

// Run follows the file of keys and the issuer until ctx ends.
func (c *Callers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if c.Keys != nil {
		g.Go(func() error { return c.Keys.Run(ctx) })
	}
	if c.Issuer != nil {
		g.Go(func() error { return c.Issuer.Run(ctx) })
	}
	return g.Wait()
}
