package respond

import (
	"bytes"
	"encoding/json"

	"github.com/turnledger/turnledger/services"
)

// withoutSecrets returns the settings that the log keeps and that a response repeats: without what a hosted tool shows
// to servers of others, such as an access token. The model's endpoint gets the tools as they came.
func withoutSecrets(s services.Settings) services.Settings {
	var tools []json.RawMessage
	if s["tools"] == nil || json.Unmarshal(s["tools"], &tools) != nil {
		return s
	}
	for i, raw := range tools {
		var tool map[string]any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&tool) != nil || tool["type"] == services.ToolFunction || tool["type"] == services.ToolCustom {
			continue
		}
		dropSecrets(tool)
		tools[i] = encode(tool)
	}
	s["tools"] = encode(tools)
	return s
}

// dropSecrets deletes the members that hold secrets, however deep. The parameters of a function are a schema, which may
// have members of these names.
func dropSecrets(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			switch name {
			case "authorization", "domain_secrets", "headers":
				delete(v, name)
			case "parameters":
			default:
				dropSecrets(member)
			}
		}
	case []any:
		for _, member := range v {
			dropSecrets(member)
		}
	}
}
