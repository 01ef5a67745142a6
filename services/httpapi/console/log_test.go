package console_test

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The links of a page of the log keep its filters, and do not lead out of the time that was asked for.
func TestTheLogOfATime(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		s := startWith(t, nil, partitions)
		for i := range 10 {
			s.turn("s", fmt.Sprint("before", i), "a question", "an answer")
		}
		since := time.Now().UTC().Format(time.RFC3339Nano)
		for i := range 60 {
			s.turn("s", fmt.Sprint(i), "a question", "an answer")
		}
		at := "/console/log?" + url.Values{"since": {since}, "type": {"turn.started.v1"}, "session_id": {"s"}}.Encode()
		first := s.page(at, "").body
		require.NotContains(t, first, `rel="prev"`, "nothing of that time is older")
		newer := linkOf(t, first, "next")
		second := s.page(newer, "").body
		for _, address := range []string{newer, linkOf(t, second, "prev")} {
			for _, kept := range []string{"since=" + url.QueryEscape(since), "type=turn.started.v1", "session_id=s"} {
				require.Contains(t, address, kept)
			}
		}
		require.Equal(t, 60, strings.Count(first+second, `class="group"`))
		require.NotContains(t, second, `rel="next"`)
		require.Contains(t, second, "data-live")
		older := s.page(linkOf(t, second, "prev"), "").body
		require.Equal(t, 50, strings.Count(older, `class="group"`), "and none from before that time")
		require.NotContains(t, older, `rel="prev"`)
		require.Contains(t, older, "To the first ones since")
	}
}

// linkOf returns the address of the only link of a page that has a relation.
func linkOf(t *testing.T, body, rel string) string {
	t.Helper()
	found := regexp.MustCompile(`href="([^"]+)" rel="` + rel + `"`).FindStringSubmatch(body)
	require.NotNil(t, found, rel)
	return html.UnescapeString(found[1])
}
