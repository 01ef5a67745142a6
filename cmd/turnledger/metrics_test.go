package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

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

// The table of docs/operations.md has every metric with its labels, and no other; rules
// and dashboards name only metrics that there are; and every alert has its heading.
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

	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary, Runbook string }
			}
		}
	}
	raw, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &rules))
	alerts := regexp.MustCompile(`(?m)^### (Turnledger\w+)$`).FindAllStringSubmatch(string(doc), -1)
	var headings, names []string
	for _, h := range alerts {
		headings = append(headings, h[1])
	}
	for _, r := range rules.Groups[0].Rules {
		names = append(names, r.Alert)
		require.NotEmpty(t, r.Annotations.Summary, r.Alert)
		require.Equal(t, "docs/operations.md#"+strings.ToLower(r.Alert), r.Annotations.Runbook)
		requireKnown(t, have, r.Expr)
	}
	require.Equal(t, headings, names)

	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	raw, err = os.ReadFile("../../deploy/grafana/dashboards/turnledger.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &board))
	require.NotEmpty(t, board.Panels)
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			requireKnown(t, have, target.Expr)
		}
	}
}

// requireKnown holds that an expression is one of Prometheus, and names only metrics that
// there are.
func requireKnown(t *testing.T, have map[string]string, expr string) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	require.NoError(t, err, expr)
	named := 0
	parser.Inspect(parsed, func(n parser.Node, above []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			named++
			if v.Name == "turnledger_log_head_sequence" {
				require.True(t, slices.ContainsFunc(above, func(n parser.Node) bool {
					a, ok := n.(*parser.AggregateExpr)
					return ok && a.Op == parser.MAX
				}), "each process that feeds a view tells it, so that a sum counts it several times: %s", expr)
			}
			name := v.Name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if name != "up" { // Prometheus' own
				require.Contains(t, have, name, expr)
			}
		}
		return nil
	})
	require.NotZero(t, named, expr)
}

// alertsMatching returns the alerts one of whose selectors takes a sample with these labels.
func alertsMatching(t *testing.T, rules map[string]string, name string, labels map[string]string) (out []string) {
	t.Helper()
	for alert, expr := range rules {
		parsed, err := parser.ParseExpr(expr)
		require.NoError(t, err, expr)
		taken := false
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && v.Name == name {
				all := true
				for _, m := range v.LabelMatchers {
					value, given := labels[m.Name]
					all = all && (!given || m.Matches(value))
				}
				taken = taken || all
			}
			return nil
		})
		if taken {
			out = append(out, alert)
		}
	}
	return out
}

// A process that is not ready yet answers its probes 503: no request has failed. And each
// dependency has the alert that says what its loss means.
func TestAlertsAreOfWhatTheySay(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(raw, &file))
	rules := map[string]string{}
	for _, r := range file.Groups[0].Rules {
		rules[r.Alert] = r.Expr
	}
	require.Empty(t, alertsMatching(t, rules, "turnledger_http_requests_total",
		map[string]string{"route": "GET /readyz", "status": "503"}))
	require.Equal(t, []string{"TurnledgerErrors"},
		alertsMatching(t, rules, "turnledger_http_requests_total",
			map[string]string{"route": "GET /v1/events", "status": "503"}))
	for dependency, alert := range map[string]string{"log": "TurnledgerLogDown", "redis": "TurnledgerDependencyDown",
		"postgres": "TurnledgerDependencyDown", "weaviate": "TurnledgerIndexDown",
		"issuer": "TurnledgerIssuerDown"} {
		require.Equal(t, []string{alert}, alertsMatching(t, rules, "turnledger_dependency_up",
			map[string]string{"dependency": dependency}), dependency)
	}
}
