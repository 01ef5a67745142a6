package systemtest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Every imported conversation comes back whole and in order, each message to the byte. A second import changes nothing,
// and neither does a restart. The long form reads every conversation before the restart, too.
func TestEveryConversationComesBackWhole(t *testing.T) {
	t.Parallel()
	files := stack.ConversationFiles(t)
	conversations := stack.ReadConversations(t, files)
	dir := stack.DataDir(t)
	p := stack.Start(t, nil, "dev", "--data-dir", dir)
	out := p.Done(t, append([]string{"import"}, files...)...)
	t.Log(out)
	same := func(when string, each int) {
		for n, c := range conversations {
			if n%each == 0 {
				require.Equal(t, c.Messages, p.Context(t, c.ID), "%s %s", c.ID, when)
			}
		}
	}
	each := 10
	if stack.Long() {
		each = 1
	}
	same("after the import", each)
	head := p.Must(t, 200, "GET", stack.SessionPath(conversations[0].ID), nil)["position"]
	require.Contains(t, p.Done(t, append([]string{"import"}, files...)...), ": 0 turns recorded")
	require.Equal(t, head, p.Must(t, 200, "GET", stack.SessionPath(conversations[0].ID), nil)["position"],
		"the second import wrote to the log")
	p.Stop(t)
	p = stack.Start(t, nil, "dev", "--data-dir", dir)
	same("after a restart", 1)
}

// The process is killed (-9) at random moments of an import. After the restart all that was acknowledged is there. When
// the import has run again every turn is there once and in order. The long form has the real conversations, too.
func TestKill9DuringImportLosesNothing(t *testing.T) {
	t.Parallel()
	rounds, files := 3, []string{}
	if stack.Long() {
		rounds, files = 50, stack.ConversationFiles(t)
	}
	seed := stack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	dir := stack.DataDir(t)
	acknowledged := &acknowledgements{turns: map[string]map[string]bool{}}
	for round := range rounds {
		p := stack.Start(t, nil, "serve", "--data-dir", dir)
		acknowledged.check(t, p, seed)
		// There is always something new to record.
		files = append(files, stack.WriteConversations(t, rng, round))
		before := acknowledged.len()
		newest := slices.Clone(files)
		slices.Reverse(newest)
		stop := acknowledged.startImport(t, p, newest)
		moment := before + rng.IntN(stack.WrittenTurns)
		hang.Until(t, func() bool { return acknowledged.len() > moment })
		p.Kill(t)
		stop()
		t.Logf("seed %d round %d: %d more turns acknowledged", seed, round, acknowledged.len()-before)
	}
	p := stack.Start(t, nil, "serve", "--data-dir", dir)
	acknowledged.check(t, p, seed)
	p.Done(t, append([]string{"import"}, files...)...)
	for _, c := range stack.ReadConversations(t, files) {
		require.Equal(t, c.Messages, p.Context(t, c.ID), "seed %d: %s", seed, c.ID)
	}
	t.Logf("seed %d: %d rounds, %d turns acknowledged", seed, rounds, acknowledged.len())
	p.Stop(t)
}

// acknowledgements are the turns that a server has acknowledged to imports, by their sessions; whole ones are true.
type acknowledgements struct {
	mu    sync.Mutex
	n     int
	turns map[string]map[string]bool
}

func (a *acknowledgements) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// proxyTo returns the address of a proxy to a server that remembers each acknowledgement.
func (a *acknowledgements) proxyTo(t testing.TB, p *stack.Process) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return // the import was broken off
		}
		ask, err := http.NewRequestWithContext(r.Context(), r.Method, p.URL+r.URL.RequestURI(), bytes.NewReader(sent))
		assert.NoError(t, err)
		ask.Header = r.Header
		resp, err := http.DefaultClient.Do(ask)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if r.URL.Path == "/v1/turns" && resp.StatusCode == http.StatusOK {
			assert.NoError(t, a.remember(sent, answer))
		}
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// remember notes the answers to many turns. Those name no sessions, which were sent.
func (a *acknowledgements) remember(sent, answer []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	asks := json.NewDecoder(bytes.NewReader(sent))
	for answers := json.NewDecoder(bytes.NewReader(answer)); answers.More(); {
		var asked struct {
			SessionID string           `json:"session_id"`
			Answer    *string          `json:"answer_neutral"`
			Messages  []map[string]any `json:"answer_messages"`
		}
		var told struct {
			Status int    `json:"http_status"`
			TurnID string `json:"turn_id"`
		}
		if err := asks.Decode(&asked); err != nil {
			return err
		}
		if err := answers.Decode(&told); err != nil {
			return err
		}
		if told.Status != http.StatusCreated {
			continue
		}
		if a.turns[asked.SessionID] == nil {
			a.turns[asked.SessionID] = map[string]bool{}
		}
		a.turns[asked.SessionID][told.TurnID] = asked.Answer != nil || asked.Messages != nil
		a.n++
	}
	return nil
}

// startImport begins an import whose acknowledgements are remembered, until stop ends it.
func (a *acknowledgements) startImport(t testing.TB, p *stack.Process, files []string) (stop func()) {
	t.Helper()
	through := stack.Process{URL: a.proxyTo(t, p)}
	cmd := through.Command(t, append([]string{"import", "--parallel", "8"}, files...)...)
	require.NoError(t, cmd.Start())
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // broken off
	}
}

// check finds every acknowledged turn as it was acknowledged. A turn that was sent whole is never in two pieces, and
// stands once, whether it was acknowledged or not.
func (a *acknowledgements) check(t testing.TB, p *stack.Process, seed uint64) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, turns := range a.turns {
		found := map[string]string{}
		path := stack.SessionPath(id) + "/turns?status=all&limit=10000"
		for _, x := range p.Get(t, path)["turns"].([]any) {
			turn := x.(map[string]any)
			require.NotContains(t, found, turn["turn_id"], "seed %d: a turn stands twice", seed)
			found[turn["turn_id"].(string)] = turn["status"].(string)
			if !stack.Long() { // the real conversations may end with a question
				require.Equal(t, "finalized", turn["status"], "seed %d: a whole turn is in two pieces", seed)
			}
		}
		for turn, whole := range turns {
			require.Contains(t, found, turn, "seed %d: an acknowledged turn is lost", seed)
			if whole {
				require.Equal(t, "finalized", found[turn], "seed %d: an acknowledged answer is lost", seed)
			}
		}
	}
}

// assistants are the example's files of the Assistants API, and boilers the id of its longer thread.
const (
	assistants = "../../../docs/examples/assistants/*"
	boilers    = "thread_7pLzTb1dLxWq3kVn8sYcRf2G"
	parcel     = "thread_3xQdGm9rKp5vTn0hLw8bZs4C"
)

// members returns a member of each item.
func members(all []any, name string) (out []any) {
	for _, i := range all {
		out = append(out, i.(map[string]any)[name])
	}
	return out
}

// importAssistants imports threads of the Assistants API, which are conversations here: the messages keep their ids,
// their order and all that they say, in the form of the official document, and a response goes on with them. A second
// import changes nothing, whatever the order of the files.
func importAssistants(t *testing.T, p *stack.Process) {
	t.Helper()
	files := must.Get(filepath.Glob(assistants))(t)
	out := p.Done(t, append([]string{"import", "--from", "assistants"}, files...)...)
	require.Contains(t, out, "2 conversations with 5 turns: 5 turns recorded")

	target := must.Get(url.Parse(p.URL))(t)
	document := openaitest.Read(t, os.Getenv(openaitest.Variable))
	server := httptest.NewServer(document.Holding(httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(server.Close)
	official := stack.NewCaller(server.URL, true)
	require.Equal(t, map[string]any{"customer": "4711"}, official.Get(t, "/v1/conversations/"+boilers)["metadata"])
	all := itemsOf(t, official, boilers)
	require.Equal(t, []any{"msg_a1Zk9", "msg_b2Yj8", "msg_c3Xi7", "msg_d4Wh6", "msg_e5Vg5", "msg_f6Uf4", "msg_g7Te3"},
		members(all, "id"))
	require.Equal(t, []any{"user", "assistant", "user", "user", "assistant", "user", "assistant"}, members(all, "role"))
	cites := map[string]any{
		"type": "file_citation", "text": "【4:0†boilers.pdf】", "start_index": 31.0, "end_index": 49.0,
		"file_id": "file-Hb7bLmQ2", "index": 31.0, "filename": "",
	}
	require.Equal(t, []any{map[string]any{
		"type": "output_text", "text": "Two of them: the B20 and the B35【4:0†boilers.pdf】.",
		"annotations": []any{cites}, "logprobs": []any{},
	}}, members(all, "content")[1])
	label := map[string]any{"type": "input_image", "file_id": "file-9QzLabel", "detail": "auto", "image_url": nil}
	require.Equal(t, label, members(all, "content")[2].([]any)[1])
	require.Equal(t, map[string]any{"channel": "web"}, members(all, "metadata")[5])
	require.Equal(t, []any{"completed", "completed", "incomplete", "completed"},
		members(itemsOf(t, official, parcel), "status"))
	out = p.Done(t, "replay", "--type", "turnledger.session.described.v1")
	require.Equal(t, 2, strings.Count(out, `"kind":"conversation"`), out)

	position := func() any { return p.Get(t, stack.SessionPath(boilers))["position"] }
	before := position()
	slices.Reverse(files)
	out = p.Done(t, append([]string{"import", "--from", "assistants"}, files...)...)
	require.Contains(t, out, "0 turns recorded, 5 were there already")
	require.Equal(t, before, position(), "the second import wrote to the log")

	answer := p.Must(t, http.StatusOK, http.MethodPost, "/v1/responses",
		map[string]any{"conversation": boilers, "input": "And the price?"})
	require.Equal(t, "completed", answer["status"])
	require.Len(t, itemsOf(t, official, boilers), 9)
	require.Len(t, p.Context(t, boilers), 9)
}
