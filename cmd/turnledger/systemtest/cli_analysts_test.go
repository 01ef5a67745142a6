package systemtest_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/export"
)

// The answers that docs/analysts.md shows for its SQL are those that a plain Parquet reader computes, after the same
// commands.
//
//conformance:h67 s25
func TestAnswersOfTheAnalystsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/analysts.md")
	require.NoError(t, err)
	files, err := filepath.Glob("../../../docs/examples/*.jsonl")
	require.NoError(t, err)
	// Without an eraser, which takes the redacted events out of the log.
	p := stack.Start(t, nil, "serve", "--roles", "api,context", "--data-dir", stack.DataDir(t))
	dir := t.TempDir()
	eventsFile, turnsFile := filepath.Join(dir, "events.parquet"), filepath.Join(dir, "turns.parquet")
	run := func(args ...string) string {
		out := p.Done(t, args...)
		return out
	}
	run(append([]string{"import"}, files...)...)
	run("link", "example-follow-up", "ada")
	out := p.Get(t, stack.SessionPath("example-dripping-tap")+"/turns")
	first := out["turns"].([]any)[0].(map[string]any)["turn_id"].(string)
	run("redact", "--yes", "example-dripping-tap", first)
	run("replay", "--format", "parquet", "-o", eventsFile)
	run("replay", "--turns", "--format", "parquet", "-o", turnsFile)

	events, err := parquet.ReadFile[export.EventRow](eventsFile)
	require.NoError(t, err)
	types, hidden := map[string]int{}, map[string]int{}
	for _, e := range events {
		types[e.Type]++
		if e.Redacted {
			hidden[e.Type]++
		}
	}
	var rows [][]string
	for _, typ := range slices.SortedFunc(maps.Keys(types),
		func(a, b string) int { return cmp.Or(types[b]-types[a], cmp.Compare(a, b)) }) {
		rows = append(rows, []string{typ, fmt.Sprint(types[typ]), fmt.Sprint(hidden[typ])})
	}
	requireShown(t, page, []string{"type", "events", "redacted"}, rows)

	turns, err := parquet.ReadFile[export.TurnRow](turnsFile)
	require.NoError(t, err)
	statuses := map[string]int{}
	var asked [][]string
	for _, r := range turns {
		statuses[r.Status]++
		if r.SessionID == "example-follow-up" {
			asked = append(asked, []string{*r.IdentityID, *r.QuestionNeutral, fmt.Sprint(len(*r.AnswerNeutral))})
		}
	}
	rows = nil
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		rows = append(rows, []string{s, fmt.Sprint(statuses[s])})
	}
	requireShown(t, page, []string{"status", "turns"}, rows)
	requireShown(t, page, []string{"identity_id", "question_neutral", "answer_bytes"}, asked)
}

// requireShown requires that a page shows a table.
func requireShown(t *testing.T, page []byte, columns []string, rows [][]string) {
	t.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{columns}, rows...) {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	require.NoError(t, w.Flush())
	require.Contains(t, string(page), table.String())
}
