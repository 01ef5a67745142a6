package prompttest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

type object = map[string]any

// half is a text with half a surrogate pair, which encoding/json would mend.
var half = json.RawMessage(`"cut \ud83d"`)

var (
	texts = []any{"q", "2+2?", "żółć 🙂", "", " ", half, "nul \x00", strings.Repeat("long ", 60), "[Tool call: f {}]"}
	ids   = []any{"c1", "c1", "c2", "c3", "", "call:1 ż", strings.Repeat("i", 70), "c1_2", half}
	names = []any{"f", "f", "get weather!", "", strings.Repeat("n", 80), "functions.f:0", half}
	// inputs of a call, as JSON.
	inputs = []any{"{}", `{"city":"Oslo"}`, "", "null", "[2]", "7", `{"half":"\ud83d"}`, `{"open":`,
		`{"n":12345678901234567890}`, `{"a":1,"a":2}`}
	roles = []any{
		"user", "user", "assistant", "assistant", "system", "developer", "tool", "function",
		"human", "ai", "AI", "User",
		"model", "model", "bot", "human", "user", "assistant", "narrator", "", nil, 7, half,
	}
	// odd values stand where others are expected.
	odd = func() []any {
		return []any{nil, "", " ", half, 7, true, json.RawMessage("1e400"), json.RawMessage("-0"), []any{},
			[]any{nil}, object{}, object{"type": "odd"}, []any{object{"type": nil}}, []any{[]any{[]any{}}},
			[]any{"text"}, "\x00", "null", "[]",
			json.RawMessage(`{"role":"user","role":"tool","content":"twice"}`), json.RawMessage(deep),
			[]any{object{"type": "text", "text": ""}}, strings.Repeat("9", 400)}
	}
	deep = strings.Repeat(`{"content":[`, 60) + `"deep"` + strings.Repeat("]}", 60)
)

func one[T any](rt *rapid.T, of []T) T { return of[rapid.IntRange(0, len(of)-1).Draw(rt, "of")] }

func chance(rt *rapid.T, in int) bool { return rapid.IntRange(0, in-1).Draw(rt, "chance") == in-1 }

// form is how one kind of client writes what is said, a call of a tool, and a call's result.
type form struct {
	says   func(rt *rapid.T, role any) any
	calls  func(rt *rapid.T, ids []any) []any
	result func(rt *rapid.T, id any) any
}

// parts are what a content may hold, in the forms of all vendors.
func parts(rt *rapid.T) any {
	part := func(rt *rapid.T) any {
		text := one(rt, texts)
		return one(rt, []any{
			object{"type": "text", "text": text},
			object{"type": "input_text", "text": text},
			object{"type": "output_text", "text": text, "annotations": []any{}},
			object{"type": "refusal", "refusal": text},
			object{"type": "image_url", "image_url": object{"url": one(rt, addresses), "detail": "low"}},
			object{"type": "input_image", "image_url": one(rt, addresses), "file_id": nil},
			object{"type": "image", "source": object{"type": "url", "url": one(rt, addresses)}},
			object{"type": "image", "image": one(rt, addresses), "mediaType": "image/png"},
			object{"type": "file", "file": object{"filename": text, "file_data": one(rt, addresses)}},
			object{"type": "file", "data": one(rt, addresses), "mediaType": "application/pdf", "filename": "a.pdf"},
			object{"type": "input_file", "filename": text, "file_url": one(rt, addresses)},
			object{"type": "document", "source": object{"type": "text", "media_type": "text/plain", "data": text}},
			object{"type": "input_audio", "input_audio": object{"data": "aGk=", "format": "wav"}},
			object{"type": "thinking", "thinking": text, "signature": one(rt, texts)},
			object{"type": "redacted_thinking", "data": one(rt, texts)},
			object{"type": "reasoning", "text": text},
			object{"type": "source", "sourceType": "url", "url": one(rt, addresses)},
			object{"type": "tool-approval-request", "approvalId": one(rt, ids), "toolCallId": one(rt, ids)},
			object{"type": "server_tool_use", "id": one(rt, ids), "name": "web_search", "input": object{}},
			object{"type": "web_search_tool_result", "tool_use_id": one(rt, ids), "content": []any{}},
			object{"type": "tool_use", "id": one(rt, ids), "name": one(rt, names), "input": parsed(one(rt, inputs))},
			object{"type": "tool_result", "tool_use_id": one(rt, ids), "content": text, "is_error": chance(rt, 2)},
			text,
		})
	}
	return rapid.SliceOfN(rapid.Custom(part), 0, 3).Draw(rt, "parts")
}

var addresses = []any{
	"https://i.test/p.png", "http://i.test/p", "data:image/png;base64,aGk=", "data:,", "", "ftp://x", nil, half,
}

func content(rt *rapid.T) any {
	if chance(rt, 3) {
		return parts(rt)
	}
	return one(rt, texts)
}

// parsed returns JSON as a value, where it is JSON.
func parsed(text any) any {
	if s := text.(string); json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return text
}

// chat is the form of OpenAI's chat, as servers and libraries that call themselves compatible write it.
var chat = form{
	says: func(rt *rapid.T, role any) any {
		m := object{"role": role, "content": content(rt)}
		switch rapid.IntRange(0, 9).Draw(rt, "more") {
		case 0:
			m["name"] = one(rt, names)
		case 1:
			m["tool_calls"] = one(rt, []any{nil, []any{}, object{}, []any{7}})
		case 2:
			m["content"], m["refusal"] = nil, one(rt, texts)
		case 3:
			m["reasoning_content"], m["annotations"] = one(rt, texts), []any{}
		case 4:
			m["content"], m["audio"] = nil, object{"id": "a", "transcript": one(rt, texts)}
		case 5:
			m["translated"], m["item_ids"] = one(rt, texts), []any{"x"}
		case 6:
			m["item"] = one(rt, other())
		}
		return m
	},
	calls: func(rt *rapid.T, ids []any) []any {
		calls := []any{}
		for i, id := range ids {
			f := object{"name": one(rt, names), "arguments": one(rt, inputs)}
			call := object{"id": id, "type": "function", "function": f}
			switch rapid.IntRange(0, 5).Draw(rt, "call") {
			case 0:
				f["arguments"] = parsed(one(rt, inputs))
				delete(call, "type")
			case 1:
				call["extra_content"], call["index"] = object{"google": object{"thought_signature": "s"}}, i
			case 2:
				custom := object{"name": one(rt, names), "input": one(rt, texts)}
				call = object{"id": id, "type": "custom", "custom": custom}
			}
			calls = append(calls, call)
		}
		m := object{"role": "assistant", "content": one(rt, []any{nil, "", "on it", []any{}}), "tool_calls": calls}
		switch rapid.IntRange(0, 4).Draw(rt, "calls") {
		case 0:
			m["reasoning_content"] = "hm"
		case 1:
			delete(m, "tool_calls")
			m["function_call"] = object{"name": one(rt, names), "arguments": one(rt, inputs)}
		}
		return []any{m}
	},
	result: func(rt *rapid.T, id any) any {
		if chance(rt, 6) {
			return object{"role": "function", "name": one(rt, names), "content": one(rt, texts)}
		}
		said := one(rt, []any{"1", "", nil, object{"t": 7}, parts(rt)})
		return object{"role": "tool", "tool_call_id": id, "content": said}
	},
}

var anthropic = form{
	says: chat.says,
	calls: func(rt *rapid.T, ids []any) []any {
		blocks, _ := parts(rt).([]any)
		for _, id := range ids {
			input := parsed(one(rt, inputs))
			blocks = append(blocks, object{"type": "tool_use", "id": id, "name": one(rt, names), "input": input})
		}
		return []any{object{"role": "assistant", "content": blocks}}
	},
	result: func(rt *rapid.T, id any) any {
		block := object{"type": "tool_result", "tool_use_id": id, "content": content(rt), "is_error": chance(rt, 3)}
		rest, _ := parts(rt).([]any)
		return object{"role": one(rt, []any{"user", "user", "tool"}), "content": append([]any{block}, rest...)}
	},
}

// modelMessages is the form of the AI SDK's messages for models, and uiMessages that of those for users.
var modelMessages = form{
	says: chat.says,
	calls: func(rt *rapid.T, ids []any) []any {
		blocks := []any{
			object{"type": "reasoning", "text": one(rt, texts)}, object{"type": "text", "text": one(rt, texts)},
		}
		for _, id := range ids {
			input := parsed(one(rt, inputs))
			call := object{"type": "tool-call", "toolCallId": id, "toolName": one(rt, names), "input": input}
			if blocks = append(blocks, call); chance(rt, 5) {
				blocks = append(blocks, aiResult(rt, id), object{"type": "text", "text": "found"})
			}
		}
		return []any{object{"role": "assistant", "content": blocks}}
	},
	result: func(rt *rapid.T, id any) any { return object{"role": "tool", "content": []any{aiResult(rt, id)}} },
}

func aiResult(rt *rapid.T, id any) any {
	kind := one(rt, []any{"text", "json", "error-text", "error-json", "content", "execution-denied"})
	value := one(rt, []any{"1", object{"t": 7}, nil, []any{object{"type": "text", "text": one(rt, texts)}}, parts(rt)})
	result := object{"type": "tool-result", "toolCallId": id, "toolName": one(rt, names)}
	if chance(rt, 4) { // of its version 4
		result["result"], result["isError"] = value, chance(rt, 2)
	} else {
		result["output"] = object{"type": kind, "value": value}
	}
	return result
}

var uiMessages = form{
	says: func(rt *rapid.T, role any) any {
		text := one(rt, texts)
		return object{"id": "m", "role": role, "content": one(rt, []any{text, "", nil}), "parts": []any{
			object{"type": "step-start"}, object{"type": "text", "text": text, "state": "done"},
			object{"type": "file", "mediaType": "image/png", "url": one(rt, addresses)},
		}}
	},
	calls: func(rt *rapid.T, ids []any) []any {
		tools := []any{}
		for _, id := range ids {
			tools = append(tools, object{
				"type": "tool-f", "toolCallId": id, "input": object{}, "output": one(rt, texts),
				"state": one(rt, []any{"input-available", "output-available", "output-error"}),
			})
		}
		return []any{object{"role": "assistant", "parts": tools}}
	},
	result: modelMessages.result,
}

// items is the form of OpenAI's Responses API.
var items = form{
	says: func(rt *rapid.T, role any) any {
		if chance(rt, 6) {
			return one(rt, other())
		}
		m := object{"role": role, "content": content(rt)}
		switch rapid.IntRange(0, 3).Draw(rt, "item") {
		case 0:
			m["type"], m["status"], m["id"] = "message", "completed", one(rt, ids)
		case 1:
			m["type"], m["phase"] = "message", "commentary"
		}
		return m
	},
	calls: func(rt *rapid.T, ids []any) (calls []any) {
		if chance(rt, 3) {
			calls = append(calls, object{"type": "reasoning", "id": one(rt, ids), "summary": []any{},
				"encrypted_content": one(rt, []any{nil, "sealed", "anthropic.signature:s", "anthropic.redacted:d"}),
				"content":           []any{object{"type": "reasoning_text", "text": one(rt, texts)}}})
		}
		for _, id := range ids {
			if chance(rt, 5) {
				calls = append(calls, object{
					"type": "custom_tool_call", "call_id": id, "name": one(rt, names), "input": one(rt, texts),
				})
				continue
			}
			calls = append(calls, object{"type": "function_call", "call_id": id, "name": one(rt, names),
				"arguments": one(rt, inputs), "status": "completed"})
		}
		return calls
	},
	result: func(rt *rapid.T, id any) any {
		kind := one(rt, []any{"function_call_output", "function_call_output", "custom_tool_call_output"})
		return object{"type": kind, "call_id": id, "output": content(rt)}
	},
}

// other are items that are neither messages nor calls of functions, and results.
func other() []any {
	return []any{
		object{"type": "web_search_call", "id": "ws_1", "status": "completed",
			"action": object{"type": "search", "query": "q"}},
		object{"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "server_label": "s", "arguments": "{}"},
		object{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true},
		object{"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []any{}},
		object{"type": "reasoning", "id": "rs_1", "summary": []any{}, "encrypted_content": "sealed"},
		object{"type": "reasoning", "summary": []any{object{"type": "summary_text", "text": "hm"}}},
		object{"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"},
		object{"type": "item_reference", "id": "msg_none"},
		object{"type": "tomorrow", "id": "x", "content": "new"},
		object{"type": "message"},
	}
}

// draw draws a list of a form.
func draw(rt *rapid.T, forms []form, length int) (out []any) {
	f := one(rt, forms)
	for range rapid.IntRange(1, length).Draw(rt, "steps") {
		if chance(rt, 8) { // a client of another kind goes on
			f = one(rt, forms)
		}
		switch rapid.IntRange(0, 5).Draw(rt, "step") {
		case 0, 1:
			out = append(out, f.says(rt, "user"))
		case 2:
			out = append(out, f.says(rt, "assistant"))
		case 3:
			out = append(out, f.says(rt, one(rt, roles)))
		case 4:
			out = append(out, f.result(rt, one(rt, ids)))
		default:
			called := rapid.SliceOfN(rapid.SampledFrom(ids), 1, 3).Draw(rt, "calls")
			out = append(out, f.calls(rt, called)...)
			for range rapid.IntRange(0, 4).Draw(rt, "results") {
				if chance(rt, 8) {
					out = append(out, f.says(rt, one(rt, roles)))
				}
				out = append(out, f.result(rt, one(rt, called)))
			}
		}
	}
	for range one(rt, []int{0, 0, 1, 1, 2}) {
		bend(rt, &out)
	}
	return out
}

// bend changes one value somewhere in a list: it is lost, or another stands in its place, or it stands twice.
func bend(rt *rapid.T, list *[]any) {
	var places []func(v any, keep bool)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				places = append(places, func(other any, keep bool) {
					if v[name] = other; !keep {
						delete(v, name)
					}
				})
				walk(v[name])
			}
		case []any:
			for i := range v {
				places = append(places, func(other any, _ bool) { v[i] = other })
				walk(v[i])
			}
		}
	}
	walk(*list)
	if len(places) == 0 || chance(rt, 6) {
		*list = append(*list, *list...)
		return
	}
	one(rt, places)(one(rt, odd()), !chance(rt, 3))
}

func raws(list []any) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, v := range list {
		out[i], _ = json.Marshal(v) // made of JSON
	}
	return out
}

// DrawMessages draws up to about length messages of the forms that clients and pipelines send, after the vendors'
// schemas and then bent.
func DrawMessages(rt *rapid.T, length int) []json.RawMessage {
	forms := []form{chat, chat, chat, anthropic, anthropic, modelMessages, modelMessages, uiMessages, items}
	return raws(draw(rt, forms, length))
}

// DrawItems draws items of OpenAI's Responses API; some are messages of other forms.
func DrawItems(rt *rapid.T, length int) []json.RawMessage {
	return raws(draw(rt, []form{items, items, items, items, chat, anthropic}, length))
}
