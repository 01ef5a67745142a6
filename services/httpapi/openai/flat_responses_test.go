package openai_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// To get a response, or to answer a call for one again, costs no more of the log in a session of many turns than in one
// of few.
//
//conformance:o28 o82
func TestAResponseInALongSessionCostsNoMoreOfTheLog(t *testing.T) {
	t.Parallel()
	log, count := countedLog(t)
	s := startOn(t, log, answeredBy(answer.Echo{}))
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

// readsOf counts the reads of sessions by responses.
type readsOf struct {
	services.SessionReader

	n atomic.Int64
}

func (r *readsOf) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	r.n.Add(1)
	return r.SessionReader.Read(ctx, ask)
}

// Calls that are the same, behind one response, look a few branches up each, however many there are, and each makes a
// branch of its own. A deleted branch stays so.
//
//conformance:o69 o82
func TestEqualCallsLookFewBranchesUp(t *testing.T) {
	t.Parallel()
	const equal = 40
	var reads *readsOf
	s := start(t, answeredAs(answer.Echo{}, func(r *answer.Config) {
		reads = &readsOf{SessionReader: r.Sessions}
		r.Sessions = reads
	}))
	id := s.begin()
	root := s.must("POST", "/v1/responses", `{"input":"root","conversation":"`+id+`"}`)["id"].(string)
	body := `{"input":"a","previous_response_id":"` + root + `"}`
	var last map[string]any
	most := int64(0)
	for n := range equal {
		before := reads.n.Load()
		last = s.must("POST", "/v1/responses", body)
		require.Len(t, s.branches(id), n+1)
		most = max(most, reads.n.Load()-before)
	}
	require.LessOrEqual(t, most, int64(20), "of %d branches", equal)
	require.Equal(t, last, s.must("POST", "/v1/responses", body, retry, "1"))
	all := s.branches(id)
	require.Equal(t, all[equal-1], s.sessionOf(last["id"].(string)))
	for _, gone := range []string{all[3], all[equal-1]} {
		s.must("DELETE", "/v1/conversations/"+gone, "")
	}
	next := s.must("POST", "/v1/responses", body, retry, "1")
	require.Len(t, s.branches(id), equal+1)
	require.Equal(t, s.branches(id)[equal], s.sessionOf(next["id"].(string)))
}

// A page of what a response was asked with costs no more of the log in a session of many turns than in one of few.
//
//conformance:o82
func TestAPageOfALongInputCostsNoMoreOfTheLog(t *testing.T) {
	t.Parallel()
	for name, make := range longConversations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, count := countedLog(t)
			var whole *wholeReads
			s := startOn(t, log, answeredAs(answer.Echo{}, func(r *answer.Config) {
				whole = &wholeReads{SessionReader: r.Sessions, TurnLookup: r.Lookup}
				r.Sessions, r.Lookup = whole, whole
			}))
			id := make(s)
			r := s.must("POST", "/v1/responses", `{"input":[`+user("last")+`,`+user("one")+`],"conversation":"`+id+`"}`)
			s.grown(id, 40, user, assistant)
			path := "/v1/responses/" + r["id"].(string) + "/input_items?limit=20&order="
			all := ids(s.list(id, 100))
			all = all[:len(all)-41] // up to the answer
			before := whole.n.Load()
			for _, from := range []int{-1, 0, 1, 19, len(all) / 3, len(all) / 2, len(all) - 21, len(all) - 2} {
				for order, want := range map[string][]string{"asc": all, "desc": reversed(all)} {
					one := path + order
					if from >= 0 {
						one += "&after=" + want[from]
					}
					messages, size := count.of(func() {
						page := s.must("GET", one, "")
						require.Equal(t, want[from+1:min(from+21, len(want))], ids(page["data"].([]any)), one)
						require.Equal(t, len(want)-from-1 > 20, page["has_more"], one)
					})
					require.LessOrEqual(t, messages, uint64(mostOfAPage), "messages, %s from %d", order, from)
					require.LessOrEqual(t, size, uint64(mostBytesOfAPage), "bytes, %s from %d", order, from)
				}
			}
			require.Equal(t, before, whole.n.Load(), "the session is not read whole")
		})
	}
}
