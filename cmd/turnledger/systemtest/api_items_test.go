package systemtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// itemsOf returns the items of a conversation, oldest first.
func itemsOf(t *testing.T, p *stack.Process, conversation string) []any {
	t.Helper()
	return p.Get(t, "/v1/conversations/"+conversation+"/items?order=asc&limit=100")["data"].([]any)
}

// wordsOf returns the texts of messages, and what calls and outputs say.
func wordsOf(items []any) (out []string) {
	for _, one := range items {
		i := one.(map[string]any)
		switch i["type"] {
		case "message":
			out = append(out, i["content"].([]any)[0].(map[string]any)["text"].(string))
		case "function_call":
			out = append(out, i["arguments"].(string))
		default:
			out = append(out, i["output"].(string))
		}
	}
	return out
}

// withAudit runs a server with the tables.
func withAudit(t *testing.T) (*stack.Process, *pgx.Conn) {
	t.Helper()
	url := pg.URL(t)
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + url})
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return p, conn
}

// itemsAreTurns: what is written as items is a turn in every other place: prompts, the history, the tables, the folded
// log, an explanation and the export. With the turn the items are gone.
func itemsAreTurns(t *testing.T, p *stack.Process, conn *pgx.Conn) {
	t.Helper()
	post := func(path string, items ...any) map[string]any {
		t.Helper()
		return p.Must(t, http.StatusOK, http.MethodPost, path, map[string]any{"items": items})
	}
	user := map[string]any{"role": "user", "content": "the question"}
	call := map[string]any{"type": "function_call", "call_id": "c", "name": "find", "arguments": `{"what":"the call"}`}
	output := map[string]any{"type": "function_call_output", "call_id": "c", "output": "the output"}
	id := post("/v1/conversations", user, call)["id"].(string)
	post("/v1/conversations/"+id+"/items", output, map[string]any{"role": "assistant", "content": "the answer"})
	post("/v1/conversations/"+id+"/items", map[string]any{"role": "user", "content": "the next"})
	p.LinkIdentity(t, id, "alan")
	p.WaitCaughtUp(t, "recent", "audit")

	said := []string{"the question", `{\"what\":\"the call\"}`, "the output", "the answer"}
	inOrder := func(what, text string) {
		t.Helper()
		at := 0
		for _, word := range said {
			n := strings.Index(text[at:], word)
			require.GreaterOrEqual(t, n, 0, "%s lacks %s behind the others: %s", what, word, text)
			at += n
		}
	}
	context := must.Get(json.Marshal(p.Context(t, id)))(t)
	inOrder("the context", string(context))
	require.Len(t, p.Context(t, id), 5)
	require.Equal(t, []any{map[string]any{"question_neutral": "the question", "answer_neutral": "the answer"}},
		p.Get(t, stack.SessionPath(id)+"/history")["history"])
	turns := p.Get(t, stack.SessionPath(id)+"/turns?status=all")["turns"].([]any)
	turn := turns[0].(map[string]any)["turn_id"].(string)

	var question, answer, messages string
	require.NoError(t, conn.QueryRow(t.Context(), `select q.question_neutral, a.answer_neutral, a.answer_messages::text
		from turnledger.questions q join turnledger.answers a using (turn_id) where turn_id = $1`, turn).
		Scan(&question, &answer, &messages))
	require.Equal(t, []string{"the question", "the answer"}, []string{question, answer})
	inOrder("the tables", question+messages)

	folded := strings.Split(strings.TrimSpace(p.Done(t, "replay", "--turns", "--session", id)), "\n")
	require.Len(t, folded, 2)
	inOrder("the folded log", folded[0])
	require.Contains(t, folded[1], "the next")
	explained := p.Done(t, "explain", id, turn, "--text")
	inOrder("the explanation", explained)
	next := turns[1].(map[string]any)["turn_id"].(string)
	inOrder("the explanation of the next turn", p.Done(t, "explain", id, next, "--text"))
	inOrder("the export", p.Done(t, "export", "--identity", "alan"))
	require.Contains(t, p.Done(t, "search", "question"), turn)

	redacted := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(id)+"/turns/"+turn+"/redact", nil)
	require.NotEmpty(t, redacted["position"])
	require.Equal(t, []string{"the next"}, wordsOf(itemsOf(t, p, id)))
	p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath(id), nil)
	p.Must(t, http.StatusNotFound, http.MethodGet, "/v1/conversations/"+id, nil)
	p.Must(t, http.StatusNotFound, http.MethodGet, "/v1/conversations/"+id+"/items", nil)
	require.NotContains(t, p.Done(t, "export", "--identity", "alan"), "the next")
}

// dying is the connection of OpenAI's client to a server that is killed while it answers.
type dying struct {
	http.RoundTripper

	// die, if set, kills the server around the next request, and is then unset.
	die func(send func() error)
}

var errDied = errors.New("the connection was reset")

// RoundTrip fails as a connection does whose server dies before the client has the answer.
func (d *dying) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if d.die == nil {
		return d.RoundTripper.RoundTrip(r)
	}
	die := d.die
	d.die = nil
	die(func() error {
		resp, err = d.RoundTripper.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	return nil, errDied
}

// OpenAI's client tries again by itself. Whenever its server is killed (before it has recorded a call, while it does,
// or after that, before the answer), each item is recorded once, and each conversation is made once.
//
//conformance:o38 o75
func TestRetriesOfTheOfficialClientRecordOnce(t *testing.T) {
	t.Parallel()
	kills := 4
	if stack.Long() {
		kills = 200
	}
	random := rand.New(rand.NewPCG(stack.Seed(t), 0))
	dir, address := stack.DataDir(t), stack.FreeAddress(t)
	var server *stack.Process
	begin := func() {
		server = stack.LaunchAt(t, address, nil, "serve", "--data-dir", dir)
		server.WaitReady(t)
	}
	begin()
	wire := &dying{RoundTripper: &http.Transport{DisableKeepAlives: true}}
	c := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: wire}), option.WithMaxRetries(5))
	dies := func(send func() error) {
		switch random.IntN(3) {
		case 0: // after the call is recorded, before its answer
			require.NoError(t, send())
			server.Kill(t)
		case 1: // at some moment of it
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_ = send()
			}()
			select {
			case <-sent:
			case <-time.After(time.Duration(random.IntN(3000)) * time.Microsecond):
			}
			server.Kill(t)
			<-sent
		default: // before it
			server.Kill(t)
		}
		begin()
	}
	ctx := t.Context()
	made := map[string]bool{}
	var id string
	var want []string
	for n := range kills {
		if n%3 == 0 {
			wire.die = dies
			one := must.Get(c.Conversations.New(ctx, conversations.ConversationNewParams{}))(t)
			require.False(t, made[one.ID])
			made[one.ID], id, want = true, one.ID, nil
		}
		for k, role := range []responses.EasyInputMessageRole{"user", "assistant", "user"} {
			if k == n%3 {
				wire.die = dies
			}
			text := fmt.Sprintf("%d/%d", n, k)
			got := must.Get(c.Conversations.Items.New(ctx, id, conversations.ItemNewParams{
				Items: []responses.ResponseInputItemUnionParam{responses.ResponseInputItemParamOfMessage(text, role)},
			}))(t)
			require.Len(t, got.Data, 1)
			want = append(want, text)
		}
		var all []string
		pages := c.Conversations.Items.ListAutoPaging(ctx, id, conversations.ItemListParams{Order: "asc"})
		for pages.Next() {
			all = append(all, pages.Current().AsMessage().Content[0].Text)
		}
		require.NoError(t, pages.Err())
		require.Equal(t, want, all)
	}
	resp := must.Get(http.Get(server.URL + "/v1/events?type=turnledger.session.described.v1"))(t)
	defer func() { _ = resp.Body.Close() }()
	sessions, events := map[string]bool{}, json.NewDecoder(resp.Body)
	for {
		var e struct{ Subject string }
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		sessions[e.Subject] = true
	}
	require.Equal(t, made, sessions, "no conversation but those that the client knows")
}
