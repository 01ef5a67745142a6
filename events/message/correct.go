package message

import (
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// Correction is the corrected texts of one half of a turn, and the role of its speaker.
type Correction struct{ Role, Neutral, Translated string }

// Of puts the texts into the messages of the half. A prompt shows these messages in place of the half's texts. So they
// must hold the corrected text, and no earlier words of the speaker. Calls and results of tools, system messages and
// images stay. If worded is false, only the translation was corrected. Then the words stay, but if several messages
// have words, they become one message, since there is only one translation. Of returns nil if the texts alone are
// enough.
func (to Correction) Of(messages json.RawMessage, worded bool) json.RawMessage {
	var all []Message
	at, spoken := -1, 0 // the message that is to hold the text, and how many of the speaker have one
	for n, raw := range list(messages) {
		m := read(raw)
		if all = append(all, m); m.Speaker() != to.Role {
			continue
		}
		words := len(m.Texts()) > 0
		if at < 0 || words || spoken == 0 {
			at = n
		}
		if words {
			spoken++
		}
	}
	switch {
	case len(all) == 0:
		return nil
	case at >= 0:
	case !worded:
		return messages // the speaker has no message
	default:
		at, all = len(all), append(all, New(to.Role, ""))
	}
	worded = worded || spoken > 1 && to.Neutral != ""
	out := []Item{}
	for n, m := range all {
		own := asMembers(m.JSON())
		switch {
		case m.Speaker() != to.Role:
		case !worded:
			delete(own, "translated")
		case n == at:
			own = m.reworded(own, &to.Neutral)
		default:
			own = m.reworded(own, nil)
		}
		if n == at && to.Translated != "" && to.Translated != to.Neutral {
			own["translated"] = asText(to.Translated)
		}
		if own != nil {
			out = append(out, own)
		}
	}
	if len(out) == 1 && worded && out[0].isPlain() {
		return nil
	}
	return events.Raw(out)
}

// reworded returns the members of a message with its text replaced by words, or removed if words is nil. It returns nil
// if nothing is left. It keeps only the members that it knows, since any other member may repeat the old text.
func (m Message) reworded(members Item, words *string) Item {
	var parts []json.RawMessage
	if m.stored != nil {
		for _, p := range m.stored.parts {
			if slices.Contains(textless, p.Type) {
				parts = append(parts, p.raw)
			}
		}
	}
	own := Item{"role": members["role"], "content": null}
	switch {
	case words != nil && len(parts) == 0:
		own["content"] = asText(*words)
	case words != nil:
		own["content"] = events.Raw(slices.Insert(parts, 0, textPart(*words)))
	case len(parts) > 0:
		own["content"] = events.Raw(parts)
	}
	calls := false
	for _, name := range []string{"name", "tool_calls", "function_call"} {
		if v, ok := members[name]; ok {
			own[name], calls = v, calls || name != "name"
		}
	}
	if words == nil && len(parts) == 0 && !calls {
		return nil
	}
	return own
}

// textless are the types of the parts of a content that stay when its text is replaced: images, files, and calls and
// results of tools.
var textless = []string{
	"image", chatImage, partImage, chatFile, partFile, "document", toolUse, toolResult,
}

// isPlain reports whether a message is a text, perhaps with its translation, and nothing else.
func (i Item) isPlain() bool {
	_, translated := i["translated"]
	return i.Text("content") != "" && (len(i) == 2 || len(i) == 3 && translated)
}
