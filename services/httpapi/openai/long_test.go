package openai_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
)

// wholeReads counts the reads of whole sessions.
type wholeReads struct {
	services.SessionReader
	services.TurnLookup

	n atomic.Int64
}

// TurnsBeside counts what is asked of a session as a whole.
func (r *wholeReads) TurnsBeside(
	ctx context.Context, ask services.BesideAsk,
) (services.TurnsBeside, bool, error) {
	if ask.Messages > 400 {
		r.n.Add(1)
	}
	return r.TurnLookup.TurnsBeside(ctx, ask)
}

func (r *wholeReads) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	if ask.AllTurns || ask.Shown > 200 {
		r.n.Add(1)
	}
	return r.SessionReader.Read(ctx, ask)
}

// counted counts the reads of whole sessions.
func counted(into **wholeReads) setting {
	return func(s *stack) {
		*into = &wholeReads{SessionReader: s.services.Reader, TurnLookup: s.services.Reader}
		s.cfg.Sessions, s.cfg.Lookup = *into, *into
	}
}

// In a long conversation no page and no item costs a read of the whole: neither the first nor the last, nor those in
// between.
//
//conformance:o82
func TestALongConversationIsNotReadWhole(t *testing.T) {
	t.Parallel()
	var reads *wholeReads
	s := start(t, counted(&reads))
	id := s.begin()
	for n := range 12 {
		var lines []string
		for k := range 20 {
			lines = append(lines, []func(string) string{user, assistant}[k%2](fmt.Sprint(n, "/", k)))
		}
		s.post(id, lines...)
	}
	all := s.list(id, 7)
	require.Len(t, all, 12*20)
	back := ids(all)
	slices.Reverse(back)
	require.Equal(t, back, s.listBack(id, 7))
	for _, n := range []int{0, 1, 100, len(all) - 1} {
		require.Equal(t, all[n], s.must("GET", "/v1/conversations/"+id+"/items/"+ids(all)[n], ""))
	}
	require.Zero(t, reads.n.Load())
	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/conversations/"+id+"/items?after=msg_none", "").status)
	require.NotZero(t, reads.n.Load(), "what is counted is counted")
}

// listBack returns the ids of all items of a conversation, newest first, read in pages of a size.
func (s *stack) listBack(id string, size int) (all []string) {
	s.t.Helper()
	after := ""
	for {
		page := s.must("GET", fmt.Sprintf("/v1/conversations/%s/items?limit=%d%s", id, size, after), "")
		all = append(all, ids(page["data"].([]any))...)
		if page["has_more"] == false {
			return all
		}
		after = "&after=" + page["last_id"].(string)
	}
}

// However a long conversation came to be, its pages are the same in a process that writes and in one that only reads,
// whatever their size and direction, also right after each change. So are those of its branches, and of theirs.
//
//conformance:o15
func TestPagesOfAMuddledConversation(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	s, reader := startOn(t, log), startOn(t, log, func(s *stack) {
		s.cfg.Lookup = read.New(log, read.Config{Rules: rules})
	})
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		all := []string{s.begin()}
		for n := range 80 {
			id := all[r.IntN(len(all))]
			if branch := s.muddle(r, id, fmt.Sprint(n)); branch != "" {
				all = append(all, branch)
			}
			for range 2 {
				at, size := r.IntN(len(all)), 1+r.IntN(30)
				want := ids(reader.list(all[at], 100))
				require.Equal(t, want, ids(s.list(all[at], size)), "seed %d, step %d, branch %d", seed, n, at)
				require.Equal(t, reversed(want), s.listBack(all[at], size), "seed %d, step %d, branch %d", seed, n, at)
			}
		}
		for _, id := range all {
			s.must("POST", "/v1/sessions/"+id+"/reset", `{}`)
			s.post(id, user("anew"))
			require.Equal(t, []string{"anew"}, texts(s.list(id, 1)))
			for _, gone := range []string{"msg_own1", "msg_" + strings.Repeat("0", 48)} {
				require.Equal(t, 404, s.do("GET", "/v1/conversations/"+id+"/items?order=asc&after="+gone, "").status)
			}
		}
	}
}

// muddle changes a conversation somehow, and returns the branch that it made of it, or "".
func (s *stack) muddle(r *rand.Rand, id, name string) (branch string) {
	s.t.Helper()
	session := "/v1/sessions/" + id
	switch r.IntN(9) {
	case 0:
		s.post(id, user("u"+name), user("v"+name))
	case 1, 2:
		s.post(id, user("q"+name), assistant("a"+name))
	case 3:
		s.post(id, function("c"+name), `{"type":"function_call_output","call_id":"c`+name+`","output":"o"}`)
	case 4:
		s.post(id, strings.Replace(assistant("own "+name), "{", `{"type":"message","id":"msg_own`+name+`",`, 1))
	case 5:
		if all := s.list(id, 100); len(all) > 0 { // that of a turn which a branch shares is refused
			s.do("DELETE", "/v1/conversations/"+id+"/items/"+ids(all)[r.IntN(len(all))], "")
		}
	case 6:
		s.do("POST", session+"/turns", `{"request_id":"r`+name+`","question_neutral":"n","answer_neutral":"m"}`)
	case 7:
		if turns := s.turns(id); len(turns) > 0 {
			turn := session + "/turns/" + turns[r.IntN(len(turns))]["turn_id"].(string)
			s.do("POST", turn+[]string{"/redact", "/correct"}[r.IntN(2)],
				`{"request_id":"c`+name+`","answer_neutral":"z"}`)
		}
	case 8:
		fork := s.do("POST", session+"/fork", `{"request_id":"f`+name+`"}`)
		branch, _ = fork.body["session_id"].(string)
	}
	return branch
}
