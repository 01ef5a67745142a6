package uimessage

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

type fields = map[string]any

// Stream turns an answer into the chunks of a UI message stream while it arrives. Whoever is told of an answer, early
// or late, is told the same chunks. Its methods must not be called at the same time.
type Stream struct {
	send func(chunk any)
	says func(error) string
	asks []string
	// replayed: the steps before were sent.
	replayed bool
	parts    []streamed
}

// streamed is a part of the answer. Chunks know a text by its id.
type streamed struct {
	services.AnswerPart

	id   string
	open bool
}

// NewStream makes a stream that calls send with each chunk. says returns what a client is told of an error.
func NewStream(send func(chunk any), says func(error) string) *Stream {
	return &Stream{send: send, says: says}
}

// Begun implements services.Listener. A message of an answer has the id of its turn.
func (s *Stream) Begun(step services.Step) {
	if s.asks = needApproval(step.Settings); !s.replayed {
		s.send(fields{"type": "start", "messageId": step.TurnID.String()})
	}
	s.send(fields{"type": "start-step"})
}

// needApproval returns the tools whose calls a person approves, by the settings of a request.
func needApproval(settings services.Settings) (tools []string) {
	_ = json.Unmarshal(settings[approved], &tools) // else there are none
	return tools
}

// Piece implements services.Listener.
func (s *Stream) Piece(p services.AnswerPiece) {
	if p.Part == len(s.parts) {
		s.next()
		one := streamed{AnswerPart: p.AnswerPart, id: strconv.Itoa(p.Part)}
		one.Text = ""
		s.parts = append(s.parts, one)
		s.begin(&s.parts[p.Part])
	}
	of := &s.parts[p.Part]
	if p.Text == "" || of.Kind == services.PartItem {
		return
	}
	kind := kindOf(of.AnswerPart)
	if of.Text += p.Text; !of.open && kind != toolInput { // parts may be interleaved, and a text that ended goes on
		of.id += ".1"
		s.begin(of)
	}
	switch {
	case !of.open:
	case kind == toolInput:
		s.send(fields{"type": "tool-input-delta", "toolCallId": of.CallID, "inputTextDelta": p.Text})
	default:
		s.send(fields{"type": kind + "-delta", "id": of.id, "delta": p.Text})
	}
}

const toolInput = "tool-input"

// kindOf returns how the chunks of a part are called.
func kindOf(p services.AnswerPart) string {
	switch p.Kind {
	case services.PartReasoning, services.PartSummary:
		return "reasoning"
	case services.PartCall, services.PartCustomCall:
		return toolInput
	case services.PartText, services.PartRefusal, services.PartItem:
	}
	return "text"
}

func (s *Stream) begin(p *streamed) {
	switch kind := kindOf(p.AnswerPart); {
	case p.Kind == services.PartItem:
		return
	case kind == toolInput:
		s.send(fields{"type": "tool-input-start", "toolCallId": p.CallID, "toolName": p.Name})
	default:
		s.send(fields{"type": kind + "-start", "id": p.id})
	}
	p.open = true
}

// next ends what a new part ends: texts, and calls that are whole.
func (s *Stream) next() {
	for n := range s.parts {
		p := &s.parts[n]
		if kindOf(p.AnswerPart) != toolInput || p.Kind == services.PartCall && json.Valid([]byte(p.Text)) {
			s.end(p)
		}
	}
}

func (s *Stream) end(p *streamed) {
	if !p.open {
		return
	}
	p.open = false
	if kind := kindOf(p.AnswerPart); kind != toolInput {
		s.send(fields{"type": kind + "-end", "id": p.id})
		return
	}
	s.send(fields{"type": "tool-input-available", "toolCallId": p.CallID, "toolName": p.Name, "input": inputOf(p.Text)})
	if slices.Contains(s.asks, p.Name) {
		s.send(fields{"type": "tool-approval-request", "approvalId": p.CallID, "toolCallId": p.CallID})
	}
}

// inputOf returns the arguments of a call as a value.
func inputOf(words string) any {
	if words == "" {
		return fields{}
	}
	if json.Valid([]byte(words)) {
		return json.RawMessage(words)
	}
	return words
}

// Ended implements services.Listener. Of an answer that was recorded before it sends the answer first.
func (s *Stream) Ended(a services.Answered) {
	if len(s.parts) == 0 && a.Err == nil {
		for _, p := range services.CutInPieces(partsOf(a.Output), a.Pieces) {
			s.Piece(p)
		}
	}
	if s.next(); a.Err == nil && a.Finish != services.FinishStopped && a.Finish != services.FinishInterrupted {
		for n := range s.parts { // else a call may be cut off
			s.end(&s.parts[n])
		}
	}
	if a.Err != nil {
		s.send(fields{"type": "error", "errorText": s.says(a.Err)})
		return
	}
	s.send(fields{"type": "finish-step"})
	if a.Finish == services.FinishStopped {
		s.send(fields{"type": "abort"})
		return
	}
	s.send(fields{"type": "finish", "finishReason": s.reason(a.Finish)})
}

func (s *Stream) reason(f services.Finish) string {
	calls := func(p streamed) bool { return kindOf(p.AnswerPart) == toolInput }
	switch {
	case f == services.FinishLength:
		return "length"
	case f == services.FinishFiltered:
		return "content-filter"
	case f == services.FinishInterrupted:
		return "other"
	case slices.ContainsFunc(s.parts, calls):
		return "tool-calls"
	}
	return "stop"
}

// partsOf returns the parts of a recorded answer.
func partsOf(all []message.Item) (out []services.AnswerPart) {
	for _, i := range all {
		p := services.AnswerPart{CallID: i.CallID(), Name: i.Name()}
		add := func(kind services.PartKind, text string) {
			p.Kind, p.Text = kind, text
			out = append(out, p)
		}
		switch {
		case i.Type() == "function_call":
			add(services.PartCall, i.Text("arguments"))
		case i.Type() == "custom_tool_call":
			add(services.PartCustomCall, i.Text("input"))
		case i.Type() == "reasoning":
			for _, c := range i.Parts("summary") {
				add(services.PartSummary, c.Text("text"))
			}
			for _, c := range i.Parts("content") {
				add(services.PartReasoning, c.Text("text"))
			}
		case i.ByAssistant():
			for _, c := range i.Parts("content") {
				if c.Type() == "refusal" {
					add(services.PartRefusal, c.Text("refusal"))
				} else {
					add(services.PartText, c.Text("text"))
				}
			}
		default:
			p.Item = i.JSON()
			add(services.PartItem, "")
		}
	}
	return out
}
