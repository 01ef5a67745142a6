package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
)

// ErrUsage marks a wrong command line or configuration.
var ErrUsage = errors.New("wrong use")

// Config holds the settings of dev and serve (docs/contract.md#environment). The tag show says how the verb config
// prints a setting that may hold a secret: url hides the secret parts of a URL, given prints only whether it is set,
// auth hides all but the list of sources, and never omits the row.
type Config struct {
	Listen     string `help:"Address of the HTTP API." default:"127.0.0.1:8480" env:"TURNLEDGER_LISTEN"`
	DataDir    string `help:"Where everything is kept." default:"./data" env:"TURNLEDGER_DATA_DIR" type:"path"`
	NATSURL    string `name:"nats-url" help:"An outside NATS; unset: the embedded server." env:"TURNLEDGER_NATS_URL" show:"url"`
	NATSListen string `name:"nats-listen" help:"Listener of the embedded NATS, host:port; off loopback as nats://user:password@host:port." env:"TURNLEDGER_NATS_LISTEN" show:"url"`
	// NATSIfFree: without the listener, where its port is taken.
	NATSIfFree   bool          `kong:"-"`
	PostgresURL  string        `help:"PostgreSQL of the audit tables; unset: dev runs an installed one, serve has no audit." env:"TURNLEDGER_POSTGRES_URL" show:"url"`
	RedisURL     string        `help:"Redis of the recent view; unset: in memory." env:"TURNLEDGER_REDIS_URL" show:"url"`
	Partitions   int           `help:"Partitions of the log, a power of two up to 256, fixed when it is made." default:"1" env:"TURNLEDGER_PARTITIONS"`
	Replicas     int           `help:"Replicas of the log." default:"1" env:"TURNLEDGER_REPLICAS"`
	Sync         string        `help:"Who makes a write durable: group (shared fsyncs), always (each by itself), none." default:"group" env:"TURNLEDGER_SYNC"`
	SessionTTL   time.Duration `name:"session-ttl" help:"Silence after which an anonymous session begins anew, 30m to 90d." default:"24h" env:"TURNLEDGER_SESSION_TTL"`
	SessionMax   int           `name:"session-max-turns" help:"Turns of a session that the recent view keeps." default:"500" env:"TURNLEDGER_SESSION_MAX_TURNS"`
	WindowBlocks bool          `help:"Where a call names no window, turns leave a full one in blocks of a quarter, so that most prompts begin as the last one did; false: one by one." default:"true" negatable:"" env:"TURNLEDGER_WINDOW_BLOCKS"`
	IdleTimeout  time.Duration `help:"Silence after which prompts leave earlier turns out; off: never." default:"off" env:"TURNLEDGER_IDLE_TIMEOUT"`

	Retention             time.Duration `help:"Age at which turns of linked sessions are redacted; off: they are kept." default:"off" env:"TURNLEDGER_RETENTION"`
	AnonymousRetention    time.Duration `help:"Silence after which an anonymous session leaves the log; off: never." default:"30d" env:"TURNLEDGER_ANONYMOUS_RETENTION"`
	ConversationRetention time.Duration `help:"Silence after which a conversation is removed, a linked one erased; off: never." default:"off" env:"TURNLEDGER_CONVERSATION_RETENTION"`
	EraseRate             float64       `help:"Events a second that are overwritten at most." default:"25" env:"TURNLEDGER_ERASE_RATE"`
	HashKey               string        `help:"Key of the hashes of addresses that the security audit keeps; unset: one that is drawn once and kept in the log's NATS." env:"TURNLEDGER_HASH_KEY" show:"given"`

	MetadataKeys         string `help:"Metadata keys that may be kept, with commas between." env:"TURNLEDGER_METADATA_KEYS" default:"channel,device_type,ip_hash,user_agent_hash,locale,question_neutral_is_fallback,original_created_at"`
	FinalizeWithoutStart bool   `help:"For development: a finalize starts a turn that was never started." env:"TURNLEDGER_FINALIZE_WITHOUT_START"`
	SearchConfig         string `help:"Text search configuration of PostgreSQL by which searches find words: simple (as they are), english, german and so on." default:"simple" env:"TURNLEDGER_SEARCH_CONFIG"`
	RecentShadow         string `help:"A second recent view that reads are compared with: memory, or the URL of a Redis; answers come from the first." env:"TURNLEDGER_RECENT_SHADOW" show:"url"`
	MCPWrite             bool   `name:"mcp-write" help:"Agents at /mcp may record turns, too." env:"TURNLEDGER_MCP_WRITE"`
	console              `embed:""`
	auth                 `embed:""`
	certificates         `embed:""`
	bounds               `embed:""`
	prompts              `embed:""`
	indexing             `embed:""`
	Verbose              bool `help:"Log debug lines." short:"v" env:"TURNLEDGER_VERBOSE" show:"never"`
}

// searchConfig is the form of the name of a text search configuration.
var searchConfig = regexp.MustCompile(`^[a-z_][a-z0-9_.]{0,62}$`)

// Validate returns all faults, joined.
func (c Config) Validate() error {
	var no complaints
	power := c.Partitions >= 1 && c.Partitions <= events.Buckets && c.Partitions&(c.Partitions-1) == 0
	no.unless(power, "PARTITIONS", "must be a power of two from 1 to %d", events.Buckets)
	no.unless(c.StreamKey == "" || len(c.StreamKey) >= 32, "STREAM_KEY", "must be 32 characters or more")
	no.unless(c.TokenKey == "" || len(c.TokenKey) >= 32, "TOKEN_KEY", "must be 32 characters or more")
	no.unless(within(c.Replicas, 1, 5), "REPLICAS", "must be 1 to 5")
	no.when(c.Replicas > 1 && c.NATSURL == "", "REPLICAS", "above 1 needs a cluster: set TURNLEDGER_NATS_URL")
	kinds := []embedded.Sync{embedded.Group, embedded.Always, embedded.None}
	no.unless(slices.Contains(kinds, embedded.Sync(c.Sync)), "SYNC", "must be group, always or none")
	no.unless(within(c.SessionTTL, 30*time.Minute, 90*24*time.Hour), "SESSION_TTL", "must be between 30m and 90d")
	no.when(c.EraseRate <= 0 || c.EraseRate > 10_000, "ERASE_RATE", "must be above 0 and at most 10000")
	no.unless(within(c.SessionMax, 1, 100_000), "SESSION_MAX_TURNS", "must be 1 to 100000")
	no.when(c.NATSURL != "" && c.NATSListen != "",
		"NATS_LISTEN", "is for the embedded server: unset it, or TURNLEDGER_NATS_URL")
	no.unless(searchConfig.MatchString(c.SearchConfig), "SEARCH_CONFIG",
		"must be the name of a text search configuration, such as simple or english")
	c.console.validate(&no, c.auth)
	c.auth.validate(&no)
	c.certificates.validate(&no, c)
	c.bounds.validate(&no)
	c.prompts.validate(&no)
	c.indexing.validate(&no)
	s := c.RecentShadow
	no.unless(s == "" || s == "memory" || strings.Contains(s, "://"),
		"RECENT_SHADOW", "must be memory, or the URL of a Redis such as redis://localhost:6379")
	no.when(s != "" && s == c.RedisURL,
		"RECENT_SHADOW", "is the first view itself: name another Redis than TURNLEDGER_REDIS_URL, or memory")
	return errors.Join(no...)
}

// complaints are faults of settings; each names its setting without TURNLEDGER_.
type complaints []error

func (c *complaints) when(wrong bool, name, format string, args ...any) {
	if wrong {
		*c = append(*c, fmt.Errorf("TURNLEDGER_%s %s", name, fmt.Sprintf(format, args...)))
	}
}

func (c *complaints) unless(right bool, name, format string, args ...any) {
	c.when(!right, name, format, args...)
}

func within[T cmp.Ordered](v, least, most T) bool { return v >= least && v <= most }

// Rules returns the rules by which sessions are folded.
func (c Config) Rules() session.Rules {
	return session.Rules{SessionTTL: c.SessionTTL, MetadataKeys: c.Policy().MetadataKeys}
}

// Limits returns the bounds of the recent view.
func (c Config) Limits() recent.Limits {
	return recent.Limits{TTL: c.SessionTTL, MaxTurns: c.SessionMax}
}

// Policy returns what a recorded turn may hold.
func (c Config) Policy() decide.Policy {
	keys := []string{}
	for k := range strings.SplitSeq(c.MetadataKeys, ",") {
		if k = strings.TrimSpace(k); k != "" {
			keys = append(keys, k)
		}
	}
	return decide.Policy{MetadataKeys: keys}
}

// AnonymousAge returns the silence after which an anonymous session leaves the log; 0 means never.
func (c Config) AnonymousAge() time.Duration { return c.silence(c.AnonymousRetention) }

// ConversationAge returns the silence after which a session of the kind conversation is removed; 0 means never.
func (c Config) ConversationAge() time.Duration { return c.silence(c.ConversationRetention) }

// ResponseAge returns the silence after which a session of the kind response is removed: the time for which OpenAI
// keeps responses.
func (c Config) ResponseAge() time.Duration { return c.silence(30 * 24 * time.Hour) }

// silence returns a time of retention that is never shorter than the session's TTL, since otherwise a session would
// leave while it is still shown.
func (c Config) silence(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d, c.SessionTTL)
}

// NATSListener parses the listener's setting: host:port, or a URL with credentials.
func (c Config) NATSListener() (address, user, password string, err error) {
	if !strings.Contains(c.NATSListen, "://") {
		return c.NATSListen, "", "", nil
	}
	u, err := url.Parse(c.NATSListen)
	if err != nil || u.Host == "" {
		return "", "", "", fmt.Errorf("%w: TURNLEDGER_NATS_LISTEN: want host:port or nats://user:password@host:port",
			ErrUsage)
	}
	password, _ = u.User.Password()
	return u.Host, u.User.Username(), password, nil
}
