package openai_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/problems"
)

// failing is a writer that fails with an error.
type failing struct {
	services.MessageWriter

	err error
}

func (f failing) AddMessages(
	context.Context, decide.AddMessages, services.Call,
) (services.AddedMessages, error) {
	return services.AddedMessages{}, f.err
}

// What the log refuses or fails with has a status, a type, a code, and a word on whether to try again.
//
//conformance:o23
func TestErrorsOfTheLog(t *testing.T) {
	t.Parallel()
	const secret = "secret_value"
	for _, c := range []struct {
		err        error
		status     int
		kind       string
		code       any
		tries, too string
	}{
		{jetlog.ErrUnavailable, 503, "server_error", "log_unavailable", "true", "1"},
		{jetlog.ErrNoWrites, 503, "server_error", "log_unavailable", "true", "1"},
		{context.DeadlineExceeded, 503, "server_error", "log_unavailable", "true", "1"},
		{decide.ErrSessionErased, 404, "invalid_request_error", nil, "false", ""},
		{decide.ErrTurnInherited, 409, "invalid_request_error", "turn_inherited", "false", ""},
		{jetlog.ErrTooLarge, 413, "invalid_request_error", "body_too_large", "false", ""},
		{services.ErrModelFailed, 502, "server_error", "model_failed", "", ""},
		{errors.New("nobody knows"), 500, "server_error", "internal", "", ""},
	} {
		s := start(t, func(s *stack) {
			s.cfg.Messages = failing{s.services.History, fmt.Errorf("%s: %w: %w", secret, c.err, errors.New(secret))}
		})
		a := s.do("POST", "/v1/conversations/"+s.begin()+"/items", `{"items":[`+user("q")+`]}`)
		require.Equal(t, c.status, a.status, "%v: %s", c.err, a.raw)
		e := a.body["error"].(map[string]any)
		require.Equal(t, []any{c.kind, c.code, nil}, []any{e["type"], e["code"], e["param"]}, c.err)
		require.Equal(t, []string{c.tries, c.too},
			[]string{a.header.Get("X-Should-Retry"), a.header.Get("Retry-After")}, c.err)
		require.NotContains(t, a.raw+s.logs.String(), secret)
		if c.status == http.StatusServiceUnavailable {
			require.Contains(t, s.logs.String(), `"err":"`+c.err.Error()+`"`, "the reason in words, and no type beside it")
		}
	}
}

// Each class of problems has a form.
func TestEachClassHasAForm(t *testing.T) {
	t.Parallel()
	for class := problems.Malformed; class <= problems.Internal; class++ {
		s := start(t, func(s *stack) {
			s.cfg.Messages = failing{s.services.History, &problems.Problem{Class: class, Code: "odd", Detail: "no"}}
		})
		a := s.do("POST", "/v1/conversations/"+s.begin()+"/items", `{"items":[`+user("q")+`]}`)
		require.GreaterOrEqual(t, a.status, 400, class)
		require.NotEmpty(t, a.body["error"].(map[string]any)["type"], class)
	}
}

// Every answer has an id, also one that went well.
//
//conformance:o24
func TestAnswersHaveIDs(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	seen := map[string]bool{}
	for path, body := range map[string]string{"/v1/conversations": `{}`, "/v1/responses": `{"input":"a"}`,
		"/v1/responses/input_tokens": `{"input":"a","stream":true}`, "/v1/responses/compact": `{}`} {
		seen[s.do("POST", path, body).header.Get("X-Request-Id")] = true
	}
	streamed := s.do("POST", "/v1/responses", `{"input":"a","stream":true}`)
	require.Equal(t, "text/event-stream", streamed.header.Get("Content-Type"))
	seen[streamed.header.Get("X-Request-Id")] = true
	require.Len(t, seen, 5)
	require.NotContains(t, seen, "")
}

// What a request leaves out has the defaults of the document, and include shows what it names on each route.
//
//conformance:o4 o10 o16
func TestListsAndWhatTheyInclude(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("q"), `{"type":"reasoning","summary":[],"encrypted_content":"sealed"}`, many(25))
	items := "/v1/conversations/" + id + "/items"
	page := s.must("GET", items, "")
	require.Len(t, page["data"], 20)
	require.Equal(t, true, page["has_more"])
	all := s.list(id, 100)
	one := items + "/" + ids(all)[1]
	response := s.must("POST", "/v1/responses", `{"input":"a","conversation":"`+id+`"}`)["id"].(string)
	given := "/v1/responses/" + response + "/input_items"
	page = s.must("GET", given, "")
	require.Len(t, page["data"], 20)
	require.Equal(t, true, page["has_more"])
	require.Equal(t, "a", texts(page["data"].([]any))[0], "the newest first")
	after := s.must("GET", given+"?order=asc&limit=3&after="+ids(all)[1], "")
	require.Equal(t, ids(all)[2:5], ids(after["data"].([]any)))
	require.Equal(t, []any{ids(all)[2], ids(all)[4], true},
		[]any{after["first_id"], after["last_id"], after["has_more"]})
	for _, path := range []string{items + "?order=asc&", one + "?", given + "?order=asc&"} {
		require.NotContains(t, s.do("GET", path, "").raw, "sealed", path)
		for _, name := range []string{"include", "include[]"} {
			require.Contains(t, s.do("GET", path+name+"=reasoning.encrypted_content", "").raw, "sealed", path+name)
			require.Equal(t, http.StatusBadRequest, s.do("GET", path+name+"=all", "").status, path)
		}
	}
	posted := `{"items":[{"type":"reasoning","summary":[],"encrypted_content":"sealed"}]}`
	require.NotContains(t, s.do("POST", items, posted).raw, "sealed")
	require.Contains(t, s.do("POST", items+"?include[]=reasoning.encrypted_content", posted).raw, "sealed")
	gone := ids(s.list(id, 100))[3]
	s.must("DELETE", items+"/"+gone, "")
	for _, path := range []string{items, given} {
		a := s.do("GET", path+"?after="+gone, "")
		require.Equal(t, http.StatusNotFound, a.status, a.raw)
		require.Equal(t, "after", a.body["error"].(map[string]any)["param"])
	}
	for _, id := range []string{"a%2Fb", "%00", strings.Repeat("a", 300), "conv_1"} {
		require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/conversations/"+id, "").status, id)
	}
}

// A response shows what it was asked for, and its model's thoughts where they are asked for. Nothing that a client says
// of its users is an identity, and no text is in a header of the log or in what is logged.
//
//conformance:o26 o42 o48 o61
func TestWhatAResponseSays(t *testing.T) {
	t.Parallel()
	part := services.AnswerPart{Kind: services.PartReasoning, Text: "Hm.", Item: []byte(
		`{"type":"reasoning","summary":[],"encrypted_content":"sealed","content":[{"type":"reasoning_text","text":"Hm."}]}`)}
	s := start(t, answeredBy(answers{parts: []services.AnswerPart{part, told("a text")}}))
	const secret = "Marzipanmond"
	r := s.must("POST", "/v1/responses", `{"input":"`+secret+`","instructions":"`+secret+`","user":"`+secret+`",
		"safety_identifier":"`+secret+`","metadata":{"k":"`+secret+`"},"include":["reasoning.encrypted_content"],
		"tools":[{"type":"function","name":"f","description":"`+secret+`","parameters":{}}],"of_tomorrow":1}`)
	require.Equal(t, []any{secret, secret, secret}, []any{r["user"], r["safety_identifier"], r["instructions"]})
	require.NotContains(t, r, "output_text", "clients make it")
	require.NotContains(t, r, "conversation")
	require.Positive(t, r["usage"].(map[string]any)["input_tokens"], "counted where the model does not tell")
	require.Positive(t, r["usage"].(map[string]any)["output_tokens"])
	path := "/v1/responses/" + r["id"].(string)
	require.Contains(t, s.do("GET", path+"?include[]=reasoning.encrypted_content", "").raw, "sealed")
	require.NotContains(t, s.do("GET", path, "").raw, "sealed")
	session := s.sessionOf(r["id"].(string))
	require.Empty(t, s.must("GET", "/v1/sessions/"+session, "")["identity_id"])
	for e, err := range s.log.Session(t.Context(), session, 0, ^uint64(0)) {
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprint(e.Subject, e.ID, e.Call), secret)
	}
	require.NotContains(t, s.logs.String(), secret)
	require.Contains(t, s.logs.String(), "/v1/responses", "what is logged is seen here")
	turn := s.turns(session)[0]["turn_id"].(string)
	s.must("POST", "/v1/sessions/"+session+"/turns/"+turn+"/redact", `{}`)
	require.Equal(t, http.StatusNotFound, s.do("GET", path, "").status, "its turn was redacted")
}

// The prompt of a response has the whole history, however long and however old it is; of native contexts the newest 20
// messages are the default.
//
//conformance:o58
func TestTheWholeHistoryIsThePrompt(t *testing.T) {
	t.Parallel()
	asked := 0
	s := start(t, answeredBy(answers{parts: []services.AnswerPart{told("a")}, asked: func(p services.Prompt) {
		asked = len(p.Messages)
	}}))
	id := s.begin()
	last := ""
	for n := range 15 {
		s.post(id, user(fmt.Sprint("q", n)), assistant("a"))
		body := `{"input":"b"`
		if last != "" {
			body += `,"previous_response_id":"` + last + `"`
		}
		last = s.must("POST", "/v1/responses", body+"}")["id"].(string)
	}
	require.Equal(t, 29, asked)
	s.must("POST", "/v1/responses", `{"input":"c","conversation":"`+id+`"}`)
	require.Equal(t, 31, asked)
	s.must("POST", "/v1/responses", `{"input":"c","store":false,"previous_response_id":"`+last+`"}`)
	require.Equal(t, 31, asked)
}

// A call whose run was aborted, and an output whose call was deleted, are text in the next prompt, and the conversation
// goes on with a turn of its own.
//
//conformance:o19 o73
func TestTornCallsAreTextInPrompts(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	id := s.begin(user("q"), `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}`)
	s.must("POST", "/v1/responses", `{"input":"and now?","conversation":"`+id+`"}`)
	require.Equal(t, []string{"user: q", `assistant: [Tool call: f {"x":1}]`, "user: and now?"}, <-model.Asked)
	require.Len(t, s.turns(id), 2)
	id = s.begin(user("q"), function("c"), result("c", "found"), assistant("a"))
	s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[1], "")
	s.must("POST", "/v1/responses", `{"input":"and now?","conversation":"`+id+`"}`)
	prompt := <-model.Asked
	require.Contains(t, strings.Join(prompt, "\n"), "[Tool result: found]")
	require.Equal(t, "user: and now?", prompt[len(prompt)-1])
}

// A call that comes again while its answer is made waits for that answer, at once or as a stream; the model is asked
// once.
//
//conformance:o40
func TestACallThatComesAgainWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", `,"stream":true`} {
		held := make(chan struct{})
		model, m := scripted(t, func([]string) modeltest.Answer {
			return modeltest.Answer{Text: "the answer", Hold: held}
		})
		s := start(t, answeredBy(m))
		body := `{"input":"a","conversation":"` + s.begin() + `"` + stream + `}`
		got := make(chan reply, 2)
		var all sync.WaitGroup
		all.Go(func() { got <- s.do("POST", "/v1/responses", body, retry, "0") })
		<-model.Asked
		all.Go(func() { got <- s.do("POST", "/v1/responses", body, retry, "1") })
		<-time.After(300 * time.Millisecond)
		require.Empty(t, got)
		close(held)
		all.Wait()
		require.Empty(t, model.Asked, "it is asked once")
		for range 2 {
			require.Contains(t, (<-got).raw, "the answer")
		}
	}
}

// heldAnswers is a history that keeps an answer until it is let go.
type heldAnswers struct {
	services.TurnWriter

	release chan struct{}
}

func (h heldAnswers) FinalizeTurn(ctx context.Context, c decide.Finalize) (services.Turn, error) {
	<-h.release
	return h.TurnWriter.FinalizeTurn(ctx, c)
}

// The last event of a stream is sent after the answer stands in the log, and not when the model has ended.
//
//conformance:o66
func TestTheLastEventComesAfterTheLog(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := start(t, answeredAs(answer.Echo{}, func(r *answer.Config) {
		r.Turns = heldAnswers{r.Turns, held}
	}))
	server := httptest.NewServer(s.api) // the one of the stack holds a stream against the document first
	t.Cleanup(server.Close)
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/responses",
		strings.NewReader(`{"input":"a","stream":true}`))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	names := make(chan string, 100)
	go func() {
		defer close(names)
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if name, is := strings.CutPrefix(in.Text(), "event: "); is {
				names <- name
			}
		}
	}()
	for name := range names {
		require.NotEqual(t, "response.completed", name)
		if name == "response.output_text.delta" {
			break
		}
	}
	for deadline := time.After(500 * time.Millisecond); ; {
		select {
		case name := <-names:
			require.NotEqual(t, "response.completed", name)
			continue
		case <-deadline:
		}
		break
	}
	release()
	last := ""
	for name := range names {
		last = name
	}
	require.Equal(t, "response.completed", last)
}

// A chain of branches has an end, and what is refused leaves nothing.
//
//conformance:o68
func TestBranchesHaveAnEnd(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	behind := func(id string) reply {
		return s.do("POST", "/v1/responses", `{"input":"a","previous_response_id":"`+id+`"}`)
	}
	last := s.must("POST", "/v1/responses", `{"input":"root"}`)["id"].(string)
	for n := range 40 {
		require.Equal(t, http.StatusOK, behind(last).status)
		head := s.head()
		branch := behind(last)
		if branch.status == http.StatusOK {
			last = branch.body["id"].(string)
			continue
		}
		require.Equal(t, http.StatusBadRequest, branch.status, branch.raw)
		e := branch.body["error"].(map[string]any)
		require.Equal(t, []any{"invalid_value", "previous_response_id"}, []any{e["code"], e["param"]})
		require.Equal(t, head, s.head())
		require.Equal(t, 32, n, "segments")
		return
	}
	t.Fatal("there is no end")
}

// Without a key a call is repeated for ten minutes; the same words later are said anew.
//
//conformance:o38
func TestARetryAfterTenMinutesIsAnotherCall(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := func() time.Time { return now }
	s := start(t, withClock(answer.Echo{}, clock), func(s *stack) { s.cfg.Now = clock })
	id := s.begin(user("q"), assistant("a"))
	for path, body := range map[string]string{
		"/v1/conversations/" + id + "/items": `{"items":[` + user("b") + `,` + assistant("c") + `]}`,
		"/v1/responses":                      `{"input":"d","conversation":"` + id + `"}`,
	} {
		begun := now
		first := s.must("POST", path, body, retry, "0")
		now = begun.Add(9 * time.Minute)
		require.Equal(t, first, s.must("POST", path, body, retry, "1"), path)
		now = begun.Add(11 * time.Minute)
		require.NotEqual(t, first, s.must("POST", path, body, retry, "1"), path)
		now = begun
	}
	require.Len(t, s.list(id, 100), 2+2*2+2*2)
}
