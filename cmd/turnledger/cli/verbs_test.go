package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// A terminal is not told to do what a text of a turn says.
func TestPrintedTextsAreNoCommandsOfATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &Env{Out: &Output{To: &out}}
	e.print("Q: %s", "a\x1b[2J\x1b]0;title\x07\u009b1mb\r\x7fc\n\td ü")
	require.Equal(t, "Q: a [2J ]0;title  1mb  c\n\td ü\n", out.String())
	out.Reset()
	e.Err = &out
	e.printErr("%s", "a\x1b[2J")
	newProgress(&out, "importing", "bytes", 1).PrintLine(&out, "%s", "b\x1b[2J")
	require.Equal(t, "a [2J\nb [2J\n", out.String())
}

// A value of metadata may have any character.
func TestMetadataOfSessionsMayHaveSemicolons(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"sessions", "list"}, {"sessions", "describe", "s"}} {
		var v Verbs
		parser := must.Get(kong.New(&v))(t)
		must.Get(parser.Parse(append(args, "--metadata", "note=x;y=z", "--metadata", "k=v")))(t)
		got := v.Sessions.List.Metadata
		if len(args) == 3 {
			got = v.Sessions.Describe.Metadata
		}
		require.Equal(t, map[string]string{"note": "x;y=z", "k": "v"}, got)
	}
}

// A view whose error has several lines, as PostgreSQL's client gives them, is one row.
func TestAViewIsOneRow(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"projections":[{"name":"audit","position":"0:0","head":null,"lag_events":null,` +
			`"lag_seconds":null,"state":"unknown","last_error":"failed to connect:\n\thost:\n\tdial error"}]}`))
	}))
	t.Cleanup(server.Close)
	var out strings.Builder
	list := projectionsListCmd{remote{URL: server.URL}}
	require.NoError(t, list.Run(&Env{Ctx: t.Context(), Out: &Output{To: &out}}))
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, rows, 2, out.String())
	require.Equal(t, "audit 0 0:0 ? ? 0.0/s unknown 0 failed to connect: host: dial error",
		strings.Join(strings.Fields(rows[1]), " "))
}

// A number of things that is none, and an id that is empty, say nothing that a verb could mean: the first would be
// taken for the default, and the second for everything. What a verb does not know is refused by all.
//
//conformance:c2
func TestFlagsThatWouldMeanSomethingElseAreRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"search q --limit 0", "search q --limit -1", "search q --limit x", "search q --identity=",
		"search q --session=",
		"similar q --limit 0", "similar q --identity=", "sessions list --limit 0", "sessions list --identity=",
		"sessions list --title=", "sessions fork s --turn=", "sessions fork s --before=", "history s --limit 0",
		"context s m --max-messages 0", "explain s t --max-messages 0", "explain s t --max-tokens 0",
		"import f --parallel 0", "projections verify audit --sample 0", "streams apply --partitions 0",
		"streams plan --replicas 0", "deadletters list --projection=", "keys create n --scopes admin --identity=",
		"replay --session=", "replay --identity=", "export --identity=",
		"search q --unknown", "retention --dryrun", "retention x", "sessions list ann", "sessions show s t", "stats x",
		"projections rebuild audit recent", "erase s t", "streams apply 3", "deadletters list recent", "history s 5",
	} {
		var v Verbs
		parser := must.Get(kong.New(&v))(t)
		require.Error(t, must.Err(parser.Parse(strings.Fields(line))), line)
	}
	var v Verbs
	parser := must.Get(kong.New(&v))(t)
	must.Get(parser.Parse(strings.Fields("search q --limit 3 --identity ann")))(t)
	require.Equal(t, count(3), v.Search.Limit)
	require.Equal(t, only("ann"), v.Search.Identity)
}

// A time is a date, a time, or how long ago, on every verb that takes one.
func TestEveryVerbReadsTimesAlike(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"2026-11-27":                time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC),
		"2026-11-27T08:00":          time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC),
		"2026-11-27T08:00:30":       time.Date(2026, 11, 27, 8, 0, 30, 0, time.UTC),
		"2026-11-27T08:00:00+02:00": time.Date(2026, 11, 27, 6, 0, 0, 0, time.UTC),
		"36h":                       time.Now().Add(-36 * time.Hour), "7d": time.Now().Add(-7 * 24 * time.Hour),
	} {
		for _, line := range []string{"stats", "search q", "sessions list", "replay"} {
			for _, flag := range []string{"--since", "--until"} {
				var v Verbs
				parser := must.Get(kong.New(&v))(t)
				must.Get(parser.Parse(append(strings.Fields(line), flag, text)))(t, line)
				got := map[string]moment{"stats--since": v.Stats.Since, "search q--since": v.Search.Since,
					"sessions list--since": v.Sessions.List.Since, "replay--since": v.Replay.Since,
					"stats--until": v.Stats.Until, "search q--until": v.Search.Until,
					"sessions list--until": v.Sessions.List.Until, "replay--until": v.Replay.Until}[line+flag]
				require.WithinDuration(t, want, time.Time(got), time.Minute, "%s %s %s", line, flag, text)
				_, err := parser.Parse(append(strings.Fields(line), flag, "yesterday"))
				require.ErrorContains(t, err, flag+": want a date such as 2026-11-27", line)
			}
		}
	}
}

// An id that begins with a hyphen is no flag, unless its letter is one of the verb.
func TestIDsMayBeginWithAHyphen(t *testing.T) {
	t.Parallel()
	var v Verbs
	parse := func(args ...string) error {
		parser := must.Get(kong.New(&v))(t)
		k, err := parser.Parse(Hyphened(parser.Model, args))
		if err == nil {
			Unhyphened(k)
		}
		return err
	}
	require.NoError(t, parse("history", "-100123", "--limit", "3"))
	require.Equal(t, "-100123", v.History.Session)
	require.NoError(t, parse("redact", "-kQ", "-5", "-y"))
	require.Equal(t, []any{"-kQ", "-5", true}, []any{v.Redact.Session, v.Redact.Turn, v.Redact.Yes})
	require.NoError(t, parse("replay", "--session", "-100123", "-f"))
	require.Equal(t, only("-100123"), v.Replay.Session)
	require.NoError(t, parse("search", "tap", "-dripping"))
	require.Equal(t, []string{"tap", "-dripping"}, v.Search.Query)
	require.NoError(t, parse("history", "--", "--x"))
	require.Equal(t, "--x", v.History.Session)
	require.Error(t, parse("history", "s", "-n"))
	require.Error(t, parse("history", "-n", "5"))
	require.Error(t, parse("retention", "-dryrun"))
}
