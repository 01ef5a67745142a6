package complete

import (
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

type fields = map[string]any

// Form returns an answer as a chat completion.
func (r *Request) Form(a services.Answered) any {
	s := Stream{request: r, step: a.Step}
	for _, p := range partsOf(a.Output) {
		s.delta(p.piece(len(s.parts)))
	}
	m := fields{"role": message.Assistant, "content": nil, "refusal": nil}
	for kind, text := range s.texts {
		m[kind] = text.String()
	}
	if calls := s.whole(); len(calls) > 0 && r.Legacy {
		m["function_call"] = calls[0]["function"]
	} else if len(calls) > 0 {
		m["tool_calls"] = calls
	} else if s.silent() {
		m["content"] = ""
	}
	out := s.envelope("chat.completion")
	out["choices"] = []any{fields{
		"index": 0, "message": m, "logprobs": nil, "finish_reason": s.reason(a.Finish),
	}}
	out["usage"] = usage(a.Usage)
	return out
}

// silent reports whether nothing was said.
func (s *Stream) silent() bool {
	return !slices.ContainsFunc(s.parts, func(p services.AnswerPart) bool { return p.Said() && p.Text != "" })
}

func usage(u session.Usage) any {
	return fields{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     fields{"cached_tokens": u.Cached},
		"completion_tokens_details": fields{"reasoning_tokens": u.Reasoning},
	}
}

// part is a part of a recorded answer.
type part services.AnswerPart

func (p part) piece(n int) services.AnswerPiece {
	return services.AnswerPiece{Part: n, AnswerPart: services.AnswerPart(p)}
}

// partsOf returns the parts of an answer that a chat completion has a form for.
func partsOf(all []message.Item) (out []part) {
	for _, i := range all {
		p := part{CallID: i.CallID(), Name: i.Name()}
		switch {
		case i.Type() == "function_call":
			p.Kind, p.Text = services.PartCall, i.Text("arguments")
		case i.Type() == "custom_tool_call":
			p.Kind, p.Text = services.PartCustomCall, i.Text("input")
		case i.Type() == "reasoning":
			p.Kind = services.PartReasoning
			for _, c := range append(i.Parts("summary"), i.Parts("content")...) {
				p.Text += c.Text("text")
			}
		case i.ByAssistant():
			for _, c := range i.Parts("content") {
				p.Kind, p.Text = services.PartText, c.Text("text")
				if c.Type() == "refusal" {
					p.Kind, p.Text = services.PartRefusal, c.Text("refusal")
				}
				out = append(out, p)
			}
			continue
		default:
			continue
		}
		out = append(out, p)
	}
	return out
}

// reason says why the answer ended.
func (s *Stream) reason(f services.Finish) string {
	switch {
	case f == services.FinishLength, f == services.FinishFiltered:
		return string(f)
	case len(s.calls) > 0 && s.request.Legacy:
		return "function_call"
	case len(s.calls) > 0:
		return "tool_calls"
	}
	return string(services.FinishStop)
}

// envelope returns what all chunks have.
func (s *Stream) envelope(object string) fields {
	_, id, _ := strings.Cut(s.step.ResponseID, "_")
	return fields{
		"id": "chatcmpl-" + id, "object": object, "created": s.step.CreatedAt.Unix(), "model": s.step.Model,
	}
}
