package openai_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
)

// traffic counts what a log's server sends.
type traffic []*nats.Conn

// countedLog opens a log whose traffic is counted.
func countedLog(t testing.TB) (*jetlog.Log, traffic) {
	t.Helper()
	server := natstest.Server(t)
	all := traffic{natstest.Connect(t, server), natstest.Connect(t, server)}
	log, err := jetlog.Open(t.Context(), all[0], jetlog.Config{Partitions: 1, GateDir: server.GateDir(), Reads: all[1]})
	require.NoError(t, err)
	return log, all
}

// of returns how many messages, and bytes, come while work is done.
func (n traffic) of(work func()) (messages, size uint64) {
	sum := func() (messages, size uint64) {
		for _, c := range n {
			s := c.Stats()
			messages, size = messages+s.InMsgs, size+s.InBytes
		}
		return messages, size
	}
	m, b := sum()
	work()
	messages, size = sum()
	return messages - m, size - b
}

// long is how many messages a long conversation has.
const long = 2000

// longConversations are ways in which a conversation came to have that many messages.
var longConversations = map[string]func(s *stack) (id string){
	"of turns": func(s *stack) string { return s.grown(s.begin(), 0, user, assistant) },
	"of questions alone": func(s *stack) string {
		return s.grown(s.begin(), 0, user)
	},
	"of turns that were extended": func(s *stack) string {
		id := s.begin()
		for n := range long / 8 {
			s.post(id, user(fmt.Sprint("q", n)), assistant("a"), assistant("b"), assistant("c"))
			s.post(id, assistant("d"), assistant("e"))
			s.post(id, assistant("f"), assistant("g"))
		}
		return id
	},
	"of one turn": func(s *stack) string {
		id := s.begin(user("q"))
		s.grown(id, 60, assistant)
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 100))[30], "")
		for range long / 20 {
			s.grown(id, 20, assistant)
		}
		return id
	},
	"with items that were deleted": func(s *stack) string {
		id := s.grown(s.begin(), 0, user, assistant)
		all := ids(s.list(id, 100))
		for n := range 80 {
			for _, gone := range []int{n, long/2 + 2*n, long - 1 - n} { // at the ends whole turns, in the middle halves
				s.must("DELETE", "/v1/conversations/"+id+"/items/"+all[gone], "")
			}
		}
		return s.grown(id, 10, user, assistant)
	},
	"of a branch of a branch": func(s *stack) string {
		id := s.grown(s.begin(), long/2, user, assistant)
		for n := range 2 {
			s.grown(id, long/4, user, assistant)
			fork := s.do("POST", "/v1/sessions/"+id+"/fork", fmt.Sprintf(`{"request_id":"f%d"}`, n))
			require.Equal(s.t, http.StatusCreated, fork.status, fork.raw)
			s.grown(id, 20, user, assistant)
			id = fork.body["session_id"].(string)
		}
		return s.grown(id, 10, user, assistant)
	},
}

// grown adds messages to a conversation, long of them where n is 0, in the roles that follow one another.
func (s *stack) grown(id string, n int, roles ...func(string) string) string {
	s.t.Helper()
	if n == 0 {
		n = long
	}
	var lines []string
	for i := range n {
		lines = append(lines, roles[i%len(roles)](fmt.Sprint(i, " ", prose)))
	}
	for chunk := range slices.Chunk(lines, 500) {
		s.post(id, chunk...)
	}
	return id
}

// However a long conversation came to be, a page of it costs no more of the log than a page of a short one: what is on
// the page, and a bounded rest. So does an item.
//
//conformance:o82
func TestAPageOfALongConversationCostsNoMoreOfTheLog(t *testing.T) {
	t.Parallel()
	for name, make := range longConversations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, count := countedLog(t)
			var whole *wholeReads
			s := startOn(t, log, counted(&whole))
			id := make(s)
			all := ids(s.list(id, 100))
			for _, from := range []int{-1, 0, 1, 19, len(all) / 3, len(all) / 2, len(all) - 21, len(all) - 1} {
				for order, want := range map[string][]string{"asc": all, "desc": reversed(all)} {
					path := "/v1/conversations/" + id + "/items?limit=20&order=" + order
					want = want[from+1:]
					if from >= 0 {
						path += "&after=" + all[from]
						if order == "desc" {
							path = strings.Replace(path, all[from], reversed(all)[from], 1)
						}
					}
					messages, size := count.of(func() {
						page := s.must("GET", path, "")
						first := append([]string(nil), want[:min(20, len(want))]...)
						require.Equal(t, first, ids(page["data"].([]any)), path)
						require.Equal(t, len(want) > 20, page["has_more"])
					})
					require.LessOrEqual(t, messages, uint64(mostOfAPage), "messages, %s from %d", order, from)
					require.LessOrEqual(t, size, uint64(mostBytesOfAPage), "bytes, %s from %d", order, from)
				}
			}
			for _, n := range []int{0, len(all) / 2, len(all) - 1} {
				messages, _ := count.of(func() { s.must("GET", "/v1/conversations/"+id+"/items/"+all[n], "") })
				require.LessOrEqual(t, messages, uint64(mostOfAPage), "messages of item %d", n)
			}
			require.Zero(t, whole.n.Load(), "what the log need not be asked for is not read whole, either")
		})
	}
}

// A page of 20 items has at most 21 turns, each of two events here. mostOfAPage is a few times that, and the tenth part
// of what the long conversations have.
const mostOfAPage, mostBytesOfAPage = 200, 256 << 10

func reversed(all []string) []string {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}
