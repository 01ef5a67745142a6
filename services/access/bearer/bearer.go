// Package bearer authenticates callers by what they send: an API key, or a token of an issuer.
package bearer

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
	"github.com/turnledger/turnledger/services/access/tokens"
)

// Callers knows who may call. Keys is nil if no API keys are configured, Issuer if no issuer of tokens is.
type Callers struct {
	Keys   *apikeys.Ring
	Issuer *tokens.Issuer
}

var _ access.Authenticator = Callers{}

// Authenticate implements access.Authenticator. A token has two dots, which no key has.
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
