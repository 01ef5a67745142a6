package message

import (
	"cmp"
	"encoding/json"

	"github.com/turnledger/turnledger/events"
)

// Types of parts: of an item's content, and of a chat message's.
const (
	partInput   = "input_text"
	partOutput  = "output_text"
	partRefusal = "refusal"
	partImage   = "input_image"
	partFile    = "input_file"
	partAudio   = "input_audio"
	chatText    = "text"
	chatImage   = "image_url"
	chatFile    = "file"

	toolUse        = "tool_use"
	toolResult     = "tool_result"
	thinking       = "thinking"
	hiddenThinking = "redacted_thinking"
)

// textType is the type of a text part of a role.
func textType(role string) string {
	if role == Assistant {
		return partOutput
	}
	return partInput
}

// chatOf returns the part of a chat message that says most of what an item's part says. An image or a file that nothing
// is kept of says nothing: a text beside it does (Normal).
func chatOf(part Item) (chat Item, says bool) {
	switch part.Type() {
	case partInput, partOutput, chatText, "summary_text", "reasoning_text":
		if isText(part["text"]) {
			return Item{"type": asText(chatText), "text": part["text"]}, true
		}
	case partRefusal:
		return Item{"type": asText(partRefusal), "refusal": part["refusal"]}, true
	case partAudio:
		return part, true
	case partImage:
		if isText(part["image_url"]) {
			return Item{"type": asText(chatImage), "image_url": events.Raw(Item{"url": part["image_url"]})}, true
		}
		if holdsNothing(part) {
			return nil, false
		}
		return Item{"type": asText(chatText), "text": asText(ImageText)}, true
	case partFile:
		if holdsNothing(part) {
			return nil, false
		}
		return Item{"type": asText(chatText), "text": asText(FileText(part.Text("filename")))}, true
	}
	return Item{"type": asText(chatText), "text": asText("[" + part.Type() + "]")}, true
}

// item returns the part of an item's content that a part of a chat message is. Blocks of other vendors are shown as
// text.
func (p part) item(role string) Item {
	members := asMembers(p.raw)
	switch p.Type {
	case partInput, partOutput, partRefusal, partImage, partFile, partAudio:
		return normalPart(members)
	case chatImage:
		url, detail := p.ImageURL, json.RawMessage(nil)
		if o := asMembers(url); o != nil {
			url, detail = o["url"], o["detail"]
		}
		if IsNull(detail) {
			detail = asText("auto")
		}
		return Item{"type": asText(partImage), "image_url": url, "detail": detail}
	case chatFile:
		f := asMembers(members["file"])
		out := Item{"type": asText(partFile)}
		for _, k := range []string{"file_id", "filename", "file_data"} {
			if isText(f[k]) {
				out[k] = f[k]
			}
		}
		return out
	case chatText:
		if isText(members["text"]) {
			return text(members["text"], role) // as it is written
		}
	}
	return text(asText(cmp.Or(textIn(p.raw), p.words())), role)
}

// text returns a text part of a role.
func text(raw json.RawMessage, role string) Item {
	if !isText(raw) {
		raw = asText("")
	}
	return normalPart(Item{"type": asText(textType(role)), "text": raw})
}

// neverNullParts are the members of parts that a client may send as null, and that are then left out: see neverNull.
var neverNullParts = []string{"prompt_cache_breakpoint", "filename", "file_data", "file_url"}

// normalPart adds what the API shows of a part that lacks it.
func normalPart(part Item) Item {
	part = part.withoutNull(neverNullParts)
	switch part.Type() {
	case partOutput:
		for _, k := range []string{"annotations", "logprobs"} {
			if IsNull(part[k]) {
				part = part.With(k, []string{})
			}
		}
	case partImage:
		if IsNull(part["detail"]) {
			part = part.With("detail", "auto")
		}
		if part["image_url"] == nil {
			part = part.With("image_url", nil)
		}
	}
	return part
}

// normalParts returns the parts of a content, or of an output, in the form that is given back. Base64 data has become
// text.
func normalParts(content json.RawMessage, role string) []Item {
	if isText(content) {
		return []Item{text(content, role)}
	}
	out := []Item{}
	given := list(content)
	for n, raw := range given {
		part := asMembers(raw)
		if part == nil {
			part = text(raw, role)
		}
		part = withoutData(normalPart(part))
		out = append(out, part)
		says := part.StandIn()
		stands := n+1 < len(given) && saysOnly(given[n+1], says)
		if says != "" && holdsNothing(part) && !stands {
			out = append(out, text(asText(says), role))
		}
	}
	return out
}

// withoutData takes base64 data out of a part.
func withoutData(part Item) Item {
	switch part.Type() {
	case partImage, "computer_screenshot":
		if isData(part["image_url"]) {
			return part.With("image_url", nil)
		}
	case partFile:
		return part.without("file_data")
	}
	return part
}

// StandIn returns the text that stands beside a part whose data is not kept, or "" for another part.
func (i Item) StandIn() string {
	switch i.Type() {
	case partImage:
		return ImageText
	case partFile:
		return FileText(i.Text("filename"))
	}
	return ""
}

// holdsNothing reports whether an image or a file has neither data nor an address nor an id.
func holdsNothing(part Item) bool {
	for _, name := range []string{"image_url", "file_data", "file_url"} {
		if isText(part[name]) {
			return false
		}
	}
	return IsNull(part["file_id"])
}

func saysOnly(raw json.RawMessage, says string) bool { return asMembers(raw).Text("text") == says }
