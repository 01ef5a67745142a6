package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
)

// cleanMessages checks that a field is a list of chat messages (objects with a role), and replaces base64 image data by
// ImageText. Messages without such data stay byte for byte as they came.
func cleanMessages(field string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &Invalid{field, "must be a list of chat messages"}
	}
	if events.TooDeep(raw) {
		return nil, &Invalid{field, tooDeep}
	}
	changed := false
	for i, m := range list {
		var head struct {
			Role *string `json:"role"`
		}
		if json.Unmarshal(m, &head) != nil || head.Role == nil || *head.Role == "" {
			return nil, &Invalid{field, "each message must be an object with a role"}
		}
		if clean, ok := withoutImages(m); ok {
			list[i], changed = clean, true
		}
	}
	if !changed {
		return raw, nil
	}
	return encode(list), nil
}

const tooDeep = "must not nest deeper than 500 levels"

// WithoutImages returns a chat message as the log keeps it: base64 image data has become
// ImageText, and all else is as it came.
func WithoutImages(message json.RawMessage) json.RawMessage {
	if clean, ok := withoutImages(message); ok {
		return clean
	}
	return message
}

// withoutImages returns a message whose base64 images have become ImageText, and
// false if it has none.
func withoutImages(m json.RawMessage) (json.RawMessage, bool) {
	// A type alone may declare an image, and its name may be written with escapes.
	if text := string(m); !mayHoldImage(text) && !containsFold(text, "image") && !containsFold(text, `\u00`) {
		return nil, false
	}
	var message map[string]any
	if decode(m, &message) != nil {
		return nil, false
	}
	if holdsImageData(message) {
		return encode(map[string]any{"role": message["role"], "content": ImageText}), true
	}
	clean, changed := scrub(message, inMessage)
	if !changed {
		return nil, false
	}
	return encode(clean), true
}

// enclosing is what a JSON value belongs to.
type enclosing bool

const (
	// inMessage: no enclosing object declares itself an image. inImage: one does.
	inMessage enclosing = false
	inImage   enclosing = true
)

// scrub removes image data from a JSON value.
func scrub(v any, in enclosing) (any, bool) {
	switch v := v.(type) {
	case string:
		if in == inImage && isBlob(v) {
			return ImageText, true
		}
		clean := cleanText(v)
		return clean, clean != v
	case []any:
		changed := false
		for i := range v {
			clean, c := scrub(v[i], in)
			v[i], changed = clean, changed || c
		}
		return v, changed
	case map[string]any:
		if holdsImageData(v) {
			return map[string]any{"type": "text", "text": ImageText}, true
		}
		kind, _ := v["type"].(string)
		in = in || enclosing(containsFold(kind, "image"))
		changed := false
		for k := range v {
			clean, c := scrub(v[k], in || enclosing(containsFold(k, "image")))
			v[k], changed = clean, changed || c
		}
		return v, changed
	default:
		return v, false
	}
}

// cleanObject removes image data from the values of a JSON object.
func cleanObject(members map[string]json.RawMessage) {
	for k, raw := range members {
		var value any
		if !mayHoldImage(string(raw)) || decode(raw, &value) != nil {
			continue
		}
		if clean, changed := scrub(value, inMessage); changed {
			members[k] = encode(clean)
		}
	}
}

// holdsImageData recognises the vendors' content parts with image bytes: data URLs in OpenAI's image_url and
// input_image, Anthropic's base64 source, the data of MCP's images and Gemini's inline data, the image of the AI SDK,
// and files that are images.
func holdsImageData(part map[string]any) bool {
	image := part["type"] == "image"
	if imageBytes(part, image) || isDataURL(part["image_url"]) || isImage(part["image"]) || isImage(part["file_data"]) {
		return true
	}
	for _, name := range []string{"image_url", "source", "inline_data", "inlineData", "file"} {
		inner, ok := part[name].(map[string]any)
		if ok && (imageBytes(inner, image) || isDataURL(inner["url"]) || isImage(inner["file_data"])) {
			return true
		}
	}
	return false
}

// isImage reports whether a string is image data and nothing else.
func isImage(v any) bool {
	s, ok := v.(string)
	return ok && cleanText(strings.TrimSpace(s)) == ImageText
}

func imageBytes(part map[string]any, image bool) bool {
	for _, name := range []string{"media_type", "mediaType", "mime_type", "mimeType"} {
		mime, _ := part[name].(string)
		image = image || strings.HasPrefix(strings.ToLower(mime), "image/")
	}
	_, ok := part["data"].(string)
	return ok && image
}

func isDataURL(v any) bool {
	s, ok := v.(string)
	s = strings.TrimSpace(s)
	return ok && len(s) > 5 && strings.EqualFold(s[:5], "data:")
}

// holdsNonText reports whether some message has a part without text, such as an image, or no text at all.
func holdsNonText(raw json.RawMessage) bool {
	var list []struct {
		Content json.RawMessage `json:"content"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return false
	}
	for _, m := range list {
		var text string
		var parts []struct {
			Type string `json:"type"`
		}
		switch {
		case json.Unmarshal(m.Content, &text) == nil:
			if text == "" {
				return true
			}
		case json.Unmarshal(m.Content, &parts) == nil:
			for _, p := range parts {
				if p.Type != "text" && p.Type != "input_text" {
					return true
				}
			}
		default:
			return true
		}
	}
	return false
}

// decode reads JSON and keeps numbers as they are written.
func decode(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(into)
}

func encode(v any) json.RawMessage {
	raw, _ := events.JSON(v) // never fails: v came from JSON
	return raw
}

func hasUser(messages json.RawMessage) bool {
	var list []struct{ Role string }
	_ = json.Unmarshal(messages, &list) // messages were checked when they were recorded
	return slices.ContainsFunc(list, func(m struct{ Role string }) bool { return m.Role == "user" })
}

// requestOfMessage returns the request, or the id of an extension, under which message i of an AddMessages goes in.
func requestOfMessage(request string, i int) string { return fmt.Sprintf("%s#%d", request, i) }

// RequestOf returns the request of the AddMessages that gave a turn's request, or an extension, its id; "" for an id
// of another kind.
func RequestOf(id string) string { return id[:max(0, strings.LastIndexByte(id, '#'))] }
