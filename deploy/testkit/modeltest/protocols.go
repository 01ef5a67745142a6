package modeltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
)

type event struct {
	name string
	data any
}

// protocol is a vendor's form of requests and streams.
type protocol interface {
	// refuses returns why the API refuses a request, or "".
	refuses(r request, body []byte) string
	whole(text string) any
	begin(a Answer) speech
	done() string
}

// speech is a vendor's stream for one answer: the events of its beginning, of a word of its thoughts and of its text,
// and of its end, which has its calls.
type speech struct {
	events        []event
	thought, word func(string) event
	end           func() []event
}

type object = map[string]any

type openAI struct{}

// problems returns problems in words.
func problems(list []prompttest.Problem) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprint(list)
}

// rawsOf returns the members of a list in a body.
func rawsOf(body []byte, name string) (raws []json.RawMessage) {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(body, &all)       // it was read before
	_ = json.Unmarshal(all[name], &raws) // another form has no elements
	return raws
}

func (openAI) refuses(_ request, body []byte) string {
	return problems(prompttest.Chat(rawsOf(body, "messages")))
}

func (openAI) whole(text string) any {
	return object{"choices": []any{object{"index": 0, "message": object{"role": "assistant", "content": text},
		"finish_reason": "stop"}}}
}

func (openAI) begin(a Answer) speech {
	delta := func(d object, why any) event {
		choices := []any{object{"index": 0, "delta": d, "finish_reason": why}}
		return event{"", object{"model": ModelName, "choices": choices}}
	}
	return speech{
		events:  []event{delta(object{"role": "assistant"}, nil)},
		thought: func(word string) event { return delta(object{"reasoning_content": word}, nil) },
		word:    func(word string) event { return delta(object{"content": word}, nil) },
		end: func() (out []event) {
			why := "stop"
			for i, c := range a.Calls {
				why = "tool_calls"
				half := len(c.Arguments) / 2
				for n, piece := range []string{"", c.Arguments[:half], c.Arguments[half:]} {
					call := object{"index": i, "function": object{"arguments": piece}}
					if n == 0 {
						call = object{"index": i, "id": c.ID, "type": "function",
							"function": object{"name": c.Name, "arguments": ""}}
						maps.Copy(call, c.More)
					}
					out = append(out, delta(object{"tool_calls": []any{call}}, nil))
				}
			}
			if a.Long {
				why = "length"
			}
			if a.Filtered {
				why = "content_filter"
			}
			return append(out, delta(object{}, why), event{"", object{"choices": []any{}, "usage": object{
				"prompt_tokens": UsedInput, "completion_tokens": UsedOutput, "total_tokens": UsedInput + UsedOutput,
				"prompt_tokens_details":     object{"cached_tokens": UsedCached},
				"completion_tokens_details": object{"reasoning_tokens": UsedReasoning}}}})
		},
	}
}

func (openAI) done() string { return "data: [DONE]\n\n" }

type anthropic struct{}

func (anthropic) refuses(r request, body []byte) string {
	for _, tool := range r.Tools {
		if tool.Schema.Type != "object" {
			return "a tool without a schema"
		}
	}
	for _, m := range r.Messages {
		if len(r.Tools) == 0 && strings.Contains(string(m.Content), `"type":"tool_use"`) {
			return "a tool_use without tools"
		}
	}
	return problems(prompttest.Anthropic(rawsOf(body, "messages")))
}

func (anthropic) whole(text string) any {
	return object{"type": "message", "role": "assistant", "content": []any{object{"type": "text", "text": text}},
		"stop_reason": "end_turn"}
}

func blockStart(index int, block object) event {
	return event{"content_block_start", object{"type": "content_block_start", "index": index, "content_block": block}}
}

func blockDelta(index int, delta object) event {
	return event{"content_block_delta", object{"type": "content_block_delta", "index": index, "delta": delta}}
}

func blockStop(index int) event {
	return event{"content_block_stop", object{"type": "content_block_stop", "index": index}}
}

// begin opens the text's block at once, and before it that of the thoughts if there are any. A real endpoint closes the
// one before it opens the other.
func (anthropic) begin(a Answer) speech {
	text := 0
	out := speech{events: []event{{"message_start", object{"type": "message_start", "message": object{
		"id": "m", "type": "message", "role": "assistant", "model": ModelName, "content": []any{},
		"usage": object{"input_tokens": UsedInput - UsedCached, "cache_read_input_tokens": UsedCached,
			"output_tokens": 1}}}}}}
	if a.Thoughts != "" {
		text = 1
		out.events = append(out.events, blockStart(0, object{"type": "thinking", "thinking": "", "signature": ""}))
	}
	out.events = append(out.events, blockStart(text, object{"type": "text", "text": ""}),
		event{"ping", object{"type": "ping"}})
	out.thought = func(word string) event { return blockDelta(0, object{"type": "thinking_delta", "thinking": word}) }
	out.word = func(word string) event { return blockDelta(text, object{"type": "text_delta", "text": word}) }
	out.end = func() (out []event) {
		if a.Thoughts != "" {
			out = append(out, blockDelta(0, object{"type": "signature_delta", "signature": "signed"}), blockStop(0))
		}
		out = append(out, blockStop(text))
		why := "end_turn"
		for i, c := range a.Calls {
			why = "tool_use"
			out = append(out, blockStart(text+1+i, object{"type": "tool_use", "id": c.ID, "name": c.Name,
				"input": object{}}))
			half := len(c.Arguments) / 2
			for _, piece := range []string{"", c.Arguments[:half], c.Arguments[half:]} {
				out = append(out, blockDelta(text+1+i, object{"type": "input_json_delta", "partial_json": piece}))
			}
			out = append(out, blockStop(text+1+i))
		}
		if a.Long {
			why = "max_tokens"
		}
		if a.Filtered {
			why = "refusal"
		}
		return append(out, event{"message_delta", object{"type": "message_delta", "delta": object{"stop_reason": why},
			"usage": object{"output_tokens": UsedOutput,
				"output_tokens_details": object{"thinking_tokens": UsedReasoning}}}},
			event{"message_stop", object{"type": "message_stop"}})
	}
	return out
}

func (anthropic) done() string { return "" }

type responses struct{}

func (responses) refuses(_ request, body []byte) string {
	return problems(prompttest.Responses(rawsOf(body, "input")))
}

func (responses) whole(string) any { return object{} }

func named(kind string, more object) event {
	more["type"] = kind
	return event{kind, more}
}

// reasoningItem is what the endpoint tells of thoughts; the encrypted content is what it needs to see again.
func reasoningItem(thoughts string) object {
	summary := []any{}
	for line := range strings.SplitSeq(thoughts, "\n") {
		summary = append(summary, object{"type": "summary_text", "text": line})
	}
	return object{"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed", "summary": summary}
}

func (responses) begin(a Answer) speech {
	text, calls := 0, 1
	out := speech{events: []event{
		named("response.created", object{"response": object{"id": "r", "model": ModelName}}),
	}}
	if a.Thoughts != "" {
		text, calls = 1, 2
		out.events = append(out.events, named("response.output_item.added",
			object{"output_index": 0, "item": reasoningItem("")}))
	}
	message := func(content ...any) object {
		return object{"type": "message", "id": "msg_1", "role": "assistant", "phase": "final_answer",
			"content": content}
	}
	line := 0
	out.thought = func(word string) event {
		if word[0] == '\n' {
			line++
		}
		return named("response.reasoning_summary_text.delta",
			object{"output_index": 0, "item_id": "rs_1", "summary_index": line, "delta": strings.Trim(word, "\n")})
	}
	out.word = func(word string) event {
		return named("response.output_text.delta",
			object{"output_index": text, "item_id": "msg_1", "content_index": 0, "delta": word})
	}
	out.end = func() (out []event) {
		if a.Thoughts != "" {
			out = append(out, named("response.output_item.done",
				object{"output_index": 0, "item": reasoningItem(a.Thoughts)}))
		}
		if a.Text != "" {
			part := object{"type": "output_text", "text": a.Text, "annotations": []any{}}
			out = append(out, named("response.output_item.done",
				object{"output_index": text, "item": message(part)}))
		}
		for i, c := range a.Calls {
			out = append(out, callEvents(calls+i, c)...)
		}
		for i, raw := range a.Items {
			for _, kind := range []string{"response.output_item.added", "response.output_item.done"} {
				out = append(out, named(kind,
					object{"output_index": calls + len(a.Calls) + i, "item": json.RawMessage(raw)}))
			}
		}
		end := object{"id": "r", "model": ModelName, "usage": object{
			"input_tokens": UsedInput, "output_tokens": UsedOutput, "total_tokens": UsedInput + UsedOutput,
			"input_tokens_details":  object{"cached_tokens": UsedCached},
			"output_tokens_details": object{"reasoning_tokens": UsedReasoning}}}
		if a.Long || a.Filtered {
			why := "max_output_tokens"
			if a.Filtered {
				why = "content_filter"
			}
			end["incomplete_details"] = object{"reason": why}
			return append(out, named("response.incomplete", object{"response": end}))
		}
		return append(out, named("response.completed", object{"response": end}))
	}
	return out
}

func callEvents(index int, c Call) []event {
	item := func(arguments string) object {
		return object{"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID, "name": c.Name,
			"arguments": arguments, "namespace": "tools", "caller": object{"type": "direct"}}
	}
	half := len(c.Arguments) / 2
	out := []event{named("response.output_item.added", object{"output_index": index, "item": item("")})}
	for _, piece := range []string{c.Arguments[:half], c.Arguments[half:]} {
		out = append(out, named("response.function_call_arguments.delta",
			object{"output_index": index, "item_id": "fc_" + c.ID, "delta": piece}))
	}
	return append(out, named("response.output_item.done", object{"output_index": index, "item": item(c.Arguments)}))
}

func (responses) done() string { return "" }
