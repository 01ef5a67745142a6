package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

// done runs a verb that must succeed.
func done(t *testing.T, p *stack.Process, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := p.Run(t, args...)
	require.Equal(t, stack.ExitDone, code, errs)
	return out, errs
}

// The verbs that read the audit tables. What statistics count comes first.
//
//conformance:h4 h67 s25 "statistics"
//conformance:o78 "items are turns"
func TestVerbsOverTheAuditTables(t *testing.T) {
	t.Parallel()
	p, conn := withAudit(t)
	t.Run("statistics", func(t *testing.T) { statistics(t, p, conn) })
	t.Run("searches", func(t *testing.T) { searches(t, p) })
	t.Run("sessions", func(t *testing.T) { sessions(t, p) })
	t.Run("JSON", func(t *testing.T) { requireJSON(t, p) })
	t.Run("items are turns", func(t *testing.T) { itemsAreTurns(t, p, conn) })
}

// statistics counts turns, those of anonymous sessions too, and the times of those that were answered in a call of
// their own. The SQL that docs/analysts.md has for it counts the same.
func statistics(t *testing.T, p *stack.Process, conn *pgx.Conn) {
	t.Helper()
	page := must.Get(os.ReadFile("../../../docs/analysts.md"))(t)
	_, sql, found := strings.Cut(string(page), "```sql\nwith turns as (")
	require.True(t, found)
	sql, _, _ = strings.Cut(sql, "```")
	for n, body := range []map[string]any{{}, {"pipeline_name": "support"}, {"answer_neutral": "whole"},
		{"pipeline_name": "support", "answer_neutral": "whole"}, {"pipeline_name": "gone", "answer_neutral": "whole"}} {
		body["request_id"], body["question_neutral"] = fmt.Sprint(n), "question"
		turn := p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(fmt.Sprint("s", n%2))+"/turns", body)
		if n == 4 {
			p.Must(t, http.StatusOK, http.MethodPost,
				stack.SessionPath("s0")+"/turns/"+turn["turn_id"].(string)+"/redact", nil)
		}
	}
	p.RecordTurn(t, "s3", "r", "question", "answer")
	p.WaitCaughtUp(t, "audit")
	counted := map[string][]int{}
	for _, b := range p.Get(t, "/v1/stats?by=pipeline_name")["buckets"].([]any) {
		b := b.(map[string]any)
		by, _ := b["by"].(string)
		counted[by] = []int{int(b["started"].(float64)), int(b["finalized"].(float64)), int(b["sessions"].(float64))}
		require.Equal(t, by == "support", b["answer_ms_p50"] == nil, "nobody waited for an answer")
	}
	rows := must.Get(conn.Query(t.Context(), "with turns as ("+strings.TrimSuffix(strings.TrimSpace(sql), ";")))(t)
	asked, waited := map[string][]int{}, 0
	var day, p50, pipeline any
	var started, finalized, sessions int
	must.Get(pgx.ForEachRow(rows, []any{&day, &pipeline, &started, &finalized, &sessions, &p50}, func() error {
		by, _ := pipeline.(string)
		asked[by] = []int{started, finalized, sessions}
		if p50 != nil {
			waited++
		}
		return nil
	}))(t)
	require.Equal(t, map[string][]int{"": {4, 2, 2}, "support": {2, 1, 1}}, counted)
	require.Equal(t, counted, asked)
	require.Equal(t, 1, waited, "one turn was answered in a call of its own")
	out := p.Done(t, "stats", "--by", "pipeline_name")
	must.Contain(t, out, "support", "█")
	require.NotContains(t, out, "whole")
	p.Done(t, "projections", "verify")
}

// searches looks for turns with the verb.
func searches(t *testing.T, p *stack.Process) {
	t.Helper()
	p.LinkIdentity(t, "quarks", "ada")
	p.RecordTurn(t, "quarks", "r1", "What is a quark?", "An elementary particle of matter.")
	p.RecordTurn(t, "quarks", "r2", "And a lepton?", "Another particle: electrons are leptons.")
	p.RecordTurn(t, "visitor", "r1", "When do you open?", "At nine.")
	turns := func(args ...string) (out []string) {
		t.Helper()
		table := p.Done(t, append([]string{"search"}, args...)...)
		for line := range strings.Lines(table) {
			for _, of := range []string{"What is a quark?", "And a lepton?", "An elementary", "Another particle"} {
				if strings.Contains(line, of) {
					out = append(out, of)
				}
			}
		}
		return out
	}
	require.Equal(t, []string{"Another particle", "An elementary"}, turns("particle"), "equal scores: the newest first")
	require.Equal(t, []string{"An elementary"}, turns("--", "particle", "-electrons"))
	require.Equal(t, []string{"And a lepton?"}, turns("a", "lepton", "--in", "question"))
	require.Empty(t, turns("particle", "--in", "question"))
	require.Empty(t, turns("nine"), "an anonymous session is not searched")
	require.Empty(t, turns("particle", "--identity", "bob"))
	require.Len(t, turns("particle", "--identity", "ada", "--session", "quarks"), 2)
	require.Len(t, turns("particle", "--since", "1d", "--until", "0s"), 2)
	require.Empty(t, turns("particle", "--since", time.Now().Add(time.Hour).Format(time.RFC3339)))
	require.Empty(t, turns("particle", "--until", time.Now().Add(-time.Hour).Format(time.RFC3339)))
	require.Empty(t, turns("particle", "--language", "translated"))
	require.Empty(t, turns("particle", "--min-score", "0.99"))

	_, said := done(t, p, "search", "particle")
	require.Equal(t, "(by words)\n", said, "no mode was named, and there is no index")
	_, said = done(t, p, "search", "particle", "--mode", "words")
	require.Empty(t, said, "words were asked for")
	_, more := done(t, p, "search", "particle", "--limit", "1", "--mode", "words")
	cursor := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(more), "(more: --cursor "), ")")
	require.Equal(t, []string{"An elementary"}, turns("particle", "--limit", "1", "--cursor", cursor))
	out := p.Done(t, "search", "quark", "--json")
	var page client.SearchPage
	require.NoError(t, json.Unmarshal([]byte(out), &page))
	require.Len(t, page.Hits, 1)
	hit := page.Hits[0]
	require.Equal(t, []string{"quarks", "ada", "question", "What is a quark?", "words"},
		[]string{hit.SessionID, hit.IdentityID, hit.Half, hit.Snippet, page.Mode})
}

// sessions describes, shows and lists sessions with the verbs.
func sessions(t *testing.T, p *stack.Process) {
	t.Helper()
	described := p.Done(t, "sessions", "describe", "quarks", "--title", "Particles", "--metadata", "folder=physics",
		"--metadata", "old=x")
	require.Contains(t, described, "Particles")
	require.NotContains(t, p.Done(t, "sessions", "describe", "quarks", "--without", "old"), "old=x")
	must.Contain(t, p.Done(t, "sessions", "show", "quarks"), "folder=physics", "2, 0 without an answer")
	require.Contains(t, p.Done(t, "sessions", "list"), "And a lepton?")
}

// requireJSON requires that --json prints what the Go client reads.
func requireJSON(t *testing.T, p *stack.Process) {
	t.Helper()
	read := func(to any, args ...string) {
		t.Helper()
		out := p.Done(t, append(args, "--json")...)
		require.NoError(t, json.Unmarshal([]byte(out), to), out)
	}
	var s client.Session
	read(&s, "sessions", "show", "quarks")
	require.Equal(t, []any{"quarks", "Particles", map[string]string{"folder": "physics"}, 2},
		[]any{s.SessionID, s.Title, s.Metadata, s.Turns})
	var list client.SessionPage
	read(&list, "sessions", "list", "--metadata", "folder=physics", "--title", "TICL", "--identity", "ada")
	require.Len(t, list.Sessions, 1)
	require.Equal(t, "And a lepton?", list.Sessions[0].LastTurn.QuestionNeutral)
	for _, other := range [][]string{{"--metadata", "folder=x"}, {"--title", "x"}, {"--identity", "bob"},
		{"--since", time.Now().Add(time.Hour).Format(time.RFC3339)},
		{"--until", time.Now().Add(-time.Hour).Format(time.RFC3339)}} {
		var none client.SessionPage
		read(&none, append([]string{"sessions", "list"}, other...)...)
		require.Empty(t, none.Sessions, "%v", other)
	}
	p.WaitNoLag(t)
	var stats client.Stats
	read(&stats, "stats", "--bucket", "hour", "--since", time.Now().Add(-2*time.Hour).Format(time.RFC3339))
	n := 0
	for _, b := range stats.Buckets {
		n += b.Finalized
	}
	require.Equal(t, 3+3, n, "those of the statistics and of the searches")
}

// Without the audit tables searches, lists and statistics say what to set.
func TestVerbsWithoutAuditTablesSayWhatToSet(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	for _, args := range [][]string{{"search", "quark"}, {"sessions", "list"}, {"stats"}} {
		require.Contains(t, p.Fails(t, args...), "TURNLEDGER_POSTGRES_URL", "%v", args)
	}
}

// An unknown text search configuration ends the start. After a change searches say that the tables must be rebuilt, and
// the start does; a rebuild mends it, and writes go on meanwhile.
func TestAChangedSearchConfiguration(t *testing.T) {
	t.Parallel()
	dir, pg := stack.DataDir(t), "TURNLEDGER_POSTGRES_URL="+pg.URL(t)
	serve := func(config string) *stack.Process {
		return stack.Start(t, []string{pg, "TURNLEDGER_SEARCH_CONFIG=" + config}, "serve", "--data-dir", dir)
	}
	p := serve("simple")
	p.LinkIdentity(t, "s", "ada")
	p.RecordTurn(t, "s", "r1", "He was running", "away")
	require.Contains(t, p.Done(t, "search", "running"), "He was running")
	p.Stop(t)
	code, _, errs := stack.Run(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "d"),
		"--postgres-url", strings.TrimPrefix(pg, "TURNLEDGER_POSTGRES_URL="), "--search-config", "klingon")
	require.Equal(t, stack.ExitFailed, code)
	must.Contain(t, errs, "TURNLEDGER_SEARCH_CONFIG", "english")

	p = serve("english")
	p.WaitLog(t, "searches are refused until turnledger projections rebuild audit")
	p.RecordTurn(t, "s", "r2", "She runs", "as well")
	require.Contains(t, p.Fails(t, "search", "run"), "turnledger projections rebuild audit")
	require.Len(t, p.Get(t, "/v1/sessions")["sessions"], 1, "lists need no terms")
	p.Done(t, "projections", "rebuild", "audit", "--yes")
	must.Contain(t, p.Done(t, "search", "run"), "He was running", "She runs")
	p.Stop(t)

	p = serve("english")
	p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", map[string]any{"query": "run"})
	p.Stop(t)
	require.NotContains(t, p.Log.String(), "searches are refused")
}
