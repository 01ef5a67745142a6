// Package anthropic is a client of chat models behind Anthropic's messages API.
package anthropic

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

// version of the API that requests name.
const version = "2023-06-01"

// New makes a model; it does no I/O. The URL may omit the API's version.
func New(cfg endpoint.Config) services.Model {
	caller := endpoint.NewCaller(strings.TrimSuffix(strings.TrimRight(cfg.URL, "/"), "/v1")+"/v1", "", 0)
	caller.Header.Set("Anthropic-Version", version)
	if cfg.Key != "" {
		caller.Header.Set("X-Api-Key", cfg.Key)
	}
	return &endpoint.Model{
		Config: cfg, Form: services.Anthropic, TooLong: tooLong,
		Open: func(ctx context.Context, p services.Prompt) iter.Seq2[json.RawMessage, error] {
			return caller.Events(ctx, "/messages", requestOf(cfg.Name, p))
		},
		Read: endpoint.EachEvent((*event).read),
	}
}

// tooLong reports whether the API refused a prompt for its length. It has no code for that, only words.
func tooLong(r *endpoint.Refusal) bool { return strings.Contains(r.Message, "prompt is too long") }

// event is an event of an answer.
type event struct {
	Type    string
	Index   int64
	Message struct {
		Model string
		Usage usage
	}
	Block struct {
		Type, ID, Name, Data string
	} `json:"content_block"`
	Delta struct {
		Type, Text, Thinking, Signature string
		PartialJSON                     string `json:"partial_json"`
		StopReason                      string `json:"stop_reason"`
	}
	Usage usage
}

// usage counts apart what the API read from its cache or wrote into it, which is part of the input, too.
type usage struct {
	Input    int64 `json:"input_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Written  int64 `json:"cache_creation_input_tokens"`
	Output   int64 `json:"output_tokens"`
	OfOutput struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (u usage) counted() session.Usage {
	return session.Usage{
		Input: u.Input + u.Read + u.Written, Cached: u.Read, Output: u.Output, Reasoning: u.OfOutput.Thinking,
	}
}

func (e *event) key() string { return strconv.FormatInt(e.Index, 10) }

func (e *event) read(a *endpoint.Answering) {
	switch e.Type {
	case "message_start":
		a.Named(e.Message.Model)
		a.Use(e.Message.Usage.counted())
	case "content_block_start":
		e.readBlock(a)
	case "content_block_delta":
		e.readDelta(a)
	case "content_block_stop":
		readBlockEnd(e.key(), a)
	case "message_delta":
		e.readEnd(a)
	case "message_stop":
		a.End(services.FinishStop)
	case "error":
		a.Fail()
	}
}

func (e *event) readBlock(a *endpoint.Answering) {
	switch b := e.Block; b.Type {
	case "tool_use":
		kind := services.PartCall
		custom := func(t services.ModelTool) bool { return t.Kind == services.ToolCustom && t.Name == b.Name }
		if slices.ContainsFunc(a.Options.Tools, custom) {
			kind = services.PartCustomCall
		}
		a.Add(e.key(), services.AnswerPart{Kind: kind, CallID: b.ID, Name: b.Name})
	case "redacted_thinking":
		item := thought("", message.HiddenThought, b.Data)
		a.Add(e.key(), services.AnswerPart{Kind: services.PartReasoning, Item: item})
	}
}

// thought returns a block of thinking as an item, so that the API gets it back where it asks for it.
func thought(text, form, secret string) json.RawMessage {
	item := members{"type": "reasoning", "summary": []any{}, "encrypted_content": form + secret}
	if text != "" {
		item["content"] = []any{members{"type": "reasoning_text", "text": text}}
	}
	return endpoint.Item(item)
}

func (e *event) readDelta(a *endpoint.Answering) {
	key := e.key()
	switch d := e.Delta; d.Type {
	case "text_delta":
		if d.Text != "" {
			a.Add(key, services.AnswerPart{Kind: services.PartText, Text: d.Text})
		}
	case "thinking_delta":
		a.Add(key, services.AnswerPart{Kind: services.PartReasoning, Text: d.Thinking})
	case "signature_delta":
		item := thought(a.Text(key), message.SignedThought, d.Signature)
		a.Add(key, services.AnswerPart{Kind: services.PartReasoning, Item: item})
	case "input_json_delta":
		if a.Kind(key) == services.PartCustomCall {
			a.Hold(key, d.PartialJSON)
			return
		}
		a.Add(key, services.AnswerPart{Kind: services.PartCall, Text: d.PartialJSON})
	}
}

// readBlockEnd adds what is known only at the end of a block: the input of a custom tool, which is the argument of
// the tool that the API got in its place, and that a function has no arguments.
func readBlockEnd(key string, a *endpoint.Answering) {
	switch kind := a.Kind(key); {
	case kind == services.PartCustomCall:
		var arguments struct{ Input string }
		raw := a.Hold(key, "")
		if json.Unmarshal([]byte(raw), &arguments) != nil {
			arguments.Input = raw
		}
		a.Add(key, services.AnswerPart{Kind: kind, Text: arguments.Input})
	case kind == services.PartCall && a.Text(key) == "":
		a.Add(key, services.AnswerPart{Kind: kind, Text: "{}"})
	}
}

func (e *event) readEnd(a *endpoint.Answering) {
	used, now := a.Used(), e.Usage.counted()
	if e.Usage.Input > 0 { // older servers tell it at the start only
		used = now
	}
	used.Output, used.Reasoning = now.Output, now.Reasoning
	a.Use(used)
	switch e.Delta.StopReason {
	case "max_tokens", "model_context_window_exceeded":
		a.End(services.FinishLength)
	case "refusal":
		a.End(services.FinishFiltered)
	}
}
