package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
	"github.com/turnledger/turnledger/services/access/tokens"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// callers are those who may call: by a key, or by a token.
type callers struct {
	keys   *apikeys.Ring  // nil: nobody has one
	issuer *tokens.Issuer // nil: nobody has its tokens
}

var _ access.Authenticator = (*callers)(nil)

// openCallers reads the keys that callers must show, where they must; nil where nobody is
// asked for anything.
func openCallers(cfg config.Config, logger *slog.Logger) (*callers, error) {
	sources, err := config.ParseAuth(cfg.Auth)
	if err != nil {
		return nil, fmt.Errorf("%w: TURNLEDGER_AUTH %w", config.ErrUsage, err)
	}
	if cfg.Auth == "" {
		return nil, nil //nolint:nilnil // nobody is asked, on loopback
	}
	c := &callers{}
	if sources.Keys != "" {
		if c.keys, err = apikeys.Open(sources.Keys, apikeys.Config{Logger: logger}); err != nil {
			return nil, fmt.Errorf("%w: TURNLEDGER_AUTH: %w", config.ErrUsage, err)
		}
	}
	if sources.Issuer != "" {
		if c.issuer, err = tokens.New(cfg.Tokens(sources.Issuer, logger)); err != nil {
			return nil, fmt.Errorf("%w: TURNLEDGER_AUTH: %w", config.ErrUsage, err)
		}
	}
	return c, nil
}

// Authenticate asks for a key first: a token has two dots, which no key has.
func (c *callers) Authenticate(ctx context.Context, token string) (access.Caller, error) {
	switch {
	case c.issuer != nil && (c.keys == nil || strings.Count(token, ".") == 2):
		return c.issuer.Authenticate(ctx, token)
	case c.keys != nil:
		return c.keys.Authenticate(ctx, token)
	default:
		return access.Caller{}, access.ErrUnauthenticated
	}
}

// checks tells whether callers can be told apart. Those with a key can without the issuer.
func (c *callers) checks() []httpwire.Check {
	if c == nil || c.issuer == nil {
		return nil
	}
	return []httpwire.Check{{Name: "issuer", Optional: c.keys != nil, Probe: func(context.Context) error {
		if c.issuer.Ready() != nil {
			return httpwire.Reason("the issuer of tokens has not told its keys yet: check TURNLEDGER_AUTH, and whether it answers from here")
		}
		return nil
	}}}
}

// run follows the file of keys and the issuer until ctx ends.
func (c *callers) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if c.keys != nil {
		g.Go(func() error { return c.keys.Run(ctx) })
	}
	if c.issuer != nil {
		g.Go(func() error { return c.issuer.Run(ctx) })
	}
	return g.Wait()
}
