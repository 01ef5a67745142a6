// Package responses is a client of models behind an endpoint that speaks OpenAI's Responses API itself. It sends the
// whole input each time and has the endpoint store nothing, since the log is the history.
package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
)

// New makes a model; it does no I/O.
func New(cfg endpoint.Config) services.Model {
	caller := endpoint.NewCaller(cfg.URL, cfg.Key, 0)
	return &endpoint.Model{
		Config: cfg, Form: services.OpenAI, TooLong: chatopenai.TooLong,
		Open: func(ctx context.Context, p services.Prompt) iter.Seq2[json.RawMessage, error] {
			body, messages := requestOf(p), message.ParseAll(p.Messages)
			body["model"], body["stream"] = cfg.Name, true
			return func(yield func(json.RawMessage, error) bool) {
				for e, err := range caller.Events(ctx, "/responses", body) {
					if full := body["input"]; refusesItems(err) {
						if body["input"] = message.Responses(messages, true); !same(full, body["input"]) {
							caller.Events(ctx, "/responses", body)(yield)
							return
						}
					}
					if !yield(e, err) {
						return
					}
				}
			}
		},
		Read: endpoint.EachEvent((*event).read),
	}
}

// refusesItems reports whether an endpoint may have refused a request for its items: it does not know their types, or
// another endpoint sealed them. Then it is asked once more without those that only an endpoint has a form for.
func refusesItems(err error) bool {
	refused, is := errors.AsType[*endpoint.Refusal](err)
	return is && refused.Status == http.StatusBadRequest && !chatopenai.TooLong(refused)
}

func same(a, b any) bool {
	one, _ := json.Marshal(a) // made of JSON
	other, _ := json.Marshal(b)
	return bytes.Equal(one, other)
}

type members = map[string]any

// requestOf returns the members of a request beside the model.
func requestOf(p services.Prompt) members {
	m := members{
		"input": message.Responses(message.ParseAll(p.Messages), false), "store": false,
		"include": []string{"reasoning.encrypted_content"},
	}
	for name, value := range p.Others {
		m[name] = value
	}
	set := func(name string, value any, given bool) {
		if given {
			m[name] = value
		}
	}
	set("temperature", p.Temperature, p.Temperature != nil)
	set("top_p", p.TopP, p.TopP != nil)
	set("max_output_tokens", p.MaxTokens, p.MaxTokens > 0)
	set("parallel_tool_calls", false, p.OneCall)
	set("reasoning", reasoningOf(p.ModelOptions), p.Effort != "" || p.Summary != "")
	set("text", textOf(p.ModelOptions), p.Format.Kind != "" || p.Verbosity != "")
	set("tools", toolsOf(p.Tools), len(p.Tools) > 0)
	set("tool_choice", choiceOf(p.ToolChoice), p.ToolChoice.Mode != "" || p.ToolChoice.Raw != nil)
	return m
}

func reasoningOf(o services.ModelOptions) members {
	m := members{}
	if o.Effort != "" {
		m["effort"] = o.Effort
	}
	if o.Summary != "" {
		m["summary"] = o.Summary
	}
	return m
}

func textOf(o services.ModelOptions) members {
	m := members{}
	if o.Verbosity != "" {
		m["verbosity"] = o.Verbosity
	}
	if f := o.Format; f.Kind != "" {
		format := members{"type": f.Kind}
		if f.Kind == "json_schema" {
			format["name"], format["schema"] = f.Name, f.Schema
			if f.Description != "" {
				format["description"] = f.Description
			}
			if f.Strict != nil {
				format["strict"] = *f.Strict
			}
		}
		m["format"] = format
	}
	return m
}

func toolsOf(tools []services.ModelTool) (list []any) {
	for _, t := range tools {
		if t.Raw != nil {
			list = append(list, t.Raw)
			continue
		}
		tool := members{"type": t.Kind, "name": t.Name}
		if t.Description != "" {
			tool["description"] = t.Description
		}
		if t.Kind == services.ToolFunction { // the API asks for both members
			tool["parameters"], tool["strict"] = t.Parameters, t.Strict
		}
		list = append(list, tool)
	}
	return list
}

func choiceOf(c services.ToolChoice) any {
	switch {
	case c.Raw != nil:
		return c.Raw
	case c.Mode == services.ToolNamed:
		return members{"type": services.ToolFunction, "name": c.Tool}
	default:
		return c.Mode
	}
}

// event is an event of an answer.
type event struct {
	Type         string
	Delta        string
	ItemID       string `json:"item_id"`
	OutputIndex  int64  `json:"output_index"`
	ContentIndex int64  `json:"content_index"`
	SummaryIndex int64  `json:"summary_index"`
	Item         json.RawMessage
	Response     struct {
		Model      string
		Incomplete struct{ Reason string } `json:"incomplete_details"`
		Usage      struct {
			Input   int64 `json:"input_tokens"`
			Output  int64 `json:"output_tokens"`
			Total   int64 `json:"total_tokens"`
			OfInput struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"input_tokens_details"`
			OfOutput struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		}
	}
}

// read reads an event. The parts of an answer are known by the index of their item, and those of a message and the
// summaries of a reasoning also by their index in it.
func (e *event) read(a *endpoint.Answering) {
	item := strconv.FormatInt(e.OutputIndex, 10)
	content := item + "." + strconv.FormatInt(e.ContentIndex, 10)
	switch e.Type {
	case "response.output_item.added":
		if i := itemOf(e.Item); callKind(i) != "" {
			a.Add(item, services.AnswerPart{Kind: callKind(i), CallID: i.CallID(), Name: i.Name()})
		}
	case "response.output_text.delta":
		a.Add(content, services.AnswerPart{Kind: services.PartText, Text: e.Delta, ID: e.ItemID})
	case "response.refusal.delta":
		a.Add(content, services.AnswerPart{Kind: services.PartRefusal, Text: e.Delta, ID: e.ItemID})
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		a.Add(item, services.AnswerPart{Kind: a.Kind(item), Text: e.Delta})
	case "response.reasoning_summary_text.delta":
		at := summaryKey(item, e.SummaryIndex)
		a.Add(at, services.AnswerPart{Kind: services.PartSummary, Text: e.Delta, ID: e.ItemID})
	case "response.reasoning_text.delta":
		a.Add(item, services.AnswerPart{Kind: services.PartReasoning, Text: e.Delta, ID: e.ItemID})
	case "response.output_item.done":
		readItem(item, e.Item, a)
	case "response.completed", "response.incomplete", "response.failed", "error":
		e.readEnd(a)
	}
}

func summaryKey(item string, index int64) string {
	return item + ".summary." + strconv.FormatInt(index, 10)
}

func itemOf(raw json.RawMessage) (i message.Item) {
	_ = json.Unmarshal(raw, &i) // another form is no item
	return i
}

func callKind(i message.Item) services.PartKind {
	switch i.Type() {
	case "function_call":
		return services.PartCall
	case "custom_tool_call":
		return services.PartCustomCall
	}
	return ""
}

// readItem keeps a whole item where its text is not all that is needed of it. A call without arguments has an empty
// object, which clients parse.
func readItem(key string, raw json.RawMessage, a *endpoint.Answering) {
	item := itemOf(raw)
	more := len(item.Carried()) > 0
	switch kind := callKind(item); {
	case kind != "":
		if kind == services.PartCall && a.Text(key) == "" {
			a.Add(key, services.AnswerPart{Kind: kind, Text: "{}"})
		}
		if more {
			a.Add(key, services.AnswerPart{Kind: kind, Item: raw})
		}
	case item.Type() == "message":
		for i, c := range item.Parts("content") {
			if at := key + "." + strconv.Itoa(i); (more || len(c.Parts("annotations")) > 0) && a.Kind(at) != "" {
				a.Add(at, services.AnswerPart{Kind: a.Kind(at), Item: raw})
			}
		}
	case item.Type() == "reasoning":
		last, kind := key, services.PartReasoning
		if at := summaryKey(key, int64(len(item.Parts("summary")))-1); a.Kind(key) == "" && a.Kind(at) != "" {
			last, kind = at, services.PartSummary
		}
		a.Add(last, services.AnswerPart{Kind: kind, Item: item.Sealed().JSON()})
	default:
		if theirs := item.Approval(); theirs != "" {
			if ours := message.Approvals(message.ParseAll(a.Messages))[theirs]; ours != "" {
				raw = item.Approving(ours, theirs).JSON()
			}
		}
		a.Add(key, services.AnswerPart{Kind: services.PartItem, Item: raw})
	}
}

func (e *event) readEnd(a *endpoint.Answering) {
	r := &e.Response
	a.Named(r.Model)
	if u := r.Usage; u.Total > 0 {
		a.Use(session.Usage{
			Input: u.Input, Cached: u.OfInput.Cached, Output: u.Output, Reasoning: u.OfOutput.Reasoning,
		})
	}
	switch {
	case e.Type == "response.completed":
		a.End(services.FinishStop)
	case e.Type == "response.incomplete" && r.Incomplete.Reason == "content_filter":
		a.End(services.FinishFiltered)
	case e.Type == "response.incomplete":
		a.End(services.FinishLength)
	default:
		a.Fail()
	}
}
