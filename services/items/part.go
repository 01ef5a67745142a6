package items

import (
	"encoding/json"
	"strings"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
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
)

// textPart is the type of a text part of a role.
func textPart(role string) string {
	if role == roleAssistant {
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
			return Item{"type": quote(chatText), "text": part["text"]}, true
		}
	case partRefusal:
		return Item{"type": quote(partRefusal), "refusal": part["refusal"]}, true
	case partAudio:
		return part, true
	case partImage:
		if isText(part["image_url"]) {
			return Item{"type": quote(chatImage), "image_url": encode(Item{"url": part["image_url"]})}, true
		}
		if holdsNothing(part) {
			return nil, false
		}
		return Item{"type": quote(chatText), "text": quote(conversation.ImageText)}, true
	case partFile:
		if holdsNothing(part) {
			return nil, false
		}
		return Item{"type": quote(chatText), "text": quote(message.FileText(part.text("filename")))}, true
	}
	return Item{"type": quote(chatText), "text": quote("[" + part.Type() + "]")}, true
}

// partOf returns the part of an item's content that a part of a chat message is. Blocks of other vendors are shown as
// text.
func partOf(chat Item, role string) Item {
	switch kind := chat.Type(); kind {
	case chatText:
		return text(chat["text"], role)
	case partInput, partOutput, partRefusal, partImage, partFile, partAudio:
		return normalPart(chat)
	case chatImage:
		url, detail := chat["image_url"], json.RawMessage(nil)
		if o := object(url); o != nil {
			url, detail = o["url"], o["detail"]
		}
		if IsNull(detail) {
			detail = quote("auto")
		}
		return Item{"type": quote(partImage), "image_url": url, "detail": detail}
	case chatFile:
		f := object(chat["file"])
		out := Item{"type": quote(partFile)}
		for _, k := range []string{"file_id", "filename", "file_data"} {
			if isText(f[k]) {
				out[k] = f[k]
			}
		}
		return out
	default:
		return text(quote("["+kind+"]"), role)
	}
}

// text returns a text part of a role.
func text(raw json.RawMessage, role string) Item {
	if !isText(raw) {
		raw = quote("")
	}
	return normalPart(Item{"type": quote(textPart(role)), "text": raw})
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
		part := object(raw)
		if part == nil {
			part = text(raw, role)
		}
		part = withoutData(normalPart(part))
		out = append(out, part)
		says := standIn(part)
		stands := n+1 < len(given) && saysOnly(given[n+1], says)
		if says != "" && holdsNothing(part) && !stands {
			out = append(out, text(quote(says), role))
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
func StandIn(part json.RawMessage) string { return standIn(object(part)) }

// standIn returns the text that stands beside a part whose data is not kept, or "" for another part.
func standIn(part Item) string {
	switch part.Type() {
	case partImage:
		return conversation.ImageText
	case partFile:
		return message.FileText(part.text("filename"))
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

func saysOnly(raw json.RawMessage, says string) bool { return object(raw).text("text") == says }

// isData reports whether a value is a data URL.
func isData(raw json.RawMessage) bool {
	var s string
	_ = json.Unmarshal(raw, &s) // what is no string is no URL
	s = strings.TrimSpace(s)
	return len(s) > 5 && strings.EqualFold(s[:5], "data:")
}
