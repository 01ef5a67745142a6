package main

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// describedMetrics returns the metrics of a process that has everything, with their labels.
func describedMetrics(t *testing.T) map[string]string {
	t.Helper()
	cfg := config.Config{
		Listen: "127.0.0.1:0", DataDir: stack.DataDir(t), Partitions: 1, Replicas: 1, Sync: "group",
		SessionTTL: 24 * time.Hour, SessionMax: 500, EraseRate: 40,
		PostgresURL: pg.Start(t).URL(), RedisURL: redistest.Start(t).URL(), RecentShadow: "memory",
	}
	cfg.MemoryURL, cfg.MemoryAPI = "http://127.0.0.1:1", "v5"
	cfg.SummaryURL, cfg.SummaryName = "http://127.0.0.1:1", "small"
	cfg.WeaviateURL, cfg.EmbedURL, cfg.EmbedName = "http://127.0.0.1:1", "http://127.0.0.1:1", "vectors"
	logger := slog.New(slog.NewTextHandler(&printed.Buffer{}, nil))
	s, err := openStore(t.Context(), cfg, logger)
	require.NoError(t, err)
	defer s.Close()
	a, err := openApp(t.Context(), &app{cfg: cfg, roles: allRoles, logger: logger, store: s, front: &front{}})
	require.NoError(t, err)
	defer a.close(t.Context())
	out, all := map[string]string{}, make(chan *prometheus.Desc)
	go func() {
		a.registry.Describe(all)
		close(all)
	}()
	for d := range all {
		m := described.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		out[m[1]] = strings.ReplaceAll(m[2], ",", ", ")
	}
	return out
}

var metricRow = regexp.MustCompile("(?m)^\\| `((?:turnledger|gen_ai)_[a-z_]+)` \\| [^|]+ \\| ([^|]*) \\|")

// The table of docs/operations.md has every metric with its labels, and no other. (That rules and dashboards name only
// metrics of the table: deploy/e2e/deployment.)
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	have := describedMetrics(t)
	doc, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	told := map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(doc), -1) {
		told[row[1]] = strings.TrimSpace(row[2])
	}
	own := map[string]string{}
	for name, labels := range have {
		if strings.HasPrefix(name, "turnledger_") || strings.HasPrefix(name, "gen_ai_") {
			own[name] = labels
		}
	}
	require.Equal(t, own, told)
	require.Contains(t, have, "process_resident_memory_bytes", "a dashboard shows it")
}
