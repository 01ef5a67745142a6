package systemtest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

// quarks is a server with a session of two turns that belongs to ada, and an anonymous one.
func quarks(t *testing.T, env ...string) *stack.Process {
	t.Helper()
	p := stack.Serve(t, append(env, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)))
	p.LinkIdentity(t, "quarks", "ada")
	p.RecordTurn(t, "quarks", "r1", "What is a quark?", "An elementary particle of matter.")
	p.RecordTurn(t, "quarks", "r2", "And a lepton?", "Another particle: electrons are leptons.")
	p.RecordTurn(t, "visitor", "r1", "When do you open?", "At nine.")
	return p
}

// done runs a verb that must succeed.
func done(t *testing.T, p *stack.Process, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := p.Run(t, args...)
	require.Equal(t, stack.ExitDone, code, errs)
	return out, errs
}

func TestVerbOfSearches(t *testing.T) {
	t.Parallel()
	p := quarks(t)
	turns := func(args ...string) (out []string) {
		t.Helper()
		table, _ := done(t, p, append([]string{"search"}, args...)...)
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
	require.Equal(t, []string{"An elementary"}, turns("particle", "matter"), "all words")
	require.Equal(t, []string{"An elementary"}, turns(`"particle of matter"`))
	require.Empty(t, turns(`"matter of particle"`))
	require.Equal(t, []string{"An elementary"}, turns("particle", "-electrons"))
	require.Equal(t, []string{"An elementary"}, turns("--", "particle", "-electrons"))
	require.Equal(t, []string{"What is a quark?"}, turns("quar*"))
	require.Equal(t, []string{"Another particle"}, turns("particle", "lep*"))
	require.Empty(t, turns("quar"))
	require.Equal(t, []string{"An elementary"}, turns("mátter"))
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
	out, _ := done(t, p, "search", "quark", "--json")
	var page client.SearchPage
	require.NoError(t, json.Unmarshal([]byte(out), &page))
	require.Len(t, page.Hits, 1)
	hit := page.Hits[0]
	require.Equal(t, []string{"quarks", "ada", "question", "What is a quark?", "words"},
		[]string{hit.SessionID, hit.IdentityID, hit.Half, hit.Snippet, page.Mode})
}

// Bad input of the verbs is wrong use, and the message says what is wrong.
func TestVerbsOfSessionsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := quarks(t)
	for _, c := range []struct {
		says string
		args []string
	}{
		{"word to search for", []string{"search", "?"}},
		{"word to search for", []string{"search", "--", "-quark"}},
		{"cursor", []string{"search", "quark", "--cursor", "BAD"}},
		{"mode", []string{"search", "quark", "--mode", "BAD"}},
		{"language", []string{"search", "quark", "--language", "BAD"}},
		{"--in", []string{"search", "quark", "--in", "BAD"}},
		{"--since", []string{"search", "quark", "--since", "BAD"}},
		{"identity_id", []string{"search", "quark", "--identity", ".."}},
		{"query", []string{"search"}},
		{"cursor", []string{"sessions", "list", "--cursor", "BAD"}},
		{"--until", []string{"sessions", "list", "--until", "BAD"}},
		{"--metadata", []string{"sessions", "list", "--metadata", "BAD"}},
		{"--limit", []string{"sessions", "list", "--limit", "BAD"}},
		{"identity_id", []string{"sessions", "list", "--identity", ".."}},
		{"session_id", []string{"sessions", "show", ".."}},
		{"title", []string{"sessions", "describe", "quarks"}},
		{"title", []string{"sessions", "describe", "quarks", "--title", strings.Repeat("x", 201)}},
		{"metadata", []string{"sessions", "describe", "quarks", "--metadata", "k=" + strings.Repeat("x", 513)}},
		{"--bucket", []string{"stats", "--bucket", "BAD"}},
		{"--by", []string{"stats", "--by", "BAD"}},
		{"since", []string{"stats", "--since", "1990-01-01T00:00:00Z"}},
	} {
		code, out, errs := p.Run(t, c.args...)
		require.Equal(t, stack.ExitUsage, code, "%v: %s%s", c.args, out, errs)
		require.Contains(t, errs, c.says, "%v", c.args)
		require.Empty(t, out, "%v", c.args)
	}
	code, _, errs := p.Run(t, "search", "quark", "--mode", "meaning")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "index_unavailable")
	bare := stack.Serve(t, nil)
	for _, args := range [][]string{{"search", "quark"}, {"sessions", "list"}, {"stats"}} {
		code, _, errs := bare.Run(t, args...)
		require.Equal(t, stack.ExitFailed, code, errs)
		require.Contains(t, errs, "TURNLEDGER_POSTGRES_URL", "%v", args)
	}
}

// --json prints what the Go client reads.
func TestVerbsOfSessionsPrintJSON(t *testing.T) {
	t.Parallel()
	p := quarks(t)
	read := func(to any, args ...string) {
		t.Helper()
		out, _ := done(t, p, append(args, "--json")...)
		d := json.NewDecoder(bytes.NewBufferString(out))
		require.NoError(t, d.Decode(to), out)
	}
	var s client.Session
	read(&s, "sessions", "describe", "quarks", "--title", "Particles", "--metadata", "folder=physics")
	require.Equal(t, []any{"quarks", "Particles", map[string]string{"folder": "physics"}},
		[]any{s.SessionID, s.Title, s.Metadata})
	var shown client.Session
	read(&shown, "sessions", "show", "quarks")
	require.Equal(t, s.Title, shown.Title)
	require.Equal(t, 2, shown.Turns)
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
	var stats client.Stats
	hang.Until(t, func() bool {
		stats = client.Stats{}
		read(&stats, "stats", "--bucket", "hour", "--since", time.Now().Add(-2*time.Hour).Format(time.RFC3339))
		return stats.LagEvents == 0
	})
	n := 0
	for _, b := range stats.Buckets {
		n += b.Finalized
	}
	require.Equal(t, 3, n)
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
	out, _ := done(t, p, "search", "running")
	require.Contains(t, out, "He was running")
	p.Stop(t)
	code, _, errs := stack.Run(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "d"),
		"--postgres-url", strings.TrimPrefix(pg, "TURNLEDGER_POSTGRES_URL="), "--search-config", "klingon")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "TURNLEDGER_SEARCH_CONFIG")
	require.Contains(t, errs, "english")

	p = serve("english")
	p.WaitLog(t, "searches are refused until turnledger projections rebuild audit")
	p.RecordTurn(t, "s", "r2", "She runs", "as well")
	code, _, errs = p.Run(t, "search", "run")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "turnledger projections rebuild audit")
	require.Len(t, p.Get(t, "/v1/sessions")["sessions"], 1, "lists need no terms")
	done(t, p, "projections", "rebuild", "audit", "--yes")
	out, _ = done(t, p, "search", "run")
	require.Contains(t, out, "He was running")
	require.Contains(t, out, "She runs")
	p.Stop(t)

	p = serve("english")
	p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", map[string]any{"query": "run"})
	p.Stop(t)
	require.NotContains(t, p.Log.String(), "searches are refused")
}
