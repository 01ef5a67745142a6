package anthropic

import (
	"bytes"
	"encoding/json"
)

// withThoughts returns the messages as the API takes them: with every thought, unchanged, where thinking is asked for,
// since an answer that goes on after the results of its tools needs them; else with none
// (https://platform.claude.com/docs/build-with-claude/thinking-tool-workflows).
func withThoughts(asked bool, messages []json.RawMessage) []json.RawMessage {
	if asked {
		return messages
	}
	out := make([]json.RawMessage, len(messages))
	for i, raw := range messages {
		out[i] = withoutThoughts(raw)
	}
	return out
}

// withoutThoughts returns a message without thoughts. The API takes no empty message.
func withoutThoughts(raw json.RawMessage) json.RawMessage {
	var m struct {
		Role    string
		Content []json.RawMessage
	}
	if !bytes.Contains(raw, []byte("thinking")) || json.Unmarshal(raw, &m) != nil {
		return raw
	}
	left := []json.RawMessage{}
	for _, b := range m.Content {
		var head struct{ Type string }
		_ = json.Unmarshal(b, &head) // the context builder made it
		if head.Type != "thinking" && head.Type != "redacted_thinking" {
			left = append(left, b)
		}
	}
	var content any = left
	if len(left) == 0 {
		content = "(no text)"
	}
	out, _ := json.Marshal(map[string]any{"role": m.Role, "content": content}) // it came from JSON
	return out
}
