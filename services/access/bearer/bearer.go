// Package bearer authenticates callers by a bearer token: an API key, or the token of an OpenID Connect issuer.
package bearer

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
	"github.com/turnledger/turnledger/services/access/jwt"
)

// Callers authenticates callers. Keys is nil if no API keys are configured, Issuer if no issuer of tokens is.
type Callers struct {
	Keys   *apikeys.Ring
	Issuer *jwt.Issuer
}

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

// Open opens the sources. It uses all of jwt.Config but the issuer's address. It returns nil if there are no
// sources.
func (s Sources) Open(c jwt.Config) (*Callers, error) {
	if s == (Sources{}) {
		return nil, nil //nolint:nilnil // without sources nobody is authenticated
	}
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

var _ access.Authenticator = Callers{}

// Authenticate implements access.Authenticator. A token has two dots; a key has none.
func (c Callers) Authenticate(ctx context.Context, shown string) (access.Caller, error) {
	switch {
	case c.Issuer != nil && (c.Keys == nil || strings.Count(shown, ".") == 2):
		return c.Issuer.Authenticate(ctx, shown)
	case c.Keys != nil:
		return c.Keys.Authenticate(ctx, shown)
	default:
		return access.Caller{}, access.ErrUnauthenticated
	}
}

// Run follows the file of keys and the issuer until ctx ends.
func (c Callers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if c.Keys != nil {
		g.Go(func() error { return c.Keys.Run(ctx) })
	}
	if c.Issuer != nil {
		g.Go(func() error { return c.Issuer.Run(ctx) })
	}
	return g.Wait()
}
