package respond

import (
	"encoding/json"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// Types of the items that an answer has.
const (
	typeMessage    = "message"
	typeReasoning  = "reasoning"
	typeCall       = "function_call"
	typeCustomCall = "custom_tool_call"
)

const (
	statusQueued     = "queued"
	statusRunning    = "in_progress"
	statusDone       = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// outputItem is an item of an answer, made of neighbouring parts of it: what is told to the user is one message, the
// summaries and the text of one reasoning are one item, and every other part is an item of its own.
type outputItem struct {
	index int
	id    string
	// first is the index of the first part in the answer.
	first int
	// parts are those of the answer that the item is made of, and grown is the text of the last one while it comes.
	parts []services.AnswerPart
	grown *strings.Builder
}

// grouped returns the items of an answer.
func grouped(parts []services.AnswerPart, id services.Mint) (out []outputItem) {
	for _, p := range parts {
		if last := len(out) - 1; last >= 0 && out[last].takes(p) {
			out[last].add(p)
			continue
		}
		out = append(out, newOutputItem(len(out), p, id))
	}
	return out
}

// takes reports whether a part that comes next belongs to the item.
func (o outputItem) takes(p services.AnswerPart) bool {
	first := o.parts[0]
	if kindOf(first) == typeReasoning && kindOf(p) == typeReasoning {
		return p.ID != "" && p.ID == first.ID
	}
	return first.Said() && p.Said() && p.ID == first.ID
}

// add adds a part.
func (o *outputItem) add(p services.AnswerPart) {
	o.parts, o.grown = append(o.parts, p), nil
}

// grow adds to the text of the last part.
func (o *outputItem) grow(text string) {
	last := &o.parts[len(o.parts)-1]
	if o.grown == nil {
		o.grown = &strings.Builder{}
		_, _ = o.grown.WriteString(last.Text)
	}
	_, _ = o.grown.WriteString(text)
	last.Text = o.grown.String()
}

// at returns where the last part stands.
func (o outputItem) at() fields {
	f := fields{"item_id": o.id, "output_index": o.index}
	summaries := 0
	for _, p := range o.parts {
		if p.Kind == services.PartSummary {
			summaries++
		}
	}
	switch p := o.parts[len(o.parts)-1]; p.Kind {
	case services.PartText, services.PartRefusal, services.PartReasoning:
		f["content_index"] = len(o.parts) - summaries - 1
	case services.PartSummary:
		f["summary_index"] = summaries - 1
	case services.PartCall, services.PartCustomCall, services.PartItem:
	}
	return f
}

// unfinished reports whether the item is a call whose arguments are not whole.
func (o outputItem) unfinished() bool {
	return o.parts[0].Kind == services.PartCall && !json.Valid([]byte(o.parts[0].Text))
}

// newOutputItem begins an item.
func newOutputItem(index int, p services.AnswerPart, id services.Mint) outputItem {
	own := ""
	if p.Kind == services.PartItem {
		own = itemOf(p).ID()
	}
	o := outputItem{index: index, id: id(kindOf(p), own, index)}
	o.add(p)
	return o
}

func itemOf(p services.AnswerPart) (i message.Item) {
	_ = json.Unmarshal(p.Item, &i) // the model sent it
	return i
}

func kindOf(p services.AnswerPart) string {
	switch p.Kind {
	case services.PartCall:
		return typeCall
	case services.PartCustomCall:
		return typeCustomCall
	case services.PartReasoning, services.PartSummary:
		return typeReasoning
	case services.PartItem:
		return itemOf(p).Type()
	case services.PartText, services.PartRefusal:
	}
	return typeMessage
}

// item returns the item with a status. In an item that is in progress the texts are left out.
func (o outputItem) item(status string) message.Item {
	p, running := o.parts[0], status == statusRunning
	shown := func(text string) json.RawMessage {
		if running {
			text = ""
		}
		return encode(text)
	}
	i := message.Item{"type": encode(kindOf(p)), "id": encode(o.id), "status": encode(status)}
	switch p.Kind {
	case services.PartCall:
		i["call_id"], i["name"], i["arguments"] = encode(p.CallID), encode(p.Name), shown(p.Text)
	case services.PartCustomCall:
		i["call_id"], i["name"], i["input"] = encode(p.CallID), encode(p.Name), shown(p.Text)
	case services.PartReasoning, services.PartSummary:
		return o.reasoning(running)
	case services.PartItem:
		own := itemOf(p)
		if id := own.ID(); id != "" && id != o.id {
			own = own.KnownAs("id", id)
		}
		return own.With("id", o.id)
	case services.PartText, services.PartRefusal:
		content := []any{}
		for _, p := range o.parts {
			if !running {
				content = append(content, partOf(p))
			}
		}
		i["role"], i["content"] = encode("assistant"), encode(content)
	}
	for _, p := range o.parts {
		came := itemOf(p)
		if i["call_id"] == nil {
			came = came.Carried()
		}
		for name, value := range came { // a model wants to see again all that it sent with a call
			if _, has := i[name]; !has && !message.IsNull(value) {
				i[name] = value
			}
		}
	}
	return i
}

// reasoning returns an item of reasoning: as the model sent it, or made of its texts.
func (o outputItem) reasoning(running bool) message.Item {
	summary, content := []any{}, []any{}
	for _, p := range o.parts {
		switch {
		case running:
		case p.Item != nil:
			return itemOf(p).With("id", o.id)
		case p.Kind == services.PartSummary:
			summary = append(summary, summaryPart(p.Text))
		default:
			content = append(content, partOf(p))
		}
	}
	i := message.Item{"type": encode(typeReasoning), "id": encode(o.id), "summary": encode(summary)}
	if len(content) > 0 {
		i["content"] = encode(content)
	}
	return i
}

func summaryPart(text string) any { return map[string]string{"type": "summary_text", "text": text} }

// partOf returns a part of the content of a message or of a reasoning.
func partOf(p services.AnswerPart) any {
	switch p.Kind {
	case services.PartRefusal:
		return map[string]string{"type": "refusal", "refusal": p.Text}
	case services.PartReasoning:
		return map[string]string{"type": "reasoning_text", "text": p.Text}
	case services.PartText, services.PartSummary, services.PartCall, services.PartCustomCall, services.PartItem:
	}
	return map[string]any{"type": "output_text", "text": p.Text, "annotations": annotations(p), "logprobs": []any{}}
}

// annotations returns what a model noted beside a text, such as the pages that it cites.
func annotations(p services.AnswerPart) any {
	for _, c := range itemOf(p).Parts("content") {
		if noted := c["annotations"]; c.Text("text") == p.Text && len(noted) > 0 {
			return noted
		}
	}
	return []any{}
}

// Output returns the items of a whole answer.
func Output(a services.ModelAnswer, id services.Mint) (out []message.Item) {
	status := statusDone
	if a.Cut() || a.Finish == services.FinishStopped || a.Finish == services.FinishInterrupted {
		status = statusIncomplete
	}
	for _, o := range grouped(a.Parts, id) {
		out = append(out, o.item(status))
	}
	return out
}

// partsOf returns the parts of an answer that an item of it is.
func partsOf(i message.Item) (parts []services.AnswerPart) {
	p := services.AnswerPart{
		Kind: services.PartItem, Item: i.JSON(), CallID: i.CallID(), Name: i.Name(), ID: i.ID(),
	}
	switch i.Type() {
	case typeCall:
		p.Kind, p.Text = services.PartCall, i.Text("arguments")
	case typeCustomCall:
		p.Kind, p.Text = services.PartCustomCall, i.Text("input")
	case typeReasoning:
		for _, c := range i.Parts("summary") {
			p.Kind, p.Text = services.PartSummary, c.Text("text")
			parts = append(parts, p)
		}
		for _, c := range i.Parts("content") {
			p.Kind, p.Text = services.PartReasoning, c.Text("text")
			parts = append(parts, p)
		}
		if len(parts) == 0 {
			p.Kind, parts = services.PartReasoning, []services.AnswerPart{p}
		}
		return parts
	case typeMessage:
		for _, c := range i.Parts("content") {
			p.Kind, p.Text = services.PartText, c.Text("text")+c.Text("refusal")
			if c.Type() == "refusal" {
				p.Kind = services.PartRefusal
			}
			parts = append(parts, p)
		}
		return parts
	}
	return []services.AnswerPart{p}
}
