package respond

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/problems"
)

// Response is a response as clients see it: its members by their names.
type Response map[string]any

// Incomplete reports whether the answer was cut short.
func (r Response) Incomplete() bool { return r["status"] == statusIncomplete }

// Outline is what a response says beside its output.
type Outline struct {
	ID, Model string
	CreatedAt time.Time
	// Conversation is the id of the conversation that the request named, and Previous that of the response.
	Conversation, Previous string
	Store                  bool
	Settings               Settings
}

// defaults are what a response says of what the request left out.
var defaults = Settings{
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

// running returns the response while it has no answer, and so no usage.
func (o Outline) running() Response {
	r := Response{
		"id": o.ID, "object": "response", "created_at": o.CreatedAt.Unix(), "completed_at": nil,
		"status": statusRunning, "background": false, "error": nil, "incomplete_details": nil, "model": o.Model,
		"output": []message.Item{}, "previous_response_id": nil, "store": o.Store, "usage": nil,
	}
	for name, value := range defaults {
		r[name] = value
	}
	for name, value := range o.Settings {
		r[name] = normal(name, value)
	}
	if o.Conversation != "" {
		r["conversation"] = map[string]string{"id": o.Conversation}
	}
	if o.Previous != "" {
		r["previous_response_id"] = o.Previous
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

// ended is how an answer of a response ended.
type ended struct {
	at     time.Time
	finish services.Finish
	usage  conversation.Usage
	output []message.Item
}

// answered returns the response with its answer.
func (o Outline) answered(e ended) Response {
	r := o.running()
	r["status"], r["completed_at"] = statusDone, e.at.Unix()
	switch e.finish {
	case services.FinishLength:
		r["status"], r["incomplete_details"] = statusIncomplete, map[string]string{"reason": "max_output_tokens"}
	case services.FinishFiltered:
		r["status"], r["incomplete_details"] = statusIncomplete, map[string]string{"reason": "content_filter"}
	case services.FinishStop, services.FinishInterrupted:
	}
	if r["status"] == statusIncomplete {
		r["completed_at"] = nil
	}
	if e.output != nil {
		r["output"] = e.output
	}
	r["usage"] = usageJSON(e.usage)
	return r
}

// modelFailed reports whether an error is the model's.
func modelFailed(err error) bool {
	return errors.Is(err, services.ErrModelFailed) || errors.Is(err, services.ErrPromptTooLong)
}

// failed returns the response whose model failed with an error.
func (o Outline) failed(err error) Response {
	r := o.running()
	r["status"], r["error"] = statusFailed, map[string]string{
		"code": "server_error", "message": "The model failed. The input is kept: send the request again.",
	}
	if errors.Is(err, services.ErrPromptTooLong) { // the official document has no closer code for a response
		r["error"] = map[string]string{"code": "invalid_prompt", "message": ErrTooLong.Detail}
	}
	if refused, ok := errors.AsType[*services.ModelRefusal](err); ok {
		code := "server_error"
		if problems.Of(err).Class == problems.ModelBusy {
			code = "rate_limit_exceeded"
		}
		r["error"] = map[string]string{"code": code, "message": fmt.Sprintf(
			"The model failed: its endpoint answered %d. The input is kept.", refused.Status)}
	}
	return r
}

func usageJSON(u conversation.Usage) any {
	return map[string]any{
		"input_tokens": u.Input, "output_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"input_tokens_details":  map[string]int64{"cached_tokens": u.Cached, "cache_write_tokens": 0},
		"output_tokens_details": map[string]int64{"reasoning_tokens": u.Reasoning},
	}
}
