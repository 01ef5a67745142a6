package contextbuilder

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events/message"
)

// Limits of a client's own history (docs/contract.md#context).
const (
	historyMessages = 20
	historyBytes    = 100 << 10
	historyWarnFrom = 15
)

// cleanHistory takes the role and text of each user and assistant message from a client's own history. It drops all
// else, and never refuses. It keeps the last 20 messages and 100 KB, and of these only whole exchanges within the
// budget. Warnings say what was cut off, or soon will be.
func cleanHistory(list []json.RawMessage, b budget) (out []message.Message, warnings []string) {
	for _, raw := range list {
		var m struct{ Role string }
		if json.Unmarshal(raw, &m) != nil || m.Role != message.User && m.Role != message.Assistant {
			continue
		}
		if text := message.Parse(raw).Words(); text != "" {
			out = append(out, message.New(m.Role, text))
		}
	}
	if len(out) >= historyWarnFrom {
		warnings = append(warnings, "conversation_history is near its limit of 20 messages and 100 KB; "+
			"older messages are dropped")
	}
	out = out[max(0, len(out)-historyMessages):]
	size := 0
	for i, m := range slices.Backward(out) {
		if size += len(m.Text()); size > historyBytes {
			warnings = append(warnings, fmt.Sprintf("conversation_history is larger than 100 KB; its oldest %d of "+
				"the last %d messages are dropped", i+1, len(out)))
			out = out[i+1:]
			break
		}
	}
	return affordable(out, b), warnings
}

// affordable returns the last exchanges that fit a budget. An exchange is a question with all that follows it. As in a
// window, the last question with its answer is always among them.
func affordable(list []message.Message, b budget) []message.Message {
	opens := func(i int) bool { return i == 0 || list[i].Role() == message.User }
	lastPair := len(list) - 1
	for i, m := range slices.Backward(list) {
		if m.Role() == message.Assistant {
			lastPair = i
			break
		}
	}
	for lastPair > 0 && !opens(lastPair) {
		lastPair--
	}
	from, tokens := len(list), 0
	for i := len(list) - 1; i >= 0; i-- {
		if b.tokens > 0 {
			tokens += tokensOf(list[i:i+1], b.count)
		}
		if !opens(i) {
			continue
		}
		if i < lastPair && (len(list)-i > b.messages || tokens > b.tokens && b.tokens > 0) {
			break
		}
		from = i
	}
	return list[from:]
}

// exchanges counts the questions among messages.
func exchanges(list []message.Message) (n int) {
	for _, m := range list {
		if m.Role() == message.User {
			n++
		}
	}
	return n
}
