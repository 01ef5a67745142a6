package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/model/anthropic"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/model/responses"
)

func always(a modeltest.Answer) func([]string) modeltest.Answer {
	return func([]string) modeltest.Answer { return a }
}

// models runs a test with each vendor's client, whose models may be silent for a while.
func models(t *testing.T, idle time.Duration, test func(t *testing.T, server *modeltest.Server, m services.Model)) {
	t.Parallel()
	for _, vendor := range []string{"openai", "anthropic", "responses"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			server := modeltest.New(t, always(modeltest.Answer{Text: "It is żółty indeed."}))
			cfg := endpoint.Config{URL: server.URL + "/v1", Key: "k", Name: "m", Idle: idle}
			m, format := openai.New(cfg), services.OpenAI
			switch vendor {
			case "anthropic":
				m, format = anthropic.New(cfg), services.Anthropic
			case "responses":
				m = responses.New(cfg)
			}
			require.Equal(t, format, m.Format())
			test(t, server, m)
		})
	}
}

// ask returns an answer's text and why it ended, and calls piece with the pieces of the text.
func ask(
	ctx context.Context, m services.Model, p services.Prompt, piece func(string),
) (string, services.Finish, error) {
	answer, err := m.Answer(ctx, p, func(p services.AnswerPiece) {
		if p.Said() && p.Text != "" { // as chats do
			piece(p.Text)
		}
	})
	return answer.Text(), answer.Finish, err
}

func prompt(messages ...string) (p services.Prompt) {
	for _, m := range messages {
		p.Messages = append(p.Messages, json.RawMessage(m))
	}
	return p
}

func TestModelsStream(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		p := prompt(`{"role":"user","content":"q"}`, `{"role":"assistant","content":"a"}`,
			`{"role":"user","content":"now"}`)
		if m.Format() == "anthropic" {
			p.System = "be \"kind\""
		}
		var pieces []string
		text, _, err := ask(t.Context(), m, p, func(s string) { pieces = append(pieces, s) })
		require.NoError(t, err)
		require.Equal(t, "It is żółty indeed.", text)
		require.Equal(t, []string{"It ", "is ", "żółty ", "indeed."}, pieces)
		asked := <-server.Asked
		if p.System != "" {
			require.Equal(t, `system: be "kind"`, asked[0])
			asked = asked[1:]
		}
		require.Equal(t, []string{"user: q", "assistant: a", "user: now"}, asked)
	})
}

// However a model fails, it is an error, in time; what it has said until then is given.
func TestModelsThatFail(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		for name, a := range map[string]struct {
			modeltest.Answer
			why string
		}{
			"400": {modeltest.Answer{Status: http.StatusBadRequest}, "the endpoint answered 400"},
			"401": {modeltest.Answer{Status: http.StatusUnauthorized},
				"the endpoint answered 401: is TURNLEDGER_MODEL_KEY right?"},
			"404": {modeltest.Answer{Status: http.StatusNotFound},
				"the endpoint answered 404: are TURNLEDGER_MODEL_URL, up to its version, and " +
					"TURNLEDGER_MODEL_NAME right?"},
			"429": {modeltest.Answer{Status: http.StatusTooManyRequests}, "the endpoint answered 429"},
			"429 long": {modeltest.Answer{Status: http.StatusTooManyRequests, RetryAfter: 40},
				"the endpoint answered 429"},
			"500":       {modeltest.Answer{Status: http.StatusInternalServerError}, "the endpoint answered 500"},
			"malformed": {modeltest.Answer{Text: "It is half", Malformed: true}, "the endpoint's answer is broken"},
			"cut":       {modeltest.Answer{Text: "It is half", Cut: true}, endpoint.ErrBroken.Error()},
		} {
			server.Script(always(a.Answer))
			began := time.Now()
			text, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"now"}`), func(string) {})
			require.EqualError(t, err, a.why, name)
			require.Less(t, time.Since(began), 20*time.Second, name)
			switch name {
			case "malformed", "cut":
				require.Equal(t, "It ", text, name)
			}
		}
	})
}

// An answer that the model's limit of tokens cuts is told from one that is whole.
// An endpoint that refuses a prompt for its length says so in its own way; the error's text holds nothing of the
// prompt.
func TestModelsWhosePromptIsTooLong(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		server.Script(always(modeltest.Answer{Status: http.StatusBadRequest})) // it repeats what was said
		const words = "prompt is too long: 9 tokens > 8 maximum, the maximum context length"
		_, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"`+words+`"}`), func(string) {})
		require.ErrorIs(t, err, services.ErrPromptTooLong)
		require.NotContains(t, err.Error(), "9 tokens")
		_, _, err = ask(t.Context(), m, prompt(`{"role":"user","content":"q"}`), func(string) {})
		require.Error(t, err)
		require.NotErrorIs(t, err, services.ErrPromptTooLong)
	})
}

func TestModelsSayWhyTheyEnd(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		for long, want := range map[bool]services.Finish{false: services.FinishStop, true: services.FinishLength} {
			server.Script(always(modeltest.Answer{Text: "It is", Long: long}))
			text, why, err := ask(t.Context(), m, prompt(`{"role":"user","content":"now"}`), func(string) {})
			require.NoError(t, err)
			require.Equal(t, "It is", text)
			require.Equal(t, want, why)
		}
	})
}

func TestModelsThatFallSilent(t *testing.T) {
	models(t, 2*time.Second, func(t *testing.T, server *modeltest.Server, m services.Model) {
		server.Script(always(modeltest.Answer{Text: "It is half", Stall: true}))
		_, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"now"}`), func(string) {})
		require.EqualError(t, err, endpoint.ErrSilent.Error())
		require.ErrorIs(t, err, endpoint.ErrSilent)
	})
}

// However an endpoint says that it is to be left alone for long, it is left alone, and who
// waits hears of it.
func TestAModelThatRefusesForLongIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for header, value := range map[string]string{
		"Retry-After": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), "Retry-After-Ms": "3600000",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(header, value)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		t.Cleanup(server.Close)
		cfg := endpoint.Config{URL: server.URL, Key: "k", Name: "m"}
		for _, m := range []services.Model{openai.New(cfg), anthropic.New(cfg), responses.New(cfg)} {
			_, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"now"}`), func(string) {})
			require.EqualError(t, err, "the endpoint answered 429", "%s, %s", m.Format(), header)
		}
	}
}

// A history may hold calls of tools, which a chat itself does not offer.
func TestModelsTakeAHistoryWithTools(t *testing.T) {
	models(t, 0, func(t *testing.T, _ *modeltest.Server, m services.Model) {
		p := prompt(`{"role":"user","content":"q"}`, `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}},{"type":"tool_use","id":"d","name":"f","input":{}}]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"1"},{"type":"tool_result","tool_use_id":"d","content":"2"},{"type":"text","text":"now"}]}`)
		text, _, err := ask(t.Context(), m, p, func(string) {})
		require.NoError(t, err)
		require.Equal(t, "It is żółty indeed.", text)
	})
}

func TestAModelThatIsNotThere(t *testing.T) {
	t.Parallel()
	server := modeltest.New(t, nil)
	server.Close()
	m := openai.New(endpoint.Config{URL: server.URL + "/v1", Name: "m"})
	_, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"now"}`), func(string) {})
	require.EqualError(t, err, "the endpoint can't be reached: is TURNLEDGER_MODEL_URL right?")
}

// A refusal that passes is asked again, before a word is said.
func TestModelsAreAskedAgain(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError} {
			times := 0
			server.Script(func([]string) modeltest.Answer {
				if times++; times == 1 {
					return modeltest.Answer{Status: status}
				}
				return modeltest.Answer{Text: "yes"}
			})
			text, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"now"}`), func(string) {})
			require.NoError(t, err)
			require.Equal(t, "yes", text)
		}
	})
}

func TestModelsEndWithTheirContext(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		server.Script(always(modeltest.Answer{Text: "It is half", Stall: true}))
		ctx, cancel := context.WithCancel(t.Context())
		text, _, err := ask(ctx, m, prompt(`{"role":"user","content":"now"}`), func(string) { cancel() })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "It ", text)
	})
}

func TestEchoSaysThatItIsNoModel(t *testing.T) {
	t.Parallel()
	text, _, err := ask(t.Context(), answer.Echo{}, prompt(`{"role":"user","content":"hello"}`), func(string) {})
	require.NoError(t, err)
	require.True(t, strings.Contains(text, "no model is configured") && strings.Contains(text, "hello"))
}

// What a model says when it refuses stands apart from content in OpenAI's stream.
func TestARefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, choice := range []string{`"delta":{"role":"assistant","refusal":"I can't "}`, `"delta":{"refusal":"do that."}`, `"delta":{},"finish_reason":"stop"`} {
			_, _ = fmt.Fprintf(w, "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,%s}]}\n\n",
				choice)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	m := openai.New(endpoint.Config{URL: server.URL, Key: "k", Name: "m"})
	var pieces []string
	text, _, err := ask(t.Context(), m, prompt(`{"role":"user","content":"q"}`),
		func(s string) { pieces = append(pieces, s) })
	require.NoError(t, err)
	require.Equal(t, "I can't do that.", text)
	require.Equal(t, []string{"I can't ", "do that."}, pieces)
}
