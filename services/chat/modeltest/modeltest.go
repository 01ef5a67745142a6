// Package modeltest is a model for tests. It answers from the prompt that it gets, and speaks the streaming protocols
// of OpenAI and Anthropic.
package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Answer of a model. The fields besides Text take effect after the first word of Text.
type Answer struct {
	Text string
	// Every is the time between two words.
	Every time.Duration
	// Status above 0 is sent in place of an answer, with a header that asks for a retry after RetryAfter seconds.
	Status, RetryAfter int
	// Hold keeps back the rest until it is closed; Stall keeps it back for ever.
	Hold  <-chan struct{}
	Stall bool
	// Long makes the answer end as cut by the limit of tokens.
	Long bool
	// Malformed sends a piece that is no JSON; Cut ends the stream.
	Malformed, Cut bool
}

// Server is the model's endpoint.
type Server struct {
	*httptest.Server
	// Asked receives each prompt, as "role: content" lines; a separate system prompt comes first.
	Asked chan []string

	mu     sync.Mutex
	script func(prompt []string) Answer
}

// New starts a model that ends with the test. script returns the model's answer for a prompt, whose last line is the
// current message.
func New(t testing.TB, script func(prompt []string) Answer) *Server {
	s := &Server{Asked: make(chan []string, 10_000), script: script}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Script replaces the function that answers.
func (s *Server) Script(script func(prompt []string) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

type request struct {
	Stream bool
	System string
	Tools  []struct {
		Schema struct{ Type string } `json:"input_schema"`
	}
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var in request
	var speak protocol
	switch r.URL.Path {
	case "/v1/chat/completions":
		speak = openAI{}
	case "/v1/messages":
		speak = anthropic{}
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || speak == nil || len(in.Messages) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !speak.takes(in) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var prompt []string
	if in.System != "" {
		prompt = append(prompt, "system: "+in.System)
	}
	for _, m := range in.Messages {
		text := string(m.Content)
		_ = json.Unmarshal(m.Content, &text) // parts stay as they are
		prompt = append(prompt, m.Role+": "+text)
	}
	s.Asked <- prompt
	s.mu.Lock()
	script := s.script
	s.mu.Unlock()
	answer := script(prompt)
	switch {
	case answer.Status > 0:
		w.Header().Set("Retry-After", strconv.Itoa(answer.RetryAfter))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Status)
		_ = json.NewEncoder(w).Encode(object{"error": object{"type": "refused", "message": "what was said: " +
			prompt[len(prompt)-1]}})
	case !in.Stream:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(speak.whole(answer.Text))
	default:
		stream(w, r, speak, answer)
	}
}

func stream(w http.ResponseWriter, r *http.Request, speak protocol, a Answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(events ...event) {
		for _, e := range events {
			raw, _ := json.Marshal(e.data)
			if e.name != "" {
				_, _ = fmt.Fprintf(w, "event: %s\n", e.name)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", raw)
		}
		_ = http.NewResponseController(w).Flush()
	}
	send(speak.begin()...)
	for i, word := range strings.SplitAfter(a.Text, " ") {
		if i > 0 && !pause(r.Context(), a.Every) {
			return
		}
		send(speak.piece(word))
		if i > 0 {
			continue
		}
		hold := a.Hold
		if a.Stall {
			hold = make(chan struct{})
		}
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		if a.Malformed {
			name := speak.piece("").name
			_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"choices\": [{\n\n", name)
			return
		}
		if a.Cut {
			return
		}
	}
	send(speak.end(a.Long)...)
	if speak.done() != "" {
		_, _ = fmt.Fprint(w, speak.done())
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

type event struct {
	name string
	data any
}

// protocol is a vendor's form of requests and streams.
type protocol interface {
	takes(r request) bool
	whole(text string) any
	begin() []event
	piece(text string) event
	end(long bool) []event
	done() string
}

type openAI struct{}

type object = map[string]any

func (openAI) takes(request) bool { return true }

func (openAI) whole(text string) any {
	return object{"choices": []any{object{"index": 0, "message": object{"role": "assistant", "content": text},
		"finish_reason": "stop"}}}
}

func (openAI) begin() []event {
	return []event{{"", object{"choices": []any{object{"index": 0, "delta": object{"role": "assistant"},
		"finish_reason": nil}}}}}
}

func (openAI) piece(text string) event {
	return event{"", object{"choices": []any{object{"index": 0, "delta": object{"content": text},
		"finish_reason": nil}}}}
}

func (openAI) end(long bool) []event {
	why := "stop"
	if long {
		why = "length"
	}
	return []event{
		{"", object{"choices": []any{object{"index": 0, "delta": object{}, "finish_reason": why}}}},
		{"", object{"choices": []any{}, "usage": object{"total_tokens": 1}}},
	}
}

func (openAI) done() string { return "data: [DONE]\n\n" }

type anthropic struct{}

// takes refuses tools without a schema, and tool calls in a request that defines no tools, as the API does.
func (anthropic) takes(r request) bool {
	for _, tool := range r.Tools {
		if tool.Schema.Type != "object" {
			return false
		}
	}
	for _, m := range r.Messages {
		if len(r.Tools) == 0 && strings.Contains(string(m.Content), `"type":"tool_use"`) {
			return false
		}
	}
	return true
}

func (anthropic) whole(text string) any {
	return object{"type": "message", "role": "assistant", "content": []any{object{"type": "text", "text": text}},
		"stop_reason": "end_turn"}
}

func (anthropic) begin() []event {
	return []event{
		{"message_start", object{"type": "message_start", "message": object{"id": "m", "type": "message",
			"role": "assistant", "content": []any{}, "usage": object{"input_tokens": 1, "output_tokens": 1}}}},
		{"content_block_start", object{"type": "content_block_start", "index": 0,
			"content_block": object{"type": "text", "text": ""}}},
		{"ping", object{"type": "ping"}},
	}
}

func (anthropic) piece(text string) event {
	return event{"content_block_delta", object{"type": "content_block_delta", "index": 0,
		"delta": object{"type": "text_delta", "text": text}}}
}

func (anthropic) end(long bool) []event {
	why := "end_turn"
	if long {
		why = "max_tokens"
	}
	return []event{
		{"content_block_stop", object{"type": "content_block_stop", "index": 0}},
		{"message_delta", object{"type": "message_delta", "delta": object{"stop_reason": why},
			"usage": object{"output_tokens": 1}}},
		{"message_stop", object{"type": "message_stop"}},
	}
}

func (anthropic) done() string { return "" }
