package respond

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/problems"
)

// Response is a response as clients see it: its members by their names.
type Response map[string]any

// Incomplete reports whether the answer was cut short.
func (r Response) Incomplete() bool { return r["status"] == statusIncomplete }

// defaults are what a response says of what the request left out.
var defaults = services.Settings{
	frequencyPenalty: json.RawMessage(`0`), presencePenalty: json.RawMessage(`0`),
	"instructions": json.RawMessage(`null`), "max_output_tokens": json.RawMessage(`null`),
	"max_tool_calls": json.RawMessage(`null`), "metadata": json.RawMessage(`{}`),
	"parallel_tool_calls": json.RawMessage(`true`), "prompt_cache_key": json.RawMessage(`null`),
	"reasoning": json.RawMessage(`{"effort":null,"summary":null}`), "safety_identifier": json.RawMessage(`null`),
	"service_tier": json.RawMessage(`"default"`), "temperature": json.RawMessage(`1.0`),
	"text":        json.RawMessage(`{"format":{"type":"text"},"verbosity":"medium"}`),
	"tool_choice": json.RawMessage(`"auto"`), "tools": json.RawMessage(`[]`), "top_logprobs": json.RawMessage(`0`),
	"top_p": json.RawMessage(`1.0`), "truncation": json.RawMessage(`"disabled"`), "user": json.RawMessage(`null`),
}

// Form returns a response as it is, with what is to be shown of its items.
func Form(a services.Answered, with message.Includes) Response {
	r := Response{
		"id": a.ResponseID, "object": "response", "created_at": a.CreatedAt.Unix(), "completed_at": nil,
		"status": statusRunning, "background": false, "error": nil, "incomplete_details": nil, "model": a.Model,
		"output": []message.Item{}, "previous_response_id": nil, "store": a.Stored, "usage": nil,
	}
	for name, value := range defaults {
		r[name] = value
	}
	for name, value := range a.Settings {
		r[name] = normal(name, value)
	}
	if a.Conversation != "" {
		r["conversation"] = map[string]string{"id": a.Conversation}
	}
	if a.Previous != "" {
		r["previous_response_id"] = a.Previous
	}
	switch {
	case a.Err != nil:
		r["status"], r["error"] = statusFailed, failure(a.Err)
	case a.Queued:
		r["status"] = statusQueued
	case !a.Running:
		r.answered(a, with)
	}
	return r
}

// normal completes a setting with the members that a response must have.
func normal(name string, value json.RawMessage) json.RawMessage {
	switch name {
	case "service_tier":
		if string(value) == `"auto"` {
			return defaults[name]
		}
	case "reasoning", "text":
		var whole, given map[string]json.RawMessage
		_ = json.Unmarshal(defaults[name], &whole) // a constant
		_ = json.Unmarshal(value, &given)          // the request was checked
		for k, v := range given {
			if k == "format" && message.IsNull(v) {
				continue
			}
			if whole[k] = v; k == "format" {
				whole[k] = completed(v, map[string]any{"strict": false}, "json_schema")
			}
		}
		return encode(whole)
	case "tools":
		var list []json.RawMessage
		_ = json.Unmarshal(value, &list) // the request was checked
		for i, raw := range list {
			lacks := map[string]any{"description": nil, "parameters": nil, "strict": nil}
			list[i] = completed(raw, lacks, services.ToolFunction)
		}
		return encode(list)
	}
	return value
}

// completed adds to an object of a type the members that it lacks, or that are null.
func completed(raw json.RawMessage, lacks map[string]any, kind string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || string(m["type"]) != `"`+kind+`"` {
		return raw
	}
	for name, value := range lacks {
		if message.IsNull(m[name]) {
			m[name] = encode(value)
		}
	}
	return encode(m)
}

// answered adds the answer.
func (r Response) answered(a services.Answered, with message.Includes) {
	r["status"], r["completed_at"], r["usage"] = statusDone, a.At.Unix(), usageJSON(a.Usage)
	incomplete := func(details any) {
		r["status"], r["completed_at"], r["incomplete_details"] = statusIncomplete, nil, details
	}
	switch a.Finish {
	case services.FinishLength:
		incomplete(map[string]string{"reason": "max_output_tokens"})
	case services.FinishFiltered:
		incomplete(map[string]string{"reason": "content_filter"})
	case services.FinishInterrupted: // the official document has no reason for it
		incomplete(nil)
	case services.FinishStopped:
		r["status"], r["completed_at"] = statusCancelled, nil
	case services.FinishStop:
	}
	if a.Output != nil {
		r["output"] = Shown(a.Output, with)
	}
}

// Shown returns what is to be shown of items.
func Shown(all []message.Item, with message.Includes) []message.Item {
	out := make([]message.Item, len(all))
	for n, i := range all {
		out[n] = i.Shown(with)
	}
	return out
}

// ModelFailed reports whether an error is the model's.
func ModelFailed(err error) bool {
	return errors.Is(err, services.ErrModelFailed) || errors.Is(err, services.ErrPromptTooLong)
}

// failure says why a response has no answer.
func failure(err error) map[string]string {
	code, message := "server_error", "The model failed. The input is kept: send the request again."
	if errors.Is(err, services.ErrPromptTooLong) { // the official document has no closer code for a response
		code, message = "invalid_prompt", ErrTooLong.Detail
	}
	if refused, ok := errors.AsType[*services.ModelRefusal](err); ok {
		code = "server_error"
		if problems.Of(err).Class == problems.ModelBusy {
			code = "rate_limit_exceeded"
		}
		message = fmt.Sprintf("The model failed: its endpoint answered %d. The input is kept.", refused.Status)
	}
	return map[string]string{"code": code, "message": message}
}

func usageJSON(u session.Usage) any {
	return map[string]any{
		"input_tokens": u.Input, "output_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"input_tokens_details":  map[string]int64{"cached_tokens": u.Cached, "cache_write_tokens": 0},
		"output_tokens_details": map[string]int64{"reasoning_tokens": u.Reasoning},
	}
}

// CompactionForm returns a compaction as clients see it.
func CompactionForm(c services.Compaction) any {
	return map[string]any{
		"id": c.ResponseID, "object": "response.compaction", "created_at": c.CreatedAt.Unix(),
		"output": []message.Item{message.NewCompaction(c.ID, c.Content)}, "usage": usageJSON(c.Usage),
	}
}
