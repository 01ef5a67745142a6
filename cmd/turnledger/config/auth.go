package config

import (
	"log/slog"
	"time"

	"github.com/turnledger/turnledger/services/access/bearer"
	"github.com/turnledger/turnledger/services/access/jwt"
	"github.com/turnledger/turnledger/services/access/secrets"
)

// auth says who may call the API.
type auth struct {
	Auth              string        `help:"Who may call the API: keys:FILE, a file that turnledger keys makes; oidc:ISSUER, users with its tokens; or both, with a comma between. Unset: anybody, on loopback only." env:"TURNLEDGER_AUTH" show:"auth"`
	AuthAudience      string        `help:"The audience that tokens must name; needed with oidc:." env:"TURNLEDGER_AUTH_AUDIENCE"`
	AuthAlgorithms    []string      `help:"Algorithms that may sign tokens." default:"RS256,ES256" env:"TURNLEDGER_AUTH_ALGORITHMS"`
	AuthIdentityClaim string        `help:"The claim of a token that is the user's identity_id." default:"sub" env:"TURNLEDGER_AUTH_IDENTITY_CLAIM"`
	AuthScopesClaim   string        `help:"The claim that names the scopes." default:"scope" env:"TURNLEDGER_AUTH_SCOPES_CLAIM"`
	AuthServices      []string      `help:"Subjects of tokens that are programs: they reach all sessions." env:"TURNLEDGER_AUTH_SERVICES"`
	StreamKey         string        `help:"Key under which processes tell each other of answers that are being made, 32 random characters or more, the same in every process; unset: one that is drawn once into stream.key in the data directory, and with an outside NATS none: answers are watched and stopped in their own process only." env:"TURNLEDGER_STREAM_KEY" show:"given"`
	TokenKey          string        `help:"Key that signs the tokens of POST /v1/tokens, 32 random characters or more, the same in every process; unset: one that is drawn once into token.key in the data directory, and with an outside NATS none: no tokens." env:"TURNLEDGER_TOKEN_KEY" show:"given"`
	AuthLeeway        time.Duration `help:"How far the issuer's clock may be from ours." default:"1m" env:"TURNLEDGER_AUTH_LEEWAY"`
}

// ShownAuth is TURNLEDGER_AUTH as anybody may see it.
func ShownAuth(auth string) string {
	if _, err := bearer.ParseSources(auth); err != nil {
		return secrets.Placeholder(auth)
	}
	return auth
}

func (c auth) tokens() jwt.Config {
	return jwt.Config{
		Audience: c.AuthAudience, Algorithms: c.AuthAlgorithms, IdentityClaim: c.AuthIdentityClaim,
		ScopesClaim: c.AuthScopesClaim,
		Services:    c.AuthServices, Leeway: c.AuthLeeway,
	}
}

func (c auth) validate(no *complaints) {
	sources, err := bearer.ParseSources(c.Auth)
	no.when(err != nil, "AUTH", "%s", err)
	if sources.Issuer != "" {
		cfg := c.tokens()
		cfg.URL = sources.Issuer
		err := cfg.Validate()
		no.when(err != nil, "AUTH", "oidc: %s (see TURNLEDGER_AUTH_AUDIENCE, _ALGORITHMS, _LEEWAY)", err)
	}
}

// Callers opens the key file and the issuer that authenticate callers.
func (c auth) Callers(logger *slog.Logger) (*bearer.Callers, error) {
	sources, err := bearer.ParseSources(c.Auth)
	if err != nil {
		return nil, wrong("TURNLEDGER_AUTH", err)
	}
	tokens := c.tokens()
	tokens.Logger = logger
	out, err := sources.Open(tokens)
	return out, wrong("TURNLEDGER_AUTH", err)
}
