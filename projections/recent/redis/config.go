package redis

import (
	"crypto/x509"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
)

// dialTimeout bounds a connection attempt.
const dialTimeout = 500 * time.Millisecond

// Config of a View.
type Config struct {
	// URL in the form of rueidis.ParseURL: redis://, rediss:// or unix://.
	URL string
	// Authorities that are trusted with rediss://; the system's by default.
	Authorities *x509.CertPool
	// Prefix of all keys, so that one Redis can hold several views; "recent" by default.
	Prefix string
	Limits recent.Limits
	Rules  session.Rules
	// LoadTimeout bounds one Load; 250 ms by default. Longer work is bounded by its ctx.
	LoadTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "recent"
	}
	if c.LoadTimeout == 0 {
		c.LoadTimeout = 250 * time.Millisecond
	}
	c.Limits = c.Limits.WithDefaults()
	c.Rules.Slim = false
	return c
}

// options returns the client's options, or all faults of the config.
func (c Config) options() (rueidis.ClientOption, error) {
	opt, err := rueidis.ParseURL(c.URL)
	if err != nil {
		// the error repeats it
		err = errors.New("the Redis URL can't be read: want redis://user:pass@host:6379/0, rediss:// or unix://")
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		err = errors.Join(err, errors.New("the Redis prefix must not hold { or }"))
	}
	if c.Limits.TTL < time.Second || c.Limits.MaxTurns < 1 {
		err = errors.Join(err, errors.New("the limits of the recent view must be positive"))
	}
	if c.Authorities != nil && opt.TLSConfig != nil {
		opt.TLSConfig.RootCAs = c.Authorities
	}
	opt.Dialer.Timeout = dialTimeout
	opt.DialCtxFn = answering(opt.DialCtxFn)
	opt.DisableCache, opt.DisableRetry = true, true
	opt.ClientName = "turnledger"
	// Two connections with modest buffers: a large batch on one does not delay the reads on the other.
	opt.PipelineMultiplex, opt.ReadBufferEachConn, opt.WriteBufferEachConn = 1, 128<<10, 128<<10
	return opt, err
}
