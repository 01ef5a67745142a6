package respond

import (
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Stream turns an answer into the events of OpenAI's streams while it arrives. Its methods must not be called at the
// same time.
type Stream struct {
	send func(...Event)
	// unsent are the events of the call that runs; they are sent together.
	unsent []Event

	id      services.Mint
	include message.Includes
	number  int
	// after is the number of the last event that is not sent.
	after int
	// open is the newest item, and calls are older ones whose arguments are not whole; begun is the number of items.
	open  *outputItem
	calls []*outputItem
	begun int
	// parts are how many parts of the answer have begun.
	parts int
	ended bool
}

// Event is an event of a stream.
type Event = wire.Event

var _ services.Listener = (*Stream)(nil)

// NewStream makes a stream that calls send with events that come together.
func NewStream(include message.Includes, send func(...Event)) *Stream {
	return &Stream{include: include, send: send, after: -1}
}

// After leaves out the events up to a number.
func (s *Stream) After(number int) *Stream {
	s.after = number
	return s
}

// Sent returns the number of the last event.
func (s *Stream) Sent() int { return s.number - 1 }

type fields = map[string]any

func (s *Stream) event(name string, f fields) {
	f["type"], f["sequence_number"] = name, s.number
	if s.number++; s.number-1 > s.after {
		s.unsent = append(s.unsent, Event{Name: name, Data: f})
	}
}

// flush sends the events that came together.
func (s *Stream) flush() {
	if len(s.unsent) > 0 {
		s.send(s.unsent...)
		s.unsent = nil
	}
}

// Begun sends the response before its answer.
func (s *Stream) Begun(step services.Step) {
	defer s.flush()
	s.id = step.Mint
	raw := encode(Form(services.Answered{Step: step, Running: true}, s.include))
	s.event("response.created", fields{"response": raw})
	s.event("response.in_progress", fields{"response": raw})
}

// Piece sends a piece of the answer. Calls may come side by side: one is open until its arguments are whole.
func (s *Stream) Piece(p services.AnswerPiece) {
	defer s.flush()
	if p.Part == s.parts {
		s.parts++
		s.beginPart(p.AnswerPart)
	}
	o := s.growing(p.Part)
	if o == nil {
		return // the whole part is in the response at the end
	}
	at := &o.parts[len(o.parts)-1]
	if p.Item != nil {
		at.Item = p.Item
	}
	if p.Text != "" {
		if at.Kind == services.PartReasoning && at.Text == "" { // a reasoning that is sealed has no such part
			s.contentPart("response.content_part.added", o)
		}
		o.grow(p.Text)
		s.delta(o, p.Text)
	}
}

// contentPart sends an event of the last part of an item's content.
func (s *Stream) contentPart(name string, o *outputItem) {
	at := o.at()
	at["part"] = partOf(o.parts[len(o.parts)-1])
	s.event(name, at)
}

// growing returns the item to which a part may still grow, or nil.
func (s *Stream) growing(part int) *outputItem {
	if part == s.parts-1 {
		return s.open
	}
	for _, o := range s.calls {
		if o.first == part {
			return o
		}
	}
	return nil
}

// beginPart begins a part: in the item that is open, or in one of its own.
func (s *Stream) beginPart(p services.AnswerPart) {
	p.Text = ""
	if s.open != nil && s.open.takes(p) {
		s.endPart(s.open)
		s.open.add(p)
	} else {
		s.leaveItem()
		o := newOutputItem(s.begun, p, s.id)
		o.first = s.parts - 1
		s.open = &o
		s.begun++
		s.item("response.output_item.added", s.open, statusRunning)
	}
	switch {
	case p.Said():
		s.contentPart("response.content_part.added", s.open)
	case p.Kind == services.PartSummary:
		at := s.open.at()
		at["part"] = summaryPart("")
		s.event("response.reasoning_summary_part.added", at)
	}
}

// delta sends what is new of the last text of an item.
func (s *Stream) delta(o *outputItem, text string) {
	f := o.at()
	f["delta"] = text
	switch o.parts[len(o.parts)-1].Kind {
	case services.PartText:
		f["logprobs"] = []any{}
		s.event("response.output_text.delta", f)
	case services.PartRefusal:
		s.event("response.refusal.delta", f)
	case services.PartReasoning:
		s.event("response.reasoning_text.delta", f)
	case services.PartSummary:
		s.event("response.reasoning_summary_text.delta", f)
	case services.PartCall:
		s.event("response.function_call_arguments.delta", f)
	case services.PartCustomCall:
		s.event("response.custom_tool_call_input.delta", f)
	case services.PartItem:
	}
}

// endPart sends the whole last text of an item.
func (s *Stream) endPart(o *outputItem) {
	p, f := o.parts[len(o.parts)-1], o.at()
	switch p.Kind {
	case services.PartText:
		f["text"], f["logprobs"] = p.Text, []any{}
		s.event("response.output_text.done", f)
	case services.PartRefusal:
		f["refusal"] = p.Text
		s.event("response.refusal.done", f)
	case services.PartReasoning:
		if f["text"] = p.Text; p.Text != "" {
			s.event("response.reasoning_text.done", f)
		}
	case services.PartSummary:
		f["text"] = p.Text
		s.event("response.reasoning_summary_text.done", f)
	case services.PartCall:
		f["name"], f["arguments"] = p.Name, p.Text
		s.event("response.function_call_arguments.done", f)
	case services.PartCustomCall:
		f["input"] = p.Text
		s.event("response.custom_tool_call_input.done", f)
	case services.PartItem:
	}
	switch {
	case p.Said(), p.Kind == services.PartReasoning && p.Text != "":
		s.contentPart("response.content_part.done", o)
	case p.Kind == services.PartSummary:
		at := o.at()
		at["part"] = summaryPart(p.Text)
		s.event("response.reasoning_summary_part.done", at)
	}
}

// leaveItem ends the open item, unless more of it may come.
func (s *Stream) leaveItem() {
	switch o := s.open; {
	case o == nil:
	case o.unfinished():
		s.calls = append(s.calls, o)
	default:
		s.endItem(o, statusDone)
	}
}

// item sends what is shown of an item.
func (s *Stream) item(name string, o *outputItem, status string) {
	s.event(name, fields{"output_index": o.index, "item": o.item(status).Shown(s.include)})
}

// endItem sends a whole item.
func (s *Stream) endItem(o *outputItem, status string) {
	s.endPart(o)
	s.item("response.output_item.done", o, status)
}

// endItems sends the items that are not whole yet.
func (s *Stream) endItems(status string) {
	if s.open != nil {
		s.calls = append(s.calls, s.open)
	}
	for _, o := range s.calls {
		s.endItem(o, status)
	}
	s.open, s.calls = nil, nil
}

// Fail ends a stream that has begun with an error that says nothing of the response. A nil code or param is null.
func (s *Stream) Fail(code, param *string, message string) {
	defer s.flush()
	if s.number > 0 && !s.ended {
		s.ended = true
		s.event("error", fields{"code": code, "param": param, "message": message})
	}
}

// Ended sends the response with its answer, or as one whose model failed. Of one that was answered before it sends the
// items first.
func (s *Stream) Ended(a services.Answered) {
	defer s.flush()
	r := Form(a, s.include)
	if s.parts == 0 {
		s.items(r, a.Pieces)
	}
	s.ended = true
	if a.Err != nil { // its pieces may be gone, and whoever goes on behind one is told of its end
		s.number = max(s.number, s.after+1)
	}
	status, _ := r["status"].(string)
	switch status {
	case statusIncomplete, statusFailed, statusCancelled:
		s.endItems(statusIncomplete)
	default:
		s.endItems(statusDone)
	}
	if failure, ok := r["error"].(map[string]string); ok { // some clients know no other end of a failed stream
		s.event("error", fields{"code": failure["code"], "param": nil, "message": failure["message"]})
	}
	if status == statusCancelled { // streams have no event of that name
		status = statusIncomplete
	}
	s.event("response."+status, fields{"response": r})
}

// items sends the items of a response that was answered before, in the pieces in which they were told.
func (s *Stream) items(r Response, lengths string) {
	all, _ := r["output"].([]message.Item)
	var parts []services.AnswerPart
	for _, i := range all {
		parts = append(parts, partsOf(i)...)
	}
	s.id = func(_, _ string, index int) string { return all[index].ID() }
	for _, p := range services.CutInPieces(parts, lengths) {
		s.Piece(p)
	}
}
