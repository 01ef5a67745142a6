// Package modeltest is a model for tests. It answers from the prompt that it gets, and speaks the streaming protocols
// of OpenAI (chat completions and responses) and Anthropic.
package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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
	// Filtered makes the answer end as cut by a filter.
	Filtered bool
	// Thoughts come before Text, a word at a time, and Calls after it. An endpoint that speaks Responses tells each of
	// their lines as a summary of its own.
	Thoughts string
	Calls    []Call
	// Items are further items of an endpoint that speaks Responses, behind the Calls.
	Items []string
	// Malformed sends a piece that is no JSON; Cut ends the stream.
	Malformed, Cut bool
}

// Call is a call of a tool, whose arguments are sent in two pieces. More are further members that a chat endpoint sends
// with it.
type Call struct {
	ID, Name, Arguments string
	More                map[string]any
}

// UsedInput are the tokens of the prompt that each answer reports.
const UsedInput = 12

// UsedCached are those of them that came from a cache.
const UsedCached = 5

// UsedOutput are the tokens of the answer.
const UsedOutput = 7

// UsedReasoning are those of them that were reasoning.
const UsedReasoning = 3

// ModelName is the name of the model that an answer reports.
const ModelName = "model-of-the-endpoint"

// Server is the model's endpoint.
type Server struct {
	*httptest.Server
	// Asked receives each prompt, as "role: content" lines; a separate system prompt comes first.
	Asked chan []string
	// Bodies receives the bodies of the first 10,000 requests.
	Bodies chan json.RawMessage
	// Demand, if set, returns why the endpoint refuses a request with a body that its API takes; "" if it does not.
	Demand func(body json.RawMessage) string

	mu      sync.Mutex
	script  func(prompt []string) Answer
	refused []string
}

// New starts a model that ends with the test. script returns the model's answer for a prompt, whose last line is the
// current message.
func New(t testing.TB, script func(prompt []string) Answer) *Server {
	s := &Server{Asked: make(chan []string, 10_000), Bodies: make(chan json.RawMessage, 10_000), script: script}
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

// Refused returns why requests were refused whose form is not that of the API, and their bodies.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

// refuse answers as an endpoint does that does not take a request.
func (s *Server) refuse(w http.ResponseWriter, why string, body []byte) {
	s.mu.Lock()
	s.refused = append(s.refused, why+"\n"+string(body))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(object{"error": object{"type": "invalid_request_error", "message": why}})
}

type request struct {
	Stream bool
	System string
	Tools  []struct {
		Schema struct{ Type string } `json:"input_schema"`
	}
	Messages []message
	Input    []message
}

type message struct {
	Role    string
	Type    string
	Content json.RawMessage
	Output  json.RawMessage
}

// textOf returns the text of a content, also where it is its only block; other blocks and parts stay as they are.
func textOf(content json.RawMessage) string {
	text := string(content)
	var blocks []struct{ Type, Text string }
	if json.Unmarshal(content, &text) != nil && json.Unmarshal(content, &blocks) == nil && len(blocks) == 1 &&
		blocks[0].Type == "text" {
		return blocks[0].Text
	}
	return text
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var in request
	var speak protocol
	switch r.URL.Path {
	case "/v1/chat/completions":
		speak = openAI{}
	case "/v1/messages":
		speak = anthropic{}
	case "/v1/responses":
		speak = responses{}
	}
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &in) != nil || speak == nil || len(in.Messages)+len(in.Input) == 0 {
		s.refuse(w, "no request of a known API", body)
		return
	}
	select {
	case s.Bodies <- body:
	default: // nobody wants them
	}
	why := speak.refuses(in, body)
	if why == "" && s.Demand != nil {
		why = s.Demand(body)
	}
	if why != "" {
		s.refuse(w, why, body)
		return
	}
	in.Messages = append(in.Messages, in.Input...)
	var prompt []string
	if in.System != "" {
		prompt = append(prompt, "system: "+in.System)
	}
	for _, m := range in.Messages {
		if m.Role == "" {
			m.Role, m.Content = m.Type, m.Output
		}
		prompt = append(prompt, m.Role+": "+textOf(m.Content))
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
	speech := speak.begin(a)
	send(speech.events...)
	for word := range strings.SplitAfterSeq(a.Thoughts, " ") {
		if word != "" {
			send(speech.thought(word))
		}
	}
	for i, word := range strings.SplitAfter(a.Text, " ") {
		if i > 0 && !pause(r.Context(), a.Every) {
			return
		}
		if word != "" {
			send(speech.word(word))
		}
		if i == 0 && !a.goOn(r.Context(), w, speech) {
			return
		}
	}
	send(speech.end()...)
	if speak.done() != "" {
		_, _ = fmt.Fprint(w, speak.done())
	}
}

// goOn does what the answer has for the time after its first word, and reports whether the answer goes on.
func (a Answer) goOn(ctx context.Context, w http.ResponseWriter, speech speech) bool {
	hold := a.Hold
	if a.Stall {
		hold = make(chan struct{})
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return false
		}
	}
	if a.Malformed {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"choices\": [{\n\n", speech.word("").name)
	}
	return !a.Malformed && !a.Cut
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

// Scripted is a model whose answer follows from the prompt. It answers a question about children rightly only if the
// history names Donald Trump. If the last message says "fail", "slowly", "broken" or "at length", it answers in that
// way.
type Scripted struct {
	*Server
	mu sync.Mutex
	// held, if set, keeps an answer to "slowly" back after its first word until it is closed.
	held chan struct{}
}

// NewScripted starts a model that ends with the test.
func NewScripted(t testing.TB) *Scripted {
	s := &Scripted{}
	s.Server = New(t, s.answer)
	return s
}

// Hold makes answers to "slowly" wait from now on, until release is called.
func (s *Scripted) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() { close(held) }
}

func (s *Scripted) answer(prompt []string) (a Answer) {
	last, earlier := prompt[len(prompt)-1], strings.Join(prompt[:len(prompt)-1], "\n")
	a.Text = "Donald Trump is an American politician."
	switch {
	case strings.Contains(last, "children") && strings.Contains(earlier, "Donald Trump is"):
		a.Text = "Don Jr., Ivanka, Eric, Tiffany and Barron."
	case strings.Contains(last, "children"):
		a.Text = "The children of John Doe."
	}
	if strings.Contains(last, "fail") {
		a.Status = http.StatusBadRequest
	}
	if strings.Contains(last, "slowly") {
		s.mu.Lock()
		a.Hold = s.held
		s.mu.Unlock()
	}
	a.Malformed = strings.Contains(last, "broken")
	a.Long = strings.Contains(last, "at length")
	return a
}
