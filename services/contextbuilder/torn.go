package contextbuilder

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/conversation"
)

// end is a call without its result, or a result without its call, among the messages of a prompt: the
// message's index, and the call's id.
type end struct {
	at int
	id string
}

// looseEnds gives the calls without a result after them, and the results without a call before them.
func looseEnds(list []Message) (calls, results []end) {
	for i, m := range list {
		for _, id := range m.answers() {
			if k := slices.IndexFunc(calls, func(c end) bool { return c.id == id }); k >= 0 {
				calls = slices.Delete(calls, k, k+1)
			} else {
				results = append(results, end{i, id})
			}
		}
		for _, id := range m.calls() {
			calls = append(calls, end{i, id})
		}
	}
	return calls, results
}

// mend makes text of the loose ends whose other half a turn has that the prompt may not show: one that was redacted,
// is pending or was left behind by a boundary. Neither vendor takes a call without its result. What was recorded
// without its other half is left as it came. places are those of the messages' turns.
func mend(list []Message, places []uint64, calls, results []end, unseen []hidden) {
	for _, c := range calls {
		if slices.ContainsFunc(unseen, func(h hidden) bool { return h.place > places[c.at] && (h.gone || slices.Contains(h.answers, c.id)) }) {
			list[c.at] = list[c.at].saysCall(c.id)
		}
	}
	for _, r := range results {
		m := list[r.at]
		if m.role == roleTool && slices.ContainsFunc(unseen, func(h hidden) bool { return h.place < places[r.at] && (h.gone || slices.Contains(h.calls, r.id)) }) {
			list[r.at] = textMessage(roleUser, resultText(m.stored.Name, plainText(m)))
		}
	}
}

// hidden is a turn that a prompt may not show, with the ids of the calls and results in it. Of one that is gone
// nobody knows them: it may have had any.
type hidden struct {
	place          uint64
	gone           bool
	calls, answers []string
}

// unseen gives the turns of a reading that are not among those that may be shown.
func (r Reading) unseen(shown []*conversation.Turn) (out []hidden) {
	seen := make(map[uint64]bool, len(shown))
	for _, t := range shown {
		seen[t.Place] = true
	}
	for _, place := range r.Gone {
		out = append(out, hidden{place: place, gone: true})
	}
	for _, t := range r.State.Turns {
		if seen[t.Place] {
			continue
		}
		h := hidden{place: t.Place, gone: t.Status == conversation.Redacted}
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

// endsWith tells whether nothing at all has come after the answer of the turn at a place, as where a tool's result is
// waited for.
func endsWith(s *conversation.State, place uint64) bool {
	last := s.Turns[len(s.Turns)-1]
	return last.Place == place && last.Final == s.Applied
}

// saysCall gives the message with one of its tool calls as text.
func (m Message) saysCall(id string) Message {
	at := slices.IndexFunc(m.stored.ToolCalls, func(c toolCall) bool { return c.ID == id })
	if at < 0 {
		return m // a block of Anthropic's, which their form makes text of
	}
	var members map[string]json.RawMessage
	var calls []json.RawMessage
	if json.Unmarshal(m.stored.raw, &members) != nil || json.Unmarshal(members["tool_calls"], &calls) != nil {
		return m
	}
	own := *m.stored
	text := strings.TrimSpace(plainText(m) + "\n" + callText(own.ToolCalls[at]))
	own.Content, own.parts = marshal(text), nil
	own.ToolCalls = slices.Delete(slices.Clone(own.ToolCalls), at, at+1)
	members["content"] = own.Content
	if calls = slices.Delete(calls, at, at+1); len(calls) > 0 {
		members["tool_calls"] = marshal(calls)
	} else {
		delete(members, "tool_calls")
	}
	own.raw = marshal(members)
	m.stored = &own
	return m
}

func callText(c toolCall) string {
	return "[Tool call: " + c.Function.Name + " " + c.Function.Arguments + "]"
}

func resultText(name, text string) string {
	if name != "" {
		name = " " + name
	}
	return "[Tool result" + name + ": " + text + "]"
}
