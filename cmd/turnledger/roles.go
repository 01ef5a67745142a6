package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
)

// The roles of docs/contract.md#command-line that this version has.
const (
	roleAPI     = "api"     // takes writes over HTTP
	roleContext = "context" // answers reads over HTTP
	roleRecent  = "recent"  // feeds the recent view in Redis
	roleAudit   = "audit"   // feeds the audit tables
	roleIndex   = "index"   // feeds the index of meanings
	roleEraser  = "eraser"  // carries redactions and erasures out, and retention
	roleChat    = "chat"    // answers messages with a model
)

var allRoles = roles{roleAPI, roleContext, roleRecent, roleAudit, roleIndex, roleEraser, roleChat}

// roles are the roles of a process.
type roles []string

func (r roles) has(x string) bool { return slices.Contains(r, x) }

// parseRoles parses a list with commas.
func parseRoles(s string) (roles, error) {
	var out roles
	for name := range strings.SplitSeq(s, ",") {
		x := strings.TrimSpace(name)
		if !allRoles.has(x) {
			return nil, fmt.Errorf("%w: --roles: %q is not a role of this version; it has %s", config.ErrUsage, name,
				strings.Join(allRoles, ", "))
		}
		if !out.has(x) {
			out = append(out, x)
		}
	}
	return out, nil
}

// fit refuses settings that can't work with the roles, and says what to set.
func (r roles) fit(c config.Config) error {
	embedded := c.NATSURL == ""
	switch {
	case embedded && c.NATSListen == "" && (!r.has(roleAPI) || !r.has(roleContext)):
		return fmt.Errorf("%w: --roles %s: the embedded NATS is reachable in this process only, so nobody else could "+
			"do the rest: set TURNLEDGER_NATS_URL, or run the roles api and context here", config.ErrUsage, r)
	case r.has(roleRecent) && c.RedisURL == "" && !r.has(roleContext):
		return fmt.Errorf("%w: --roles %s: a recent view in memory serves only its own process: set "+
			"TURNLEDGER_REDIS_URL, or run the role context here", config.ErrUsage, r)
	case r.has(roleAudit) && c.PostgresURL == "" && len(r) == 1:
		return fmt.Errorf("%w: --roles audit: set TURNLEDGER_POSTGRES_URL", config.ErrUsage)
	case r.has(roleIndex) && c.WeaviateURL == "" && len(r) == 1:
		return fmt.Errorf("%w: --roles index: set TURNLEDGER_WEAVIATE_URL and TURNLEDGER_EMBED_URL", config.ErrUsage)
	case r.has(roleChat) && c.ModelURL == "":
		return fmt.Errorf("%w: --roles chat: set TURNLEDGER_MODEL_URL and TURNLEDGER_MODEL_NAME", config.ErrUsage)
	default:
		return nil
	}
}

func (r roles) String() string { return strings.Join(r, ",") }
