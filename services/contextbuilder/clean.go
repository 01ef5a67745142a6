package contextbuilder

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Limits of a client's own history (CONTRACT §2).
const (
	historyMessages = 20
	historyBytes    = 100 << 10
	historyWarnFrom = 15
)

// cleanHistory takes a client's own history: role and content of what is a message
// of a user or an assistant; the rest is dropped, never refused. The last messages are
// kept, up to the budget, 20 and 100 KB. Warnings say what was cut off, or soon will be.
func cleanHistory(list []json.RawMessage, b budget) (out []Message, warnings []string) {
	for _, raw := range list {
		var m struct {
			Role    string  `json:"role"`
			Content *string `json:"content"`
		}
		if json.Unmarshal(raw, &m) != nil || m.Content == nil || *m.Content == "" || (m.Role != "user" && m.Role != "assistant") {
			continue
		}
		out = append(out, textMessage(m.Role, *m.Content))
	}
	if len(out) >= historyWarnFrom {
		warnings = append(warnings, "conversation_history is near its limit of 20 messages and 100 KB; older messages are dropped")
	}
	out = out[max(0, len(out)-min(b.messages, historyMessages)):]
	size := 0
	for i, m := range slices.Backward(out) {
		if size += len(m.text); size > historyBytes {
			return out[i+1:], append(warnings, fmt.Sprintf("conversation_history is larger than 100 KB; its oldest %d of the last %d messages are dropped", i+1, len(out)))
		}
	}
	return out[len(out)-affordable(out, b):], warnings
}

// affordable tells how many of the last messages a budget of tokens has room for; the
// last question and its answer always are.
func affordable(list []Message, b budget) int {
	if b.tokens == 0 {
		return len(list)
	}
	n, tokens := 0, 0
	for _, m := range slices.Backward(list) {
		if tokens += tokensOf([]Message{m}, b.count); tokens > b.tokens && n >= LeastMessages {
			break
		}
		n++
	}
	return n
}

// exchanges counts the questions among messages.
func exchanges(list []Message) (n int) {
	for _, m := range list {
		if m.role == roleUser {
			n++
		}
	}
	return n
}
