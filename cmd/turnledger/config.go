package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/projections/recent"
)

// Config is what dev and serve are told: flags, or the environment (docs/contract.md#environment).
type Config struct {
	Listen      string   `help:"Address of the HTTP API." default:"127.0.0.1:8480" env:"TURNLEDGER_LISTEN"`
	DataDir     string   `help:"Where everything is kept." default:"./data" env:"TURNLEDGER_DATA_DIR" type:"path"`
	NATSURL     string   `name:"nats-url" help:"An outside NATS; unset: the embedded server." env:"TURNLEDGER_NATS_URL"`
	NATSListen  string   `name:"nats-listen" help:"Listener of the embedded NATS, host:port; off loopback as nats://user:password@host:port." env:"TURNLEDGER_NATS_LISTEN"`
	PostgresURL string   `help:"PostgreSQL of the audit tables; unset: dev runs an installed one, serve has no audit." env:"TURNLEDGER_POSTGRES_URL"`
	RedisURL    string   `help:"Redis of the recent view; unset: in memory." env:"TURNLEDGER_REDIS_URL"`
	Partitions  int      `help:"Partitions of the log, a power of two up to 256, fixed when it is made." default:"1" env:"TURNLEDGER_PARTITIONS"`
	Replicas    int      `help:"Replicas of the log." default:"1" env:"TURNLEDGER_REPLICAS"`
	Sync        string   `help:"Who makes a write durable: group (shared fsyncs), always (each by itself), none." default:"group" env:"TURNLEDGER_SYNC"`
	SessionTTL  Duration `name:"session-ttl" help:"Silence after which an anonymous session begins anew, 30m to 90d." default:"24h" env:"TURNLEDGER_SESSION_TTL"`
	SessionMax  int      `name:"session-max-turns" help:"Turns of a session that the recent view keeps." default:"500" env:"TURNLEDGER_SESSION_MAX_TURNS"`
	IdleTimeout Duration `help:"Silence after which prompts leave earlier turns out; off: never." default:"off" env:"TURNLEDGER_IDLE_TIMEOUT"`

	Retention          Duration `help:"Age at which turns of linked sessions are redacted; off: they are kept." default:"off" env:"TURNLEDGER_RETENTION"`
	AnonymousRetention Duration `help:"Silence after which an anonymous session leaves the log; off: never." default:"30d" env:"TURNLEDGER_ANONYMOUS_RETENTION"`
	EraseRate          float64  `help:"Events a second that are overwritten at most." default:"25" env:"TURNLEDGER_ERASE_RATE"`
	HashKey            string   `help:"Key of the hashes of addresses that the security audit keeps; unset: one that is drawn once and kept in the log's NATS." env:"TURNLEDGER_HASH_KEY"`

	MetadataKeys         string `help:"Metadata keys that may be kept, with commas between." env:"TURNLEDGER_METADATA_KEYS" default:"channel,device_type,ip_hash,user_agent_hash,locale,question_neutral_is_fallback"`
	FinalizeWithoutStart bool   `help:"For development: a finalize starts a turn that was never started." env:"TURNLEDGER_FINALIZE_WITHOUT_START"`
	RecentShadow         string `help:"A second recent view that reads are compared with: memory, or the URL of a Redis; answers come from the first." env:"TURNLEDGER_RECENT_SHADOW"`
	authConfig           `embed:""`
	tlsConfig            `embed:""`
	limitsConfig         `embed:""`
	promptConfig         `embed:""`
	Verbose              bool `help:"Log debug lines." short:"v" env:"TURNLEDGER_VERBOSE"`
}

// Validate joins all complaints.
func (c Config) Validate() error {
	var errs []error
	complain := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s", name, fmt.Sprintf(format, args...)))
	}
	if c.Partitions < 1 || c.Partitions > events.Buckets || c.Partitions&(c.Partitions-1) != 0 {
		complain("TURNLEDGER_PARTITIONS", "must be a power of two from 1 to %d", events.Buckets)
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		complain("TURNLEDGER_REPLICAS", "must be 1 to 5")
	}
	if c.Replicas > 1 && c.NATSURL == "" {
		complain("TURNLEDGER_REPLICAS", "above 1 needs a cluster: set TURNLEDGER_NATS_URL")
	}
	if !slices.Contains([]embedded.Sync{embedded.Group, embedded.Always, embedded.None}, embedded.Sync(c.Sync)) {
		complain("TURNLEDGER_SYNC", "must be group, always or none")
	}
	if ttl := time.Duration(c.SessionTTL); ttl < 30*time.Minute || ttl > 90*24*time.Hour {
		complain("TURNLEDGER_SESSION_TTL", "must be between 30m and 90d")
	}
	if c.EraseRate <= 0 || c.EraseRate > 10_000 {
		complain("TURNLEDGER_ERASE_RATE", "must be above 0 and at most 10000")
	}
	if c.SessionMax < 1 || c.SessionMax > 100_000 {
		complain("TURNLEDGER_SESSION_MAX_TURNS", "must be 1 to 100000")
	}
	if c.NATSURL != "" && c.NATSListen != "" {
		complain("TURNLEDGER_NATS_LISTEN", "is for the embedded server: unset it, or TURNLEDGER_NATS_URL")
	}
	c.authConfig.validate(complain)
	c.validateTLS(complain)
	c.limitsConfig.validate(complain)
	c.promptConfig.validate(complain)
	if s := c.RecentShadow; s != "" && s != "memory" && !strings.Contains(s, "://") {
		complain("TURNLEDGER_RECENT_SHADOW", "must be memory, or the URL of a Redis such as redis://localhost:6379")
	}
	if c.RecentShadow != "" && c.RecentShadow == c.RedisURL {
		complain("TURNLEDGER_RECENT_SHADOW", "is the first view itself: name another Redis than TURNLEDGER_REDIS_URL, or memory")
	}
	return errors.Join(errs...)
}

func (c Config) rules() conversation.Rules {
	return conversation.Rules{SessionTTL: time.Duration(c.SessionTTL), MetadataKeys: c.policy().MetadataKeys}
}

func (c Config) limits() recent.Limits {
	return recent.Limits{TTL: time.Duration(c.SessionTTL), MaxTurns: c.SessionMax}
}

func (c Config) policy() conversation.Policy {
	keys := []string{}
	for k := range strings.SplitSeq(c.MetadataKeys, ",") {
		if k = strings.TrimSpace(k); k != "" {
			keys = append(keys, k)
		}
	}
	return conversation.Policy{MetadataKeys: keys}
}

// natsListener takes a listen address apart: host:port, or a URL with credentials.
func natsListener(s string) (address, user, password string, err error) {
	if !strings.Contains(s, "://") {
		return s, "", "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return "", "", "", fmt.Errorf("%w: TURNLEDGER_NATS_LISTEN: want host:port or nats://user:password@host:port", errUsage)
	}
	password, _ = u.User.Password()
	return u.Host, u.User.Username(), password, nil
}

// secretless gives an address or URL without its password, and what may be one.
func secretless(s string) string {
	if _, _, err := net.SplitHostPort(s); s == "" || err == nil && !strings.Contains(s, "/") {
		return s
	}
	if several := strings.Split(s, ","); len(several) > 1 && !slices.ContainsFunc(several, func(one string) bool { return !strings.Contains(one, "://") }) {
		for i, one := range several { // servers of a cluster
			several[i] = secretless(one)
		}
		return strings.Join(several, ",")
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Opaque != "" || strings.Contains(u.Path, "@") {
		return "(set)" // such as a PostgreSQL connection string of keywords
	}
	postgres := u.Scheme == "postgres" || u.Scheme == "postgresql"
	q := u.Query()
	for name := range q {
		if !postgres || strings.Contains(name, "password") { // a model's endpoint may take its key there
			q.Set(name, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	if _, ok := u.User.Password(); u.User != nil && !ok && !postgres {
		u.User = url.User("xxxxx") // a token
	}
	return u.Redacted()
}

// Duration is a time.Duration that also reads days ("30d") and "off".
type Duration time.Duration

// UnmarshalText reads "24h", "30d" or "off".
func (d *Duration) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "off" || s == "keep" || s == "" {
		*d = 0
		return nil
	}
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.ParseFloat(n, 64)
		if err != nil || days < 0 {
			return errors.New("want a time such as 30m, 24h or 7d, or off")
		}
		*d = Duration(days * 24 * float64(time.Hour))
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return errors.New("want a time such as 30m, 24h or 7d, or off")
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string {
	if d == 0 {
		return "off"
	}
	return time.Duration(d).String()
}
