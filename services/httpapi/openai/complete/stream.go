package complete

import (
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// Stream turns an answer into the chunks of a stream while it arrives. Its methods must not be called at the same time.
type Stream struct {
	request *Request
	send    func(any)
	step    services.Step
	begun   bool
	parts   []services.AnswerPart
	// grown are the texts of the parts.
	grown []*strings.Builder
	// calls are the indices of the calls among all calls, by their parts, and texts what was said, by members.
	calls map[int]int
	texts map[string]*strings.Builder
}

// NewStream makes a stream that calls send with each chunk.
func (r *Request) NewStream(send func(any)) *Stream { return &Stream{request: r, send: send} }

// Begun notes what is answered. The first chunk comes with the answer: until then the model may refuse.
func (s *Stream) Begun(step services.Step) { s.step = step }

// Piece sends a piece of the answer.
func (s *Stream) Piece(p services.AnswerPiece) {
	if d := s.delta(p); d != nil {
		s.chunk(d, nil)
	}
}

// delta notes a piece, and returns what a chunk says of it; nil for what it has no word for.
func (s *Stream) delta(p services.AnswerPiece) fields {
	first := p.Part == len(s.parts)
	if first {
		s.parts, s.grown = append(s.parts, p.AnswerPart), append(s.grown, &strings.Builder{})
	}
	if p.Part < len(s.parts) {
		_, _ = s.grown[p.Part].WriteString(p.Text)
		s.parts[p.Part].Text = s.grown[p.Part].String()
	}
	kind := s.parts[p.Part].Kind
	members := map[services.PartKind]string{
		services.PartText: "content", services.PartRefusal: "refusal",
		services.PartReasoning: "reasoning_content", services.PartSummary: "reasoning_content",
	}
	switch member := members[kind]; {
	case member != "" && p.Text != "":
		if s.texts == nil {
			s.texts = map[string]*strings.Builder{}
		}
		if s.texts[member] == nil {
			s.texts[member] = &strings.Builder{}
		}
		_, _ = s.texts[member].WriteString(p.Text)
		return fields{member: p.Text}
	case kind == services.PartCall || kind == services.PartCustomCall:
		return s.call(p, first)
	}
	return nil
}

// call returns what a chunk says of a piece of a call.
func (s *Stream) call(p services.AnswerPiece, first bool) fields {
	if first {
		if s.calls == nil {
			s.calls = map[int]int{}
		}
		s.calls[p.Part] = len(s.calls)
	} else if p.Text == "" {
		return nil
	}
	of := s.parts[p.Part]
	kind, member := "function", "arguments"
	if of.Kind == services.PartCustomCall {
		kind, member = "custom", "input"
	}
	inner := fields{member: p.Text}
	if first {
		inner["name"] = of.Name
	}
	if s.request.Legacy {
		return fields{"function_call": inner}
	}
	call := fields{"index": s.calls[p.Part], kind: inner}
	if first {
		call["id"], call["type"] = of.CallID, kind
	}
	return fields{"tool_calls": []any{call}}
}

// whole returns the calls of the answer.
func (s *Stream) whole() (out []fields) {
	for _, p := range s.parts {
		switch p.Kind {
		case services.PartCall:
			f := fields{"name": p.Name, "arguments": p.Text}
			out = append(out, fields{"id": p.CallID, "type": "function", "function": f})
		case services.PartCustomCall:
			f := fields{"name": p.Name, "input": p.Text}
			out = append(out, fields{"id": p.CallID, "type": "custom", "custom": f})
		case services.PartText, services.PartRefusal, services.PartReasoning, services.PartSummary, services.PartItem:
		}
	}
	return out
}

// chunk sends a chunk, and before the first one the role.
func (s *Stream) chunk(delta fields, reason any) {
	if !s.begun {
		s.begun = true
		s.chunk(fields{"role": message.Assistant, "content": "", "refusal": nil}, nil)
	}
	out := s.envelope("chat.completion.chunk")
	out["choices"] = []any{fields{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": reason}}
	if s.request.Usage {
		out["usage"] = nil
	}
	s.send(out)
}

// Ended sends why the answer ended, and the usage if it was asked for. Of an answer that was recorded before it sends
// the answer first.
func (s *Stream) Ended(a services.Answered) {
	if a.Err != nil {
		return
	}
	if len(s.parts) == 0 {
		for _, p := range partsOf(a.Output) {
			s.Piece(p.piece(len(s.parts)))
		}
	}
	s.chunk(fields{}, s.reason(a.Finish))
	if s.request.Usage {
		out := s.envelope("chat.completion.chunk")
		out["choices"], out["usage"] = []any{}, usage(a.Usage)
		s.send(out)
	}
}
