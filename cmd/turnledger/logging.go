package main

import (
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
)

func newLogger(w io.Writer, level slog.Level, verbose bool) *slog.Logger {
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// knownEnv are the variables that this version reads, with those of tests; each may have
// _FILE behind it.
var knownEnv = []string{
	"LISTEN", "AUTH", "DATA_DIR", "NATS_URL", "NATS_LISTEN", "POSTGRES_URL", "REDIS_URL", "PARTITIONS", "REPLICAS", "SYNC",
	"SESSION_TTL", "SESSION_MAX_TURNS", "IDLE_TIMEOUT", "METADATA_KEYS", "FINALIZE_WITHOUT_START", "SYSTEM_PROMPT", "VERBOSE",
	"MODEL_URL", "MODEL_NAME", "MODEL_KEY", "MODEL_API", "ON_PENDING", "REWRITER_URL", "REWRITER_NAME", "REWRITER_KEY", "REWRITER_TIMEOUT",
	"MEMORY_URL", "MEMORY_KEY", "MEMORY_API", "MEMORY_BUDGET", "RATE_SESSION", "RATE_IDENTITY", "RECENT_SHADOW",
	"RETENTION", "ANONYMOUS_RETENTION", "ERASE_RATE", "HASH_KEY",
	"AUTH_AUDIENCE", "AUTH_ALGORITHMS", "AUTH_IDENTITY_CLAIM", "AUTH_SCOPES_CLAIM", "AUTH_SERVICES", "AUTH_LEEWAY",
	"TLS_CERT", "TLS_KEY", "NATS_CREDS", "NATS_CA", "NATS_CERT", "NATS_KEY", "REDIS_CA",
	"HTTP_MAX_BODY", "HTTP_MAX_HEADER", "HTTP_HEADER_TIMEOUT", "HTTP_READ_TIMEOUT", "HTTP_IDLE_TIMEOUT", "HTTP_REQUEST_TIMEOUT",
	"HTTP_MAX_REQUESTS", "HTTP_MAX_STREAMS", "HTTP_MAX_CONNECTIONS",
	"URL", "KEY", "TEST_DATA", "TORTURE",
}

// warnUnknownEnv names what is set and has no effect, so that nobody relies on it.
func warnUnknownEnv(log *slog.Logger) {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if rest, ok := strings.CutPrefix(name, "TURNLEDGER_"); ok && !slices.Contains(knownEnv, strings.TrimSuffix(rest, "_FILE")) {
			log.Warn("the environment variable is not known to this version and has no effect", "name", name)
		}
	}
}
