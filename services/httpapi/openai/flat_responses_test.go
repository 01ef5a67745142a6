package openai_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/chat"
)

// To get a response, or to answer a call for one again, costs no more of the log in a session of many turns than in one
// of few.
//
//conformance:o28 o82
func TestAResponseInALongSessionCostsNoMoreOfTheLog(t *testing.T) {
	t.Parallel()
	log, count := countedLog(t)
	s := startOn(t, log, answeredBy(chat.Echo{}))
	id := s.grown(s.begin(), long, user, assistant)
	body := `{"input":"q","conversation":"` + id + `"}`
	middle := s.must("POST", "/v1/responses", body)
	s.grown(id, long, user, assistant)
	last := s.must("POST", "/v1/responses", body)
	one := func(r map[string]any) string { return "/v1/responses/" + r["id"].(string) }
	for name, work := range map[string]func(){
		"get the one in the middle": func() { require.Equal(t, middle, s.must("GET", one(middle), "")) },
		"get the last one":          func() { require.Equal(t, last, s.must("GET", one(last), "")) },
		"ask for the last one again": func() {
			require.Equal(t, last, s.must("POST", "/v1/responses", body, retry, "1"))
		},
	} {
		messages, _ := count.of(work)
		require.LessOrEqual(t, messages, uint64(20), name)
	}
}
