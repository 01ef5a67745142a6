package align

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/services/items"
)

// meaning is what an item says, as digests: neither its id, nor white space or the order of members in JSON. shows is
// that of addresses of images and files, which are told only to who asks for them; zero where none is told.
type meaning struct{ says, shows [sha256.Size]byte }

// is reports whether two items mean the same.
func (m meaning) is(o meaning) bool {
	var untold [sha256.Size]byte
	return m.says == o.says && (m.shows == o.shows || m.shows == untold || o.shows == untold)
}

func meanings(all []items.Item) []meaning {
	out := make([]meaning, len(all))
	for n, i := range all {
		out[n] = meaningOf(i)
	}
	return out
}

func meaningOf(i items.Item) (m meaning) {
	says := []any{i.Type(), i.CallID()}
	var shown []string
	switch i.Type() {
	case "message":
		role := text(i["role"])
		if role == "developer" {
			role = "system"
		}
		says, shown = append(says, role), addresses(i["content"])
		says = append(says, words(i["content"])...)
	case "function_call", "custom_tool_call":
		says = append(says, i.Name(), data(i["arguments"]), data(i["input"]))
	case "function_call_output", "custom_tool_call_output":
		says, shown = append(says, words(i["output"])...), addresses(i["output"])
	default:
		says = append(says, bare(value(i.JSON())))
	}
	raw, _ := json.Marshal(says) // never fails: it came from JSON
	m.says = sha256.Sum256(raw)
	if len(shown) > 0 {
		m.shows = sha256.Sum256([]byte(strings.Join(shown, "\x00")))
	}
	return m
}

// words returns what a content or an output says, part by part. What stands for an image's or a file's data says no
// more than the part beside it.
func words(content json.RawMessage) (out []any) {
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return []any{data(content)}
	}
	standsFor := ""
	for _, raw := range parts {
		var p struct{ Type, Text, Refusal, Filename string }
		_ = json.Unmarshal(raw, &p) // what is no part says what it is
		said := strings.TrimSpace(p.Text + p.Refusal)
		switch {
		case p.Type == "input_image" || p.Type == "input_file":
			out, standsFor = append(out, p.Type+" "+p.Filename), items.StandIn(raw)
			continue
		case said != "" && said == standsFor:
		case said != "":
			out = append(out, data(quoted(said)))
		default:
			out = append(out, bare(value(raw)))
		}
		standsFor = ""
	}
	return out
}

// addresses returns where the images and files of a content are.
func addresses(content json.RawMessage) (out []string) {
	var parts []json.RawMessage
	_ = json.Unmarshal(content, &parts) // a text has none
	for _, raw := range parts {
		var p struct {
			URL  string `json:"image_url"`
			File string `json:"file_id"`
			At   string `json:"file_url"`
		}
		_ = json.Unmarshal(raw, &p)
		if at := p.URL + p.File + p.At; at != "" && !strings.HasPrefix(at, "data:") {
			out = append(out, at)
		}
	}
	return out
}

// data returns a text, or the value of one that is JSON itself.
func data(raw json.RawMessage) any {
	said := strings.TrimSpace(text(raw))
	if strings.HasPrefix(said, "{") || strings.HasPrefix(said, "[") {
		if json.Valid([]byte(said)) {
			return value(json.RawMessage(said))
		}
	}
	if said != "" || bytes.HasPrefix(raw, []byte(`"`)) {
		return said
	}
	return value(raw)
}

// untold are the members that name an item, or that are shown only to who asks for them.
var untold = []string{
	"id", "status", "annotations", "logprobs", "encrypted_content", "results", "outputs", "sources", "image_url",
}

// bare returns a value without members that say nothing.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, of := range v {
			if list, is := of.([]any); of != nil && (!is || len(list) > 0) && !slices.Contains(untold, name) {
				out[name] = bare(of)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for n := range v {
			out[n] = bare(v[n])
		}
		return out
	default:
		return v
	}
}

func value(raw json.RawMessage) (v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	_ = d.Decode(&v) // raw came from a JSON document
	return v
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // what is no text is none
	return s
}

func quoted(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // never fails
	return raw
}
