package contextbuilder

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// end is a call without its result, or a result without its call: the index of its message in a prompt, and the call's
// id.
type end struct {
	at int
	id string
}

// looseEnds returns the calls without a result right after them, and the results without a call right before them. Some
// models reuse an id. A result then belongs to the last call before it, or to a call in a turn that is not shown.
func looseEnds(list []Message) (calls, results []end) {
	for i, m := range list {
		for _, id := range m.answers() {
			k := len(calls) - 1
			for k >= 0 && calls[k].id != id {
				k--
			}
			if k < 0 || apart(list[calls[k].at+1:i]) {
				results = append(results, end{i, id})
				continue
			}
			calls = slices.Delete(calls, k, k+1)
		}
		for _, id := range m.calls() {
			calls = append(calls, end{i, id})
		}
	}
	return calls, results
}

// apart reports whether messages between a call and its result part them. What else the assistant says does not, before
// the first result, nor do other results.
func apart(between []Message) bool {
	results := false
	for _, m := range between {
		switch {
		case m.onlyItem():
		case len(m.answers()) > 0:
			results = true
		case results || m.role != roleAssistant:
			return true
		}
	}
	return false
}

// mend turns a tool call or result into text if its other half stands in a turn that the prompt may not show: a
// redacted turn, a pending one, or one before a boundary. The vendors refuse a call without its result. A call or
// result that was recorded without its other half stays as it came. places holds the place of each message's turn.
func mend(list []Message, places []uint64, calls, results []end, unseen []hidden) {
	for _, c := range calls {
		answered := func(h hidden) bool {
			return h.place > places[c.at] && (h.redacted || slices.Contains(h.answers, c.id))
		}
		if slices.ContainsFunc(unseen, answered) {
			list[c.at] = list[c.at].saysCall(c.id)
		}
	}
	for _, r := range results {
		called := func(h hidden) bool {
			return h.place < places[r.at] && (h.redacted || slices.Contains(h.calls, r.id))
		}
		if slices.ContainsFunc(unseen, called) {
			list[r.at] = list[r.at].saysResult(r.id)
		}
	}
}

// hidden is a turn that a prompt may not show, with the ids of its calls and results. The ids of an erased turn are
// unknown, so any id may be its own.
type hidden struct {
	place          uint64
	redacted       bool
	calls, answers []string
}

// unseen returns the turns of a reading that may not be shown.
func unseen(r services.Reading, shown []*conversation.Turn) (out []hidden) {
	seen := make(map[uint64]bool, len(shown))
	for _, t := range shown {
		seen[t.Place] = true
	}
	for _, t := range r.RedactedLater {
		out = append(out, hidden{place: t.Place, redacted: true})
	}
	for _, t := range r.State.Turns {
		if seen[t.Place] {
			continue
		}
		h := hidden{place: t.Place, redacted: t.Status == conversation.Redacted}
		var list []Message
		if t.Question != nil {
			list = parseMessages(t.Question.QuestionMessages)
		}
		if t.Answer != nil {
			list = append(list, parseMessages(t.Answer.AnswerMessages)...)
		}
		for _, m := range list {
			h.calls, h.answers = append(h.calls, m.calls()...), append(h.answers, m.answers()...)
		}
		out = append(out, h)
	}
	return out
}

// endsWith reports whether the session ends with the answer of the turn at a place, for example because the turn waits
// for a tool's result.
func endsWith(s *conversation.State, place uint64) bool {
	last := s.Turns[len(s.Turns)-1]
	_, _, inherited := s.Origin(last, 0)
	return !inherited && last.Place == place && last.Last() == s.Applied
}

// saysCall returns the message with one of its calls replaced by text.
func (m Message) saysCall(id string) Message {
	isCall := func(p part) bool { return p.Type == "tool_use" && p.ID == id }
	if at := slices.IndexFunc(m.stored.parts, isCall); at >= 0 {
		return m.saysPart(at, callText(m.stored.parts[at].call()))
	}
	members := map[string]any{}
	var call toolCall
	switch at := slices.IndexFunc(m.stored.ToolCalls, func(c toolCall) bool { return c.ID == id }); {
	case at >= 0:
		var raw struct {
			Calls []json.RawMessage `json:"tool_calls"`
		}
		if json.Unmarshal(m.stored.raw, &raw) != nil {
			return m
		}
		call, members["tool_calls"] = m.stored.ToolCalls[at], nil
		if len(raw.Calls) > 1 {
			members["tool_calls"] = slices.Delete(raw.Calls, at, at+1)
		}
	case m.stored.FunctionCall == nil:
		return m
	default:
		call, members["function_call"] = toolCall{Function: *m.stored.FunctionCall}, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(m.stored.Content, &parts) != nil || parts == nil {
		return m.with(strings.TrimSpace(plainText(m)+"\n"+callText(call)), members)
	}
	return m.with(append(parts, textPart(callText(call))), members)
}

// saysResult returns the message with one of its results replaced by text.
func (m Message) saysResult(id string) Message {
	isResult := func(p part) bool { return p.Type == "tool_result" && p.ToolUseID == id }
	if at := slices.IndexFunc(m.stored.parts, isResult); at >= 0 {
		return m.saysPart(at, resultText("", m.stored.parts[at].result()))
	}
	return textMessage(roleUser, resultText(m.stored.Name, plainText(m)))
}

// saysPart returns the message with one part of its content replaced by a text.
func (m Message) saysPart(at int, text string) Message {
	var parts []json.RawMessage
	if json.Unmarshal(m.stored.Content, &parts) != nil {
		return m
	}
	parts[at] = textPart(text)
	return m.with(parts, nil)
}

func textPart(text string) json.RawMessage {
	return marshal(map[string]string{"type": "text", "text": text})
}

func callText(c toolCall) string {
	return "[Tool call: " + c.Function.Name + " " + string(c.Function.Arguments) + "]"
}

func resultText(name, text string) string {
	if name != "" {
		name = " " + name
	}
	return "[Tool result" + name + ": " + text + "]"
}
