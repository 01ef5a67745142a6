package uimessage

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// UIMessage is a message of a chat as its clients show it.
type UIMessage struct {
	ID    string `json:"id" doc:"Of the user's: the turn's request_id; of an answer: the turn_id"`
	Role  string `json:"role" enum:"user,assistant"`
	Parts []any  `json:"parts" doc:"Parts of the AI SDK: text, reasoning, tool-NAME, step-start"`
}

// OfTurn returns the messages of a turn, by its items: the user's, and the answer. One that has no parts is left out.
func OfTurn(request, turn string, all []message.Item) (out []UIMessage) {
	asks := 0
	for n, i := range all {
		if i.Asks() {
			asks = n + 1
		}
	}
	if parts := asked(all[:asks]); len(parts) > 0 {
		out = append(out, UIMessage{request, message.User, parts})
	}
	if parts := answered(all[asks:]); len(parts) > 0 {
		out = append(out, UIMessage{turn, message.Assistant, parts})
	}
	return out
}

// asked returns the parts of a question. An image or a file is the text that stands for it.
func asked(all []message.Item) (parts []any) {
	for _, i := range all {
		if !i.ByUser() {
			continue
		}
		standsFor := ""
		for _, p := range i.Parts("content") {
			words := p.Text("text")
			if standIn := p.StandIn(); standIn != "" {
				words, standsFor = standIn, standIn
			} else if words == standsFor {
				continue
			}
			if words != "" {
				parts = append(parts, fields{"type": "text", "text": words})
			}
		}
	}
	return parts
}

// answered returns the parts of an answer, in its steps.
func answered(all []message.Item) (parts []any) {
	step, calls := false, map[string]fields{}
	add := func(part fields) {
		if !step {
			step, parts = true, append(parts, fields{"type": "step-start"})
		}
		parts = append(parts, part)
	}
	for n, i := range all {
		if !i.IsOutput() {
			for _, p := range partsOf(all[n : n+1]) {
				switch kind := kindOf(p); {
				case p.Kind == services.PartItem:
				case kind == toolInput:
					calls[p.CallID] = fields{
						"type": "tool-" + p.Name, "toolCallId": p.CallID, "state": "input-available",
						"input": inputOf(p.Text),
					}
					add(calls[p.CallID])
				case p.Text != "":
					add(fields{"type": kind, "text": p.Text, "state": "done"})
				}
			}
			continue
		}
		if call := calls[i.CallID()]; call != nil {
			putOut(call, i)
		}
		step = false // what follows is another answer of the model
	}
	if !slices.ContainsFunc(parts, func(p any) bool { return p.(fields)["type"] != "step-start" }) {
		return nil
	}
	return parts
}

// putOut puts the output of a call into its part: a value where it is JSON.
func putOut(call fields, i message.Item) {
	words := wordsOf(i)
	var denied approval
	switch {
	case i.Text("status") != failed && json.Valid([]byte(words)):
		call["state"], call["output"] = "output-available", json.RawMessage(words)
	case i.Text("status") != failed:
		call["state"], call["output"] = "output-available", words
	case json.Unmarshal([]byte(words), &denied) == nil && denied.Approved != nil && !*denied.Approved:
		denied.ID = i.CallID()
		call["state"], call["approval"] = "output-denied", denied
	default:
		call["state"], call["errorText"] = "output-error", words
	}
}

func wordsOf(i message.Item) string {
	words := i.Text("output")
	if parts := i.Parts("output"); words == "" && len(parts) > 0 {
		for _, p := range parts {
			words += p.Text("text")
		}
	}
	return words
}

// Asks makes the calls of the last message that nothing has answered ask for approval, where their tools need it by the
// settings of their request.
func Asks(m UIMessage, settings services.Settings) {
	for _, call := range open(m) {
		if slices.Contains(needApproval(settings), strings.TrimPrefix(call["type"].(string), "tool-")) {
			call["state"], call["approval"] = "approval-requested", approval{ID: call["toolCallId"].(string)}
		}
	}
}

// Open reports whether a message has calls that nothing has answered.
func Open(m UIMessage) bool { return len(open(m)) > 0 }

func open(m UIMessage) (calls []fields) {
	for _, p := range m.Parts {
		if p := p.(fields); p["state"] == "input-available" {
			calls = append(calls, p)
		}
	}
	return calls
}

// Replay sends the steps of a message, before one that goes on with it.
func (s *Stream) Replay(m UIMessage) {
	s.send(fields{"type": "start", "messageId": m.ID})
	for n, p := range m.Parts {
		p := p.(fields)
		id := "before." + strconv.Itoa(n)
		switch kind := p["type"].(string); kind {
		case "step-start":
			if n > 0 {
				s.send(fields{"type": "finish-step"})
			}
			s.send(fields{"type": "start-step"})
		case "text", "reasoning":
			s.send(fields{"type": kind + "-start", "id": id})
			s.send(fields{"type": kind + "-delta", "id": id, "delta": p["text"]})
			s.send(fields{"type": kind + "-end", "id": id})
		default:
			s.replayCall(strings.TrimPrefix(kind, "tool-"), p)
		}
	}
	s.send(fields{"type": "finish-step"})
	s.replayed = true
}

func (s *Stream) replayCall(name string, p fields) {
	id := p["toolCallId"]
	s.send(fields{"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": p["input"]})
	switch p["state"] {
	case "output-available":
		s.send(fields{"type": "tool-output-available", "toolCallId": id, "output": p["output"]})
	case "output-error":
		s.send(fields{"type": "tool-output-error", "toolCallId": id, "errorText": p["errorText"]})
	case "output-denied":
		s.send(fields{"type": "tool-output-denied", "toolCallId": id})
	}
}
