package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

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
		parser, err := kong.New(&v)
		require.NoError(t, err)
		_, err = parser.Parse(strings.Fields(line))
		require.Error(t, err, line)
	}
	var v Verbs
	parser, err := kong.New(&v)
	require.NoError(t, err)
	_, err = parser.Parse(strings.Fields("search q --limit 3 --identity ann"))
	require.NoError(t, err)
	require.Equal(t, count(3), v.Search.Limit)
	require.Equal(t, only("ann"), v.Search.Identity)
}
