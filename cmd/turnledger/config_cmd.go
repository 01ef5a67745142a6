package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

type configCmd struct {
	Config
	JSON bool `help:"Machine output."`
}

// setting is a line of the configuration.
type setting struct{ name, value string }

func (c *configCmd) Run(e *env) error {
	rows := []setting{
		{"TURNLEDGER_LISTEN", c.Listen},
		{"TURNLEDGER_DATA_DIR", c.DataDir},
		{"TURNLEDGER_NATS_URL", secretless(c.NATSURL)},
		{"TURNLEDGER_NATS_LISTEN", secretless(c.NATSListen)},
		{"TURNLEDGER_POSTGRES_URL", secretless(c.PostgresURL)},
		{"TURNLEDGER_REDIS_URL", secretless(c.RedisURL)},
		{"TURNLEDGER_PARTITIONS", fmt.Sprint(c.Partitions)},
		{"TURNLEDGER_REPLICAS", fmt.Sprint(c.Replicas)},
		{"TURNLEDGER_SYNC", c.Sync},
		{"TURNLEDGER_SESSION_TTL", c.SessionTTL.String()},
		{"TURNLEDGER_SESSION_MAX_TURNS", fmt.Sprint(c.SessionMax)},
		{"TURNLEDGER_IDLE_TIMEOUT", c.IdleTimeout.String()},
		{"TURNLEDGER_RETENTION", c.Retention.String()},
		{"TURNLEDGER_ANONYMOUS_RETENTION", c.AnonymousRetention.String()},
		{"TURNLEDGER_ERASE_RATE", fmt.Sprint(c.EraseRate)},
		{"TURNLEDGER_HASH_KEY", given(c.HashKey)},
		{"TURNLEDGER_METADATA_KEYS", c.MetadataKeys},
		{"TURNLEDGER_FINALIZE_WITHOUT_START", fmt.Sprint(c.FinalizeWithoutStart)},
		{"TURNLEDGER_RECENT_SHADOW", secretless(c.RecentShadow)},
	}
	rows = slices.Concat(rows, c.authConfig.rows(), c.tlsConfig.rows(), c.limitsConfig.rows(), c.promptConfig.rows())
	if c.JSON {
		out := map[string]string{}
		for _, r := range rows {
			out[r.name] = r.value
		}
		return printJSON(e.out, out)
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(e.out, "%s=%s\n", r.name, r.value); err != nil {
			return err
		}
	}
	return c.Validate()
}

func given(s string) string {
	if s == "" {
		return ""
	}
	return "(set)"
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
