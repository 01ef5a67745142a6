package openai_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// retry is the header that OpenAI's clients send.
const retry = "X-Stainless-Retry-Count"

// A call that comes again is answered as the first time, in every process. The same words without a word of a retry are
// said twice.
//
//conformance:o38
func TestRepeatedItems(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s, other := startOn(t, log), startOn(t, log)
	id := s.begin()
	path, body := "/v1/conversations/"+id+"/items", `{"items":[`+user("yes")+`,`+assistant("ok")+`]}`
	first := s.must("POST", path, body, retry, "0")
	require.Equal(t, first, s.must("POST", path, body, retry, "1"))
	require.Equal(t, first, other.must("POST", path, body, retry, "2"))
	require.Equal(t, first, startOn(t, log).must("POST", path, body, retry, "1"), "after a restart")
	require.Len(t, s.list(id, 100), 2)

	second := s.must("POST", path, body, retry, "0")
	require.NotEqual(t, first, second)
	require.Equal(t, second, other.must("POST", path, body, retry, "1"), "the newest one")
	more := assistant("and more")
	s.post(id, more)
	require.Len(t, s.list(id, 100), 5)
	require.NotEqual(t, second, s.must("POST", path, body, retry, "1"), "another append came since: it is said again")
	require.Len(t, s.list(id, 100), 7)

	goes := `{"items":[` + more + `]}`
	extends := s.must("POST", path, goes, retry, "0")
	require.Equal(t, extends, other.must("POST", path, goes, retry, "1"), "of what extends a turn, too")
	goes = `{"items":[ ` + more + `]}`
	bytes := other.must("POST", path, goes, retry, "1")
	require.NotEqual(t, extends, bytes, "other bytes")

	s.do("POST", "/v1/sessions/"+id+"/turns", `{"request_id":"r","question_neutral":"native"}`)
	require.NotEqual(t, bytes, other.must("POST", path, goes, retry, "1"), "a native turn came since")

	named := `{"items":[{"role":"user","content":"with an id","id":"msg_1"}]}`
	first = s.must("POST", path, named, retry, "0")
	require.Equal(t, first, other.must("POST", path, named, retry, "1"), "its id is its own")
	a := s.do("POST", path, named, retry, "0")
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
}

// A key names a call for ever, for its caller and its route.
//
//conformance:o36
func TestKeysOfCalls(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s, other := startOn(t, log), startOn(t, log)
	const key = "Idempotency-Key"
	made := s.must("POST", "/v1/conversations", `{"items":[`+user("a")+`]}`, key, "k")
	require.Equal(t, made, other.must("POST", "/v1/conversations", `{}`, key, "k"), "the first body stands")
	require.NotEqual(t, made["id"], s.must("POST", "/v1/conversations", `{}`, key, "k2")["id"])
	id := made["id"].(string)
	path := "/v1/conversations/" + id + "/items"
	finishes := s.must("POST", path, `{"items":[`+assistant("b")+`]}`, key, "k")
	extends := s.must("POST", path, `{"items":[`+assistant("c")+`]}`, key, "k2")
	opens := s.must("POST", path, `{"items":[`+user("d")+`]}`, key, "k3")
	s.post(id, assistant("e"))
	for name, first := range map[string]map[string]any{"k": finishes, "k2": extends, "k3": opens} {
		require.Equal(t, first, other.must("POST", path, `{"items":[`+user("another")+`]}`, key, name), name)
		require.Equal(t, first, startOn(t, log).must("POST", path, `{"items":[`+user("another")+`]}`, key, name), name)
	}
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, texts(s.list(id, 100)))
	elsewhere := s.begin()
	s.must("POST", "/v1/conversations/"+elsewhere+"/items", `{"items":[`+user("d")+`]}`, key, "k3")
	require.Len(t, s.list(elsewhere, 100), 1)

	s.must("DELETE", "/v1/conversations/"+id, "")
	for _, p := range []*stack{s, other, startOn(t, log)} {
		for call, name := range map[string]string{"/v1/conversations": "k", path: "k3"} {
			a := p.do("POST", call, `{"items":[`+user("a")+`]}`, key, name)
			require.Equal(t, http.StatusNotFound, a.status, "it is not made anew: %s", a.raw)
		}
	}
}

// A key names a request for a response for ever, wherever its input goes: in every process, also for another body, and
// once the response is deleted it is not made anew.
//
//conformance:o36
func TestKeysOfResponses(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	s, other := startOn(t, log, answeredBy(answer.Echo{})), startOn(t, log, answeredBy(answer.Echo{}))
	const key = "Idempotency-Key"
	id := s.begin()
	root := s.must("POST", "/v1/responses", `{"input":"root"}`)["id"].(string)
	s.must("POST", "/v1/responses", `{"input":"goes on","previous_response_id":"`+root+`"}`)
	for name, where := range map[string]string{
		"of its own": "", "in a conversation": `,"conversation":"` + id + `"`,
		"in a branch": `,"previous_response_id":"` + root + `"`,
	} {
		ask := func(p *stack, input string, header ...string) reply {
			return p.do("POST", "/v1/responses", `{"input":"`+input+`"`+where+`}`, append(header, key, name)...)
		}
		first := ask(s, "a")
		require.Equal(t, http.StatusOK, first.status, first.raw)
		require.Equal(t, first.body, ask(s, "a").body, name)
		require.Equal(t, first.body, ask(other, "a", retry, "1").body, name)
		require.Equal(t, first.body, ask(startOn(t, log, answeredBy(answer.Echo{})), "another").body, name)
		require.NotEqual(t, first.body["id"],
			s.must("POST", "/v1/responses", `{"input":"a"`+where+`}`, key, name+" 2")["id"], name)
		s.must("DELETE", "/v1/responses/"+first.body["id"].(string), "")
		again := ask(other, "a")
		require.Equal(t, http.StatusNotFound, again.status, "%s: %s", name, again.raw)
	}
}

// A key is used up for ever, also where not the response alone but the whole session in which it stood was erased: the
// call is 404, and never made anew.
//
//conformance:o36
func TestAKeyOutlivesItsSession(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	s, other := startOn(t, log, answeredBy(answer.Echo{})), startOn(t, log, answeredBy(answer.Echo{}))
	root := s.must("POST", "/v1/responses", `{"input":"root"}`)["id"].(string)
	s.must("POST", "/v1/responses", `{"input":"goes on","previous_response_id":"`+root+`"}`)
	for name, where := range map[string]string{
		"of its own": "", "in a conversation": `,"conversation":"` + s.begin() + `"`,
		"in a branch": `,"previous_response_id":"` + root + `"`,
	} {
		body := `{"input":"a"` + where + `}`
		first := s.must("POST", "/v1/responses", body, "Idempotency-Key", name)["id"].(string)
		s.must("DELETE", "/v1/conversations/"+s.sessionOf(first), "")
		for _, p := range []*stack{s, other, startOn(t, log, answeredBy(answer.Echo{}))} {
			for _, try := range []string{"0", "1"} {
				a := p.do("POST", "/v1/responses", body, "Idempotency-Key", name, retry, try)
				require.Equal(t, http.StatusNotFound, a.status, "%s: %s", name, a.raw)
			}
		}
		if name != "in a conversation" {
			s.must("POST", "/v1/responses", body, "Idempotency-Key", name+" 2")
		}
	}
}

// A conversation whose first answer was lost is found again, in every process, for ten minutes.
//
//conformance:o2 o39
func TestRepeatedConversations(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	s, other := startOn(t, log), startOn(t, log)
	const body = `{"items":[]}`
	first := s.must("POST", "/v1/conversations", body, retry, "0")
	require.Equal(t, first, s.must("POST", "/v1/conversations", body, retry, "1"))
	require.Equal(t, first, other.must("POST", "/v1/conversations", body, retry, "1"))
	later := startOn(t, log)
	require.Equal(t, first, later.must("POST", "/v1/conversations", body, retry, "2"), "after a restart")
	second := s.must("POST", "/v1/conversations", body, retry, "0")["id"].(string)
	require.NotEqual(t, first["id"], second)
	require.NotEqual(t, first["id"], s.must("POST", "/v1/conversations", `{}`, retry, "1")["id"])
	require.Equal(t, second, other.must("POST", "/v1/conversations", body, retry, "1")["id"], "the newest")
	s.post(second, user("hello"))
	for _, p := range []*stack{s, other, later, startOn(t, log)} {
		require.NotEqual(t, second, p.must("POST", "/v1/conversations", body, retry, "1")["id"], "somebody uses it")
	}
}

// Of conversations of the same body the one that was begun last is found, whatever partitions they are in, also by a
// process that knows them from the log only.
func TestARetryFindsTheConversationBegunLast(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	s := startOn(t, log)
	for range 8 {
		last := s.must("POST", "/v1/conversations", `{}`, retry, "0")["id"]
		for name, p := range map[string]*stack{"here": s, "after a restart": startOn(t, log)} {
			require.Equal(t, last, p.must("POST", "/v1/conversations", `{}`, retry, "1")["id"], name)
		}
	}
}

// from is a client whose requests come from an address of this host.
func from(t *testing.T, host string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Users who share a key are not given each other's conversations or responses, if they come from different machines. In
// a conversation a call is repeated from anywhere.
//
//conformance:o39
func TestARetryFromAnotherAddressBeginsAnew(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	clients := []sdk.Client{
		s.client(option.WithHTTPClient(from(t, "127.0.0.1"))), s.client(option.WithHTTPClient(from(t, "127.0.0.2"))),
	}
	again := option.WithHeader(retry, "1")
	made, err := clients[0].Conversations.New(t.Context(), conversations.ConversationNewParams{})
	require.NoError(t, err)
	other, err := clients[1].Conversations.New(t.Context(), conversations.ConversationNewParams{}, again)
	require.NoError(t, err)
	require.NotEqual(t, made.ID, other.ID)
	same, err := clients[0].Conversations.New(t.Context(), conversations.ConversationNewParams{}, again)
	require.NoError(t, err)
	require.Equal(t, made.ID, same.ID)

	p := responses.ResponseNewParams{Input: asks("hi"), Model: "m"}
	first, err := clients[0].Responses.New(t.Context(), p)
	require.NoError(t, err)
	foreign, err := clients[1].Responses.New(t.Context(), p, again)
	require.NoError(t, err)
	require.NotEqual(t, first.ID, foreign.ID)
	own, err := clients[0].Responses.New(t.Context(), p, again)
	require.NoError(t, err)
	require.Equal(t, first.ID, own.ID)

	item := newItems(said("user", "once"))
	_, err = clients[0].Conversations.Items.New(t.Context(), made.ID, item)
	require.NoError(t, err)
	_, err = clients[1].Conversations.Items.New(t.Context(), made.ID, item, again)
	require.NoError(t, err)
	p.Conversation.OfString = sdk.String(made.ID)
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second) // it extends a question, and does not wait for it
	defer cancel()
	first, err = clients[0].Responses.New(soon, p)
	require.NoError(t, err)
	own, err = clients[1].Responses.New(t.Context(), p, again)
	require.NoError(t, err)
	require.Equal(t, first.ID, own.ID)
	require.Len(t, s.list(made.ID, 10), 3)
}

// lostRace is a writer that always loses to another process.
type lostRace struct {
	services.MessageWriter

	lose func()
}

func (l lostRace) AddMessages(
	ctx context.Context, c decide.AddMessages, call services.Call,
) (services.AddedMessages, error) {
	l.lose()
	return l.MessageWriter.AddMessages(ctx, c, call)
}

// Many clients of two processes add to one conversation: nobody is told to come again, and there is one order, whatever
// the direction and the size of the pages.
//
//conformance:o15 o35 o79
func TestManyClientsOfOneConversation(t *testing.T) {
	t.Parallel()
	const clients = 64
	total := 640
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		total = 10_000
	}
	log := natstest.Log(t, 1)
	stacks := []*stack{startOn(t, log), startOn(t, log)}
	id := stacks[0].begin()
	var mu sync.Mutex
	posted := map[string]string{} // texts by ids
	var all sync.WaitGroup
	errs := make([]error, clients)
	for n := range clients {
		all.Go(func() {
			c := stacks[n%2].client(option.WithHTTPClient(&http.Client{}))
			for k := range total / clients {
				role := []responses.EasyInputMessageRole{"user", "assistant", "user"}[(n+k)%3]
				text := fmt.Sprintf("%d/%d", n, k)
				got, err := c.Conversations.Items.New(t.Context(), id, newItems(said(role, text)))
				if err != nil {
					errs[n] = err
					return
				}
				mu.Lock()
				posted[got.Data[0].ID] = text
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Len(t, posted, total/clients*clients, "each item has an id of its own")
	one := stacks[0].list(id, 100)
	require.Len(t, one, len(posted))
	last, shown := map[string]int{}, texts(one)
	for i, got := range ids(one) {
		text := shown[i]
		require.Equal(t, posted[got], text)
		var client string
		var k int
		_, err := fmt.Sscanf(strings.Replace(text, "/", " ", 1), "%s %d", &client, &k)
		require.NoError(t, err)
		require.Equal(t, last[client], k, "each client's items stand in its order, without a gap")
		last[client]++
	}
	require.Equal(t, ids(one), ids(stacks[1].list(id, 7)))
	back := stacks[1].listBack(id, 7)
	slices.Reverse(back)
	require.Equal(t, ids(one), back)
}

// A write that loses a race to another process is decided again, on what that one wrote.
//
//conformance:o13
func TestALostRaceIsDecidedAgain(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	other := startOn(t, log)
	id, n := "", 0
	s := startOn(t, log, func(s *stack) {
		s.cfg.Messages = lostRace{s.services.History, func() {
			n++
			other.post(id, []string{user("between"), assistant("between")}[n%2])
		}}
	})
	id = s.begin(user("q"))
	for range 6 {
		s.post(id, assistant("a"), user("q"))
	}
	require.Len(t, s.list(id, 100), 1+6*3)
	require.Equal(t, ids(s.list(id, 100)), ids(other.list(id, 7)))
	st := natstest.Fold(t, log, id, rules)
	require.Zero(t, st.Erased)
	for e, err := range log.Session(t.Context(), id, 0, ^uint64(0)) {
		require.NoError(t, err)
		require.NotEmpty(t, e.Call, "%s at %s", e.Type, e.Position)
		require.NotEqual(t, events.TypeLinkRefused, e.Type)
	}
}
