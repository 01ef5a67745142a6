package jwt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services/access"
)

// Config of an Issuer.
type Config struct {
	// URL of the issuer, exactly as its tokens name it: https, or http on loopback. Below it is
	// /.well-known/openid-configuration.
	URL string
	// Audience that every token must name.
	Audience string
	// Algorithms are the accepted signature algorithms, RS256 and ES256 by default, whatever a token or the issuer
	// names. All of them use key pairs: with a shared secret or "none", anybody with the issuer's public key could make
	// tokens.
	Algorithms []string
	// IdentityClaim is the claim with the identity_id of an end user, sub by default. ScopesClaim is the claim with the
	// scopes, as a list or as a string with spaces, scope by default.
	IdentityClaim, ScopesClaim string
	// Services are subjects that are programs and not users. They reach all sessions.
	Services []string
	// Leeway for the difference between this machine's clock and the issuer's; 1 min by default.
	Leeway time.Duration
	// Refresh is the pause between two fetches of the issuer's keys, 5 min by default: a key that the issuer has
	// withdrawn is trusted no longer than that. A token with an unknown key causes a fetch too, but no sooner than
	// Pause, 10 s by default, after the last one.
	Refresh, Pause time.Duration
	Client         *http.Client
	Logger         *slog.Logger
}

// algorithms are all algorithms that may be configured.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

func (c Config) withDefaults() Config {
	if len(c.Algorithms) == 0 {
		c.Algorithms = []string{oidc.RS256, oidc.ES256}
	}
	c.IdentityClaim, c.ScopesClaim = cmp.Or(c.IdentityClaim, "sub"), cmp.Or(c.ScopesClaim, "scope")
	c.Leeway = cmp.Or(c.Leeway, time.Minute)
	c.Refresh, c.Pause = cmp.Or(c.Refresh, 5*time.Minute), cmp.Or(c.Pause, 10*time.Second)
	c.Client = cmp.Or(c.Client, &http.Client{})
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns all faults of the configuration, joined.
func (c Config) Validate() error {
	var wrong []error
	if err := trusted(c.URL); err != nil {
		wrong = append(wrong, fmt.Errorf("the issuer %w", err))
	}
	if c.Audience == "" {
		wrong = append(wrong, errors.New("the audience is missing: without it tokens for other programs would count"))
	}
	for _, a := range c.Algorithms {
		if !slices.Contains(algorithms, a) {
			all := strings.Join(algorithms, ", ")
			wrong = append(wrong, fmt.Errorf("%q is no algorithm that may sign tokens; there are %s", a, all))
		}
	}
	if c.Leeway < 0 || c.Leeway > 10*time.Minute {
		wrong = append(wrong, errors.New("the leeway must be at most 10m"))
	}
	return errors.Join(wrong...)
}

// trusted refuses an address if others could forge its answers.
func trusted(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return errors.New("must be a URL such as https://login.example.org")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	default:
		return errors.New("must be an https URL: keys that come in clear may be anybody's")
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Issuer finds the callers of tokens. Safe for concurrent use.
type Issuer struct {
	cfg      Config
	keys     *keys
	verifier *oidc.IDTokenVerifier
}

var _ access.Authenticator = (*Issuer)(nil)

// New makes an Issuer; it does no network I/O. Authenticate fails with access.ErrNoKeys until Run, or a token with an
// unknown key, has fetched the issuer's keys.
func New(cfg Config) (*Issuer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	i := &Issuer{cfg: cfg, keys: newKeys(cfg)}
	i.verifier = oidc.NewVerifier(cfg.URL, i.keys, &oidc.Config{
		ClientID: cfg.Audience, SupportedSigningAlgs: cfg.Algorithms,
		SkipExpiryCheck: true, // checked with Leeway, see within
	})
	return i, nil
}

// Run fetches the issuer's keys repeatedly until ctx ends, and then returns nil. While the issuer does not answer, the
// keys that were fetched last stay valid.
func (i *Issuer) Run(ctx context.Context) error {
	for {
		wait := i.cfg.Refresh
		if err := i.keys.fetch(ctx); err != nil && ctx.Err() == nil {
			i.cfg.Logger.Error("the issuer of tokens does not tell its keys; those that it told last go on to count",
				"err", err)
			wait = min(wait, i.cfg.Pause)
		}
		if !pause.For(ctx, wait) {
			return nil
		}
	}
}

// Ready returns an *events.NotReady of access.ErrNoKeys until the issuer has answered with its keys.
func (i *Issuer) Ready(context.Context) error {
	if i.keys.byID.Load() == nil {
		return &events.NotReady{Err: access.ErrNoKeys, Reason: "the issuer of tokens has not told its keys yet: " +
			"check TURNLEDGER_AUTH, and whether it answers from here"}
	}
	return nil
}

// Authenticate returns the caller that a token belongs to.
func (i *Issuer) Authenticate(ctx context.Context, token string) (access.Caller, error) {
	asked := &asked{}
	t, err := i.verifier.Verify(context.WithValue(ctx, askedKey{}, asked), token)
	switch {
	case errors.Is(asked.err, access.ErrNoKeys):
		return access.Caller{}, asked.err
	case err != nil:
		i.cfg.Logger.Debug("a token was refused", "err", err)
		return access.Caller{}, access.ErrUnauthenticated
	}
	var c claims
	if err := t.Claims(&c); err != nil {
		return access.Caller{}, access.ErrUnauthenticated
	}
	if err := i.within(c); err != nil {
		return access.Caller{}, err
	}
	return i.caller(t.Subject, c)
}

// dialTimeout bounds one request to the issuer.
const dialTimeout = 5 * time.Second
