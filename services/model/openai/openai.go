// Package openai is a client of chat models behind an OpenAI-compatible endpoint.
package openai

import (
	"context"
	"encoding/json"
	"iter"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

// New makes a model; it does no I/O.
func New(cfg endpoint.Config) services.Model {
	caller := endpoint.NewCaller(cfg.URL, cfg.Key, 0)
	return &endpoint.Model{
		Config: cfg, Form: services.OpenAI, TooLong: TooLong,
		Open: func(ctx context.Context, p services.Prompt) iter.Seq2[json.RawMessage, error] {
			body := bodyOf(p.ModelOptions)
			body["model"], body["messages"] = cfg.Name, messagesOf(p)
			body["stream"], body["stream_options"] = true, members{"include_usage": true}
			return caller.Events(ctx, "/chat/completions", body)
		},
		Read: func(a *endpoint.Answering) endpoint.Reader { return (&reader{answer: a}).read },
	}
}

// messagesOf returns the messages of a prompt as the endpoint takes them.
func messagesOf(p services.Prompt) []json.RawMessage {
	if p.Exact {
		return p.Messages
	}
	all := message.ParseAll(p.Messages)
	for n, raw := range p.Messages {
		if p.Sent[string(raw)] {
			all[n] = all[n].AsSent()
		}
	}
	return message.Chat(all)
}

// TooLong reports whether an endpoint refused a prompt for its length: by OpenAI's code, by llama.cpp's type, or in the
// words of vLLM and others, which have no code for it.
func TooLong(r *endpoint.Refusal) bool {
	return r.Code == "context_length_exceeded" || r.Type == "exceed_context_size_error" ||
		strings.Contains(r.Message, "maximum context length")
}

// chunk is an event of an answer. An answer that is no stream has a Message where a stream has a Delta.
type chunk struct {
	Model   string
	Usage   *usage
	Error   json.RawMessage
	Choices []struct {
		Index          int
		Delta, Message *delta
		Finish         string `json:"finish_reason"`
		Error          json.RawMessage
	}
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	OfPrompt   struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	OfCompletion struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// delta is what a chunk brings. Servers call what a model thinks reasoning_content (DeepSeek, vLLM, llama.cpp) or
// reasoning (OpenRouter, Ollama).
type delta struct {
	Content          json.RawMessage
	Refusal          string
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string
	ToolCalls        []json.RawMessage `json:"tool_calls"`
	FunctionCall     json.RawMessage   `json:"function_call"`
	Annotations      []json.RawMessage
}

// reader reads an answer. calls are those that have begun.
type reader struct {
	answer *endpoint.Answering
	calls  []*call
	// cited are the annotations of the text so far.
	cited []json.RawMessage
}

// read reads an event. Of several choices only the first is read, since requests ask for only one.
func (r *reader) read(raw json.RawMessage) error {
	if string(raw) == "[DONE]" { // some servers say no more than that
		r.end("stop")
		return nil
	}
	var c chunk
	if err := endpoint.Decode(raw, &c); err != nil {
		return err
	}
	if u := c.Usage; u != nil && (u.Total > 0 || u.Prompt > 0) {
		r.answer.Use(session.Usage{
			Input: u.Prompt, Cached: u.OfPrompt.Cached, Output: u.Completion, Reasoning: u.OfCompletion.Reasoning,
		})
	}
	r.answer.Named(c.Model)
	if !message.IsNull(c.Error) {
		r.answer.Fail()
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		for _, d := range []*delta{choice.Delta, choice.Message} {
			if d != nil {
				r.add(*d)
			}
		}
		if !message.IsNull(choice.Error) {
			r.answer.Fail()
		}
		r.end(choice.Finish)
	}
	return nil
}

// end notes why the answer ended. A call without arguments has an empty object by then, which clients parse.
func (r *reader) end(reason string) {
	if reason == "" {
		return
	}
	for _, c := range r.calls {
		if c.kind == services.PartCall && strings.TrimSpace(r.answer.Text(c.key)) == "" {
			r.answer.Add(c.key, services.AnswerPart{Kind: c.kind, Text: "{}"})
		}
	}
	if len(r.cited) > 0 {
		r.answer.Annotate(r.cited)
	}
	switch known := strings.ToLower(reason); known { // some servers spell them in capitals
	case "tool_calls", "function_call":
		r.answer.End(services.FinishStop)
	case "stop", "length", "content_filter":
		r.answer.End(services.Finish(known))
	case "max_tokens", "model_length":
		r.answer.End(services.FinishLength)
	case "error", "insufficient_system_resource":
		r.answer.Fail()
	default:
		r.answer.End(services.Finish(reason))
	}
}

func (r *reader) add(d delta) {
	thought := d.ReasoningContent
	if thought == "" {
		thought = d.Reasoning
	}
	r.addOn(services.PartReasoning, thought)
	r.addContent(d.Content)
	r.addOn(services.PartRefusal, d.Refusal)
	for _, raw := range d.Annotations {
		r.cite(raw)
	}
	calls := d.ToolCalls
	if !message.IsNull(d.FunctionCall) { // the older form
		calls = append(calls, endpoint.Item(members{"function": d.FunctionCall}))
	}
	for _, raw := range calls {
		r.addCall(raw)
	}
}

func (r *reader) addOn(kind services.PartKind, text string) {
	if text != "" {
		r.answer.AddOn(services.AnswerPart{Kind: kind, Text: text})
	}
}

// addContent adds a text, or parts of one: some models send what they think among them (Mistral).
func (r *reader) addContent(raw json.RawMessage) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		r.addOn(services.PartText, text)
		return
	}
	for _, p := range (message.Item{"content": raw}).Parts("content") {
		switch p.Type() {
		case "thinking", "reasoning":
			thought := p.Text("text") + p.Text("thinking")
			for _, t := range p.Parts("thinking") {
				thought += t.Text("text")
			}
			r.addOn(services.PartReasoning, thought)
		case "refusal":
			r.addOn(services.PartRefusal, p.Text("refusal"))
		default:
			r.addOn(services.PartText, p.Text("text"))
		}
	}
}

// cite keeps an annotation of the text, such as a page that it cites, in the form of the Responses API.
func (r *reader) cite(raw json.RawMessage) {
	var a, inner map[string]json.RawMessage
	_ = json.Unmarshal(raw, &a) // another form is none
	if a == nil {
		return
	}
	if _ = json.Unmarshal(a[scalar(a["type"])], &inner); inner != nil {
		inner["type"] = a["type"]
		a = inner
	}
	r.cited = append(r.cited, endpoint.Item(a))
}
