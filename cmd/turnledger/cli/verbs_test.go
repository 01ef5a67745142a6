package cli

import (
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
