package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
	"github.com/turnledger/turnledger/services/access/tokens"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// authConfig says who may call the API.
type authConfig struct {
	Auth              string   `help:"Who may call the API: keys:FILE, a file that turnledger keys makes; oidc:ISSUER, users with its tokens; or both, with a comma between. Unset: anybody, on loopback only." env:"TURNLEDGER_AUTH"`
	AuthAudience      string   `help:"The audience that tokens must name; needed with oidc:." env:"TURNLEDGER_AUTH_AUDIENCE"`
	AuthAlgorithms    []string `help:"Algorithms that may sign tokens." default:"RS256,ES256" env:"TURNLEDGER_AUTH_ALGORITHMS"`
	AuthIdentityClaim string   `help:"The claim of a token that is the user's identity_id." default:"sub" env:"TURNLEDGER_AUTH_IDENTITY_CLAIM"`
	AuthScopesClaim   string   `help:"The claim that names the scopes." default:"scope" env:"TURNLEDGER_AUTH_SCOPES_CLAIM"`
	AuthServices      []string `help:"Subjects of tokens that are programs: they reach all sessions." env:"TURNLEDGER_AUTH_SERVICES"`
	AuthLeeway        Duration `help:"How far the issuer's clock may be from ours." default:"1m" env:"TURNLEDGER_AUTH_LEEWAY"`
}

// authSources is TURNLEDGER_AUTH taken apart; what is empty is not asked.
type authSources struct {
	keys   apikeys.File
	issuer string
}

// parseAuth reads TURNLEDGER_AUTH. Its errors don't repeat it: it may be a key that went
// astray.
func parseAuth(auth string) (authSources, error) {
	var out authSources
	wrong := errors.New("must be keys:FILE, with a file that turnledger keys create makes, or oidc:ISSUER, with the address of an issuer of tokens, or both with a comma between")
	if auth == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(auth, ",") {
		kind, value, _ := strings.Cut(strings.TrimSpace(part), ":")
		switch {
		case value == "":
			return authSources{}, wrong
		case kind == "keys" && out.keys == "":
			out.keys = apikeys.File(value)
		case kind == "oidc" && out.issuer == "":
			out.issuer = value
		default:
			return authSources{}, wrong
		}
	}
	return out, nil
}

// shownAuth is TURNLEDGER_AUTH as anybody may see it.
func shownAuth(auth string) string {
	if _, err := parseAuth(auth); err != nil {
		return given(auth)
	}
	return auth
}

func (c authConfig) tokens(issuer string, logger *slog.Logger) tokens.Config {
	return tokens.Config{
		URL: issuer, Audience: c.AuthAudience, Algorithms: c.AuthAlgorithms, IdentityClaim: c.AuthIdentityClaim, ScopesClaim: c.AuthScopesClaim,
		Services: c.AuthServices, Leeway: time.Duration(c.AuthLeeway), Logger: logger,
	}
}

func (c authConfig) validate(complain func(name, format string, args ...any)) {
	sources, err := parseAuth(c.Auth)
	if err != nil {
		complain("TURNLEDGER_AUTH", "%s", err)
	}
	if sources.issuer != "" {
		if err := c.tokens(sources.issuer, nil).Validate(); err != nil {
			complain("TURNLEDGER_AUTH", "oidc: %s (see TURNLEDGER_AUTH_AUDIENCE, _ALGORITHMS, _LEEWAY)", err)
		}
	}
}

func (c authConfig) rows() []setting {
	return []setting{
		{"TURNLEDGER_AUTH", shownAuth(c.Auth)},
		{"TURNLEDGER_AUTH_AUDIENCE", c.AuthAudience},
		{"TURNLEDGER_AUTH_ALGORITHMS", strings.Join(c.AuthAlgorithms, ",")},
		{"TURNLEDGER_AUTH_IDENTITY_CLAIM", c.AuthIdentityClaim},
		{"TURNLEDGER_AUTH_SCOPES_CLAIM", c.AuthScopesClaim},
		{"TURNLEDGER_AUTH_SERVICES", strings.Join(c.AuthServices, ",")},
		{"TURNLEDGER_AUTH_LEEWAY", c.AuthLeeway.String()},
	}
}

// callers are those who may call: by a key, or by a token.
type callers struct {
	keys   *apikeys.Ring  // nil: nobody has one
	issuer *tokens.Issuer // nil: nobody has its tokens
}

var _ access.Authenticator = (*callers)(nil)

// openCallers reads the keys that callers must show, where they must; nil where nobody is
// asked for anything.
func openCallers(cfg Config, logger *slog.Logger) (*callers, error) {
	sources, err := parseAuth(cfg.Auth)
	if err != nil {
		return nil, fmt.Errorf("%w: TURNLEDGER_AUTH %w", errUsage, err)
	}
	if cfg.Auth == "" {
		return nil, nil //nolint:nilnil // nobody is asked, on loopback
	}
	c := &callers{}
	if sources.keys != "" {
		if c.keys, err = apikeys.Open(sources.keys, apikeys.Config{Logger: logger}); err != nil {
			return nil, fmt.Errorf("%w: TURNLEDGER_AUTH: %w", errUsage, err)
		}
	}
	if sources.issuer != "" {
		if c.issuer, err = tokens.New(cfg.tokens(sources.issuer, logger)); err != nil {
			return nil, fmt.Errorf("%w: TURNLEDGER_AUTH: %w", errUsage, err)
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
