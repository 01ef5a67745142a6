package contextbuilder_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/read"
)

func TestMain(m *testing.M) {
	leaks.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// answering is a model that answers with a text, and notes what it is asked.
func answering(t *testing.T, asked *string, serve http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Temperature *float64
			Messages    []struct{ Role, Content string }
		}
		if json.NewDecoder(r.Body).Decode(&in) == nil && asked != nil {
			if in.Temperature != nil { // models that reason take none
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			*asked = in.Messages[len(in.Messages)-1].Content
		}
		serve(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		raw, _ := json.Marshal(text)
		_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}]}`, raw)
	}
}

// rewritten builds a prompt with a rewritten query and a memory.
func rewritten(t *testing.T, url string, patience time.Duration) services.Context {
	t.Helper()
	log := natstest.Log(t, 1)
	b := contextbuilder.NewBuilder(read.New(log, read.Config{}), contextbuilder.Config{
		Memory: remembering{},
		Rewriter: contextbuilder.ModelRewriter{
			Model: openai.New(endpoint.Config{URL: url, Name: "m", Idle: patience}), Timeout: patience,
		},
	})
	r := must.Get(b.Build(t.Context(), services.ContextRequest{
		SessionID: "s", Message: "who are his children", Rewrite: true, Memory: true,
		History: []json.RawMessage{
			json.RawMessage(`{"role":"user","content":"Who is Donald Trump?"}`),
			json.RawMessage(`{"role":"assistant","content":"Donald Trump is an American politician."}`),
		},
	}))(t)
	return r
}

//conformance:i48 i49 i50 i58 i59 i76
func TestRewriterSeesMessageHistoryAndMemory(t *testing.T) {
	t.Parallel()
	var asked string
	s := answering(t, &asked, says(" Who are Donald Trump's children? \n"))
	r := rewritten(t, s.URL, hang.Limit)
	require.Equal(t, "Who are Donald Trump's children?", r.RewrittenQuery)
	require.False(t, r.RewriteFallback)
	require.Equal(t, "Original user message:\nwho are his children\n\n---\n\nContextualized query:\nWho are Donald "+
		"Trump's children?", r.Messages[len(r.Messages)-1].Text())
	require.Equal(t, "Conversation so far:\nuser: Who is Donald Trump?\nassistant: Donald Trump is an American "+
		"politician.\n\n"+
		"Known from earlier conversations:\nThe user likes lists.\n\nMessage to rewrite:\nwho are his children", asked)
	var before []string
	for _, m := range r.Messages[:len(r.Messages)-1] {
		before = append(before, m.Role()+": "+m.Text())
	}
	require.Equal(t, []string{"system: Long-term memory:\nThe user likes lists.", "user: Who is Donald Trump?",
		"assistant: Donald Trump is an American politician."}, before)
}

// Whatever goes wrong, the original is what the model is asked, in time.
//
//conformance:i52 i54 i57
func TestRewriterThatFailsLeavesTheOriginal(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"an error":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a refusal": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"half a query": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"Who are the"},"finish_reason":"length"}]}`))
		},
		"no choice": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"choices":[]}`)) },
		"nothing":   says("  "),
		"the model's refusal": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"choices":[{"index":0,"message":{"content":null,"refusal":"I can't."},"finish_reason":"stop"}]}`))
		},
		"a query that a filter cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"choices":[{"index":0,"message":{"content":"Who are the"},"finish_reason":"content_filter"}]}`))
		},
		"a stream that broke off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Who are the\"}}]}\n\n"))
		},
		"a whole article": says(string(make([]byte, 5000))),
		"more than is read": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(bytes.Repeat([]byte(" "), 65<<20))
			says("a query")(w, r)
		},
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := answering(t, nil, serve)
			began := time.Now()
			r := rewritten(t, s.URL, time.Second)
			require.True(t, r.RewriteFallback)
			require.Len(t, r.Warnings, 1)
			require.Contains(t, r.Warnings[0], "rewrite: no answer")
			require.Empty(t, r.RewrittenQuery)
			require.Equal(t, "who are his children", r.Messages[len(r.Messages)-1].Text())
			require.Less(t, time.Since(began), hang.Limit)
		})
	}
}

type remembering struct{}

func (remembering) Snippet(_ context.Context, _ services.MemoryQuery) (services.MemorySnippet, error) {
	return services.MemorySnippet{Text: "The user likes lists."}, nil
}
