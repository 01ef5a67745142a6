package message

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
)

// CleanList checks that a member is a list of chat messages (objects with a role), and replaces base64 image data by
// ImageText. Messages without such data stay byte for byte as they came. why says what is wrong with the list.
func CleanList(raw json.RawMessage) (clean json.RawMessage, why string) {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil, ""
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, "must be a list of chat messages"
	}
	if events.TooDeep(raw) {
		return nil, ErrTooDeep.Error()
	}
	changed := false
	for i, m := range list {
		var head struct {
			Role *string `json:"role"`
		}
		if json.Unmarshal(m, &head) != nil || head.Role == nil || *head.Role == "" {
			return nil, "each message must be an object with a role"
		}
		if clean, ok := withoutImages(m); ok {
			list[i], changed = clean, true
		}
	}
	if !changed {
		return raw, ""
	}
	return events.Raw(list), ""
}

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
		return events.Raw(map[string]any{"role": message["role"], "content": ImageText}), true
	}
	clean, changed := scrub(message, inMessage)
	if !changed {
		return nil, false
	}
	return events.Raw(clean), true
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
		clean := CleanText(v)
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

// CleanObject removes image data from the values of a JSON object.
func CleanObject(members map[string]json.RawMessage) {
	for k, raw := range members {
		var value any
		if !mayHoldImage(string(raw)) || decode(raw, &value) != nil {
			continue
		}
		if clean, changed := scrub(value, inMessage); changed {
			members[k] = events.Raw(clean)
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
	return ok && CleanText(strings.TrimSpace(s)) == ImageText
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

func isData(raw json.RawMessage) bool { return isDataURL(textIn(raw)) }

// HoldsMoreThanText reports whether a message of a list has a part without text, such as an image, or what stands for
// one, or no text at all.
func HoldsMoreThanText(messages json.RawMessage) bool {
	isText := func(kind string) bool { return kind == chatText || kind == partInput }
	return slices.ContainsFunc(ParseList(messages), func(m Message) bool {
		noText := func(p part) bool { return !isText(p.Type) || p.Text == ImageText }
		ofItem := func(p Item) bool { return p.Type() != "" && !isText(p.Type()) }
		return len(m.Texts()) == 0 || slices.ContainsFunc(m.stored.parts, noText) ||
			slices.ContainsFunc(asMembers(m.stored.Item).Parts("content"), ofItem)
	})
}

// decode reads JSON and keeps numbers as they are written.
func decode(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(into)
}
