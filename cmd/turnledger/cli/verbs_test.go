package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// A terminal is not told to do what a text of a turn says.
func TestPrintedTextsAreNoCommandsOfATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &Env{Out: &Output{To: &out}}
	e.print("Q: %s", "a\x1b[2J\x1b]0;title\x07\u009b1mb\r\x7fc\n\td ü")
	require.Equal(t, "Q: a [2J ]0;title  1mb  c\n\td ü\n", out.String())
}

// A value of metadata may have any character.
func TestMetadataOfSessionsMayHaveSemicolons(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"sessions", "list"}, {"sessions", "describe", "s"}} {
		var v Verbs
		parser, err := kong.New(&v)
		require.NoError(t, err)
		_, err = parser.Parse(append(args, "--metadata", "note=x;y=z", "--metadata", "k=v"))
		require.NoError(t, err)
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
