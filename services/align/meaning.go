package align

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/message"
)

// meaning is what an item says, as digests: neither its id, nor white space or the order of members in JSON. shows is
// that of addresses of images and files, which are told only to who asks for them; zero where none is told.
type meaning struct{ says, shows [sha256.Size]byte }

// is reports whether two items mean the same.
func (m meaning) is(o meaning) bool {
	var untold [sha256.Size]byte
	return m.says == o.says && (m.shows == o.shows || m.shows == untold || o.shows == untold)
}

func meanings(all []message.Item) []meaning {
	out := make([]meaning, len(all))
	for n, i := range all {
		out[n] = meaningOf(i)
	}
	return out
}

func meaningOf(i message.Item) (m meaning) {
	says := []any{i.Type(), i.CallID()}
	var shown []string
	switch i.Type() {
	case "message":
		role := i.Text("role")
		if role == "developer" {
			role = "system"
		}
		says, shown = append(says, role), addresses(i.Parts("content"))
		says = append(says, words(i, "content")...)
	case "function_call", "custom_tool_call":
		says = append(says, i.Name(), data(i["arguments"]), data(i["input"]))
	case "function_call_output", "custom_tool_call_output":
		says, shown = append(says, words(i, "output")...), addresses(i.Parts("output"))
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
func words(i message.Item, member string) (out []any) {
	parts := i.Parts(member)
	if parts == nil {
		return []any{data(i[member])}
	}
	standsFor := ""
	for _, p := range parts {
		said := normal(p.Text("text") + p.Text("refusal"))
		if standIn := p.StandIn(); standIn != "" {
			out, standsFor = append(out, p.Type()+" "+p.Text("filename")), standIn
			continue
		}
		switch {
		case said != "" && said == standsFor:
		case said != "":
			out = append(out, ofText(said))
		default:
			out = append(out, bare(value(p.JSON())))
		}
		standsFor = ""
	}
	return out
}

// addresses returns where the images and files of a content are.
func addresses(parts []message.Item) (out []string) {
	for _, p := range parts {
		at := p.Text("image_url") + p.Text("file_id") + p.Text("file_url")
		if at != "" && !strings.HasPrefix(at, "data:") {
			out = append(out, at)
		}
	}
	return out
}

// data returns a text, or the value of one that is JSON itself.
func data(raw json.RawMessage) any {
	var text string
	if message.IsNull(raw) || json.Unmarshal(raw, &text) != nil {
		return value(raw)
	}
	return ofText(normal(text))
}

// normal returns a text without white space at its ends, with one kind of line ends.
func normal(text string) string { return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) }

func ofText(said string) any {
	if (strings.HasPrefix(said, "{") || strings.HasPrefix(said, "[")) && json.Valid([]byte(said)) {
		return value(json.RawMessage(said))
	}
	return said
}

// untold are the members that name an item, or that are shown only to who asks for them.
var untold = []string{
	"id", "status", "annotations", "logprobs", "encrypted_content", "results", "outputs", "sources", "image_url",
	"upstream",
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
