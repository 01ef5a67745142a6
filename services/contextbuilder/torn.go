package contextbuilder

import (
	"encoding/json"
	"slices"
	"strings"
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

// mend makes text of the loose ends that a turn has torn which the prompt may not show: one that was redacted,
// is pending or was left behind by a boundary. Neither vendor takes a call without its result. What was recorded
// without its other half is left as it came. places are those of the messages' turns; later and earlier tell of a
// place whether such a turn stands after it, or before.
func mend(list []Message, places []uint64, calls, results []end, later, earlier func(place uint64) bool) {
	for _, c := range calls {
		if later(places[c.at]) {
			list[c.at] = list[c.at].saysCall(c.id)
		}
	}
	for _, r := range results {
		if m := list[r.at]; m.role == roleTool && earlier(places[r.at]) {
			list[r.at] = textMessage(roleUser, resultText(m.stored.Name, plainText(m)))
		}
	}
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
