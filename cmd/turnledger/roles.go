package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
)

// role is what a process does.
type role string

// The roles of docs/contract.md#command-line that this version has.
const (
	roleAPI     role = "api"     // takes writes over HTTP
	roleContext role = "context" // answers reads over HTTP
	roleRecent  role = "recent"  // feeds the recent view in Redis
	roleAudit   role = "audit"   // feeds the audit tables
	roleEraser  role = "eraser"  // carries redactions and erasures out, and retention
	roleChat    role = "chat"    // answers messages with a model
)

var allRoles = roles{roleAPI, roleContext, roleRecent, roleAudit, roleEraser, roleChat}

type roles []role

func (r roles) has(x role) bool { return slices.Contains(r, x) }

// parseRoles reads a list with commas.
func parseRoles(s string) (roles, error) {
	var out roles
	for name := range strings.SplitSeq(s, ",") {
		x := role(strings.TrimSpace(name))
		if !allRoles.has(x) {
			return nil, fmt.Errorf("%w: --roles: %q is not a role of this version; it has api, context, recent, "+
				"audit, eraser, chat", config.ErrUsage, name)
		}
		if !out.has(x) {
			out = append(out, x)
		}
	}
	return out, nil
}

// fit refuses what can't work, and says what to set.
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
	case r.has(roleChat) && c.ModelURL == "":
		return fmt.Errorf("%w: --roles chat: set TURNLEDGER_MODEL_URL and TURNLEDGER_MODEL_NAME", config.ErrUsage)
	default:
		return nil
	}
}

func (r roles) String() string {
	names := make([]string, len(r))
	for i, x := range r {
		names[i] = string(x)
	}
	return strings.Join(names, ",")
}
