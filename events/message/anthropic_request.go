package message

import (
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// AnthropicRequest returns messages that Anthropic rendered as a request has them, and the names of the tools that they
// call. Where thinking is asked for, every thought stays unchanged, since an answer that goes on after the results of
// its tools needs them; else none does
// (https://platform.claude.com/docs/build-with-claude/thinking-tool-workflows). The end of the history, which is all
// before the last message, is marked, so that the API reads it from its cache the next time
// (https://platform.claude.com/docs/build-with-claude/prompt-caching).
func AnthropicRequest(messages []json.RawMessage, thinks bool) (sent []json.RawMessage, called []string) {
	for n, raw := range messages {
		m := read(raw)
		isThought := func(b Item) bool { return slices.Contains([]string{thinking, hiddenThinking}, b.Type()) }
		var blocks []Item
		for _, p := range m.stored.parts {
			if b := asMembers(p.raw); thinks || !isThought(b) {
				blocks = append(blocks, b)
			}
			if p.Type == toolUse {
				called = append(called, p.Name)
			}
		}
		changed := len(blocks) < len(m.stored.parts)
		if len(blocks) == 0 { // a text, or nothing but thoughts: the API takes no empty message
			said := m.stored.Content
			if changed {
				said = asText(noText)
			}
			blocks = []Item{{"type": asText(chatText), "text": said}}
		}
		if n == len(messages)-2 {
			for _, b := range slices.Backward(blocks) {
				if !isThought(b) { // which take no mark
					b["cache_control"], changed = json.RawMessage(`{"type":"ephemeral"}`), true
					break
				}
			}
		}
		if changed {
			raw = events.Raw(Item{"role": asText(m.role), "content": events.Raw(blocks)})
		}
		sent = append(sent, raw)
	}
	return sent, called
}
