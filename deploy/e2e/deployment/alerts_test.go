package deployment_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var metricRow = regexp.MustCompile("(?m)^\\| `((?:turnledger|gen_ai)_[a-z_]+)` \\|")

// ofTheProcess is the one metric that the table lacks, since it is no own one. cmd/turnledger tests that it is there.
const ofTheProcess = "process_resident_memory_bytes"

// Rules and dashboards name only metrics of docs/operations.md's table, which has those that there are, and every alert
// has its heading.
func TestAlertsAndDashboardsNameMetricsOfTheTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	have := map[string]bool{}
	for _, row := range metricRow.FindAllStringSubmatch(string(doc), -1) {
		have[row[1]] = true
	}
	require.NotEmpty(t, have)
	have[ofTheProcess] = true
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary, Runbook string }
			}
		}
	}
	raw, err := os.ReadFile("../../prometheus/alerts.yml")
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
	raw, err = os.ReadFile("../../grafana/dashboards/turnledger.json")
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
func requireKnown(t *testing.T, have map[string]bool, expr string) {
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
	raw, err := os.ReadFile("../../prometheus/alerts.yml")
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
