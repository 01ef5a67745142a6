package openai_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/answer"
)

// A view that begins anew, after the events of a pruned turn have left the log, shows what is left of it.
func TestAViewThatBeginsAnewShowsPrunedTurns(t *testing.T) {
	t.Parallel()
	for _, half := range []int{0, 1} {
		s := start(t, answeredBy(answer.Echo{}))
		id := s.begin(user("hello"), assistant("hello, too"))
		s.must("POST", "/v1/responses", `{"input":"and now?","conversation":"`+id+`"}`)
		s.post(id, user("later"))
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[2+half], "")
		left := s.list(id, 10)
		require.Len(t, left, 4)
		s.erasePruned(id)
		anew := startOn(t, s.log, answeredBy(answer.Echo{}))
		for range 20 {
			require.Equal(t, left, anew.list(id, 10))
			for _, i := range ids(left) {
				require.Equal(t, i, anew.must("GET", "/v1/conversations/"+id+"/items/"+i, "")["id"])
			}
		}
	}
}
