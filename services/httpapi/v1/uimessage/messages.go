package uimessage

import (
	"encoding/json"
	"slices"

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
			call["state"], call["output"] = "output-available", outputOf(i)
		}
		step = false // what follows is another answer of the model
	}
	if !slices.ContainsFunc(parts, func(p any) bool { return p.(fields)["type"] != "step-start" }) {
		return nil
	}
	return parts
}

// outputOf returns what a tool put out: a value where it is JSON.
func outputOf(i message.Item) any {
	words := i.Text("output")
	if parts := i.Parts("output"); words == "" && len(parts) > 0 {
		for _, p := range parts {
			words += p.Text("text")
		}
	}
	if json.Valid([]byte(words)) {
		return json.RawMessage(words)
	}
	return words
}
