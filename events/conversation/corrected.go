package conversation

import (
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// saying is a half's messages on the way to say what a correction says. A prompt shows the
// messages and not the half's texts, so that the corrected text must stand in them, and nothing
// that the speaker said before. Calls and results of tools, system messages and images stay.
type saying struct {
	role string
	list []map[string]json.RawMessage
}

// correctMessages puts a half's corrected texts into its messages; said is false where only the
// translation was corrected: then the words stay as they are, but those of several messages become one, as
// the translation is. It gives nil where the texts alone say it all.
func correctMessages(raw json.RawMessage, role string, said bool, neutral, translated string) json.RawMessage {
	s := saying{role: role}
	if !events.HasMessages(raw) || json.Unmarshal(raw, &s.list) != nil {
		return nil
	}
	if !said && !slices.ContainsFunc(s.list, s.speaks) {
		return raw // the speaker says nothing in any language
	}
	said = said || s.voices() > 1 && neutral != ""
	at := s.carrier()
	for i, m := range s.list {
		switch {
		case !s.speaks(m):
		case said && i != at:
			s.list[i] = unsaid(m, nil)
		case said:
			s.list[i] = unsaid(m, &neutral)
		default:
			delete(m, "translated")
		}
	}
	if carrier := s.list[at]; translated != "" && translated != neutral {
		carrier["translated"] = encode(translated)
	}
	s.list = slices.DeleteFunc(s.list, func(m map[string]json.RawMessage) bool { return m == nil })
	if len(s.list) == 1 && said && isPlain(s.list[0]) {
		return nil
	}
	return encode(s.list)
}

func (s *saying) speaks(m map[string]json.RawMessage) bool { return text(m["role"]) == s.role }

// voices counts the messages with words of the speaker's.
func (s *saying) voices() (n int) {
	for _, m := range s.list {
		if s.speaks(m) && hasWords(m) {
			n++
		}
	}
	return n
}

// carrier finds the message that is to hold the text: the last one of the speaker that has words, or
// else the last one, or else one more at the end.
func (s *saying) carrier() int {
	at := -1
	for i, m := range s.list {
		if s.speaks(m) && (at < 0 || hasWords(m) || !hasWords(s.list[at])) {
			at = i
		}
	}
	if at < 0 {
		s.list = append(s.list, map[string]json.RawMessage{"role": encode(s.role)})
		at = len(s.list) - 1
	}
	return at
}

func hasWords(m map[string]json.RawMessage) bool {
	return text(m["content"]) != "" || slices.ContainsFunc(partsOf(m["content"]), isText)
}

// unsaid gives of a message what is no text of its speaker, with another text in that place; nil where
// nothing is left. Members that are not known may repeat what was said.
func unsaid(m map[string]json.RawMessage, words *string) map[string]json.RawMessage {
	parts := slices.DeleteFunc(partsOf(m["content"]), func(p map[string]json.RawMessage) bool { return !slices.Contains(wordless, text(p["type"])) })
	own := map[string]json.RawMessage{"role": m["role"], "content": json.RawMessage("null")}
	switch {
	case words != nil && len(parts) == 0:
		own["content"] = encode(*words)
	case words != nil:
		own["content"] = encode(append([]map[string]json.RawMessage{{"type": encode("text"), "text": encode(*words)}}, parts...))
	case len(parts) > 0:
		own["content"] = encode(parts)
	}
	calls := false
	for _, name := range []string{"name", "tool_calls", "function_call"} {
		if v, ok := m[name]; ok {
			own[name], calls = v, calls || name != "name"
		}
	}
	if words == nil && len(parts) == 0 && !calls {
		return nil
	}
	return own
}

// wordless are the parts of a content that stay when its text is another: images, files, and calls and
// results of tools, in the form of either vendor.
var wordless = []string{"image", "image_url", "input_image", "file", "input_file", "document", "tool_use", "tool_result"}

func isText(p map[string]json.RawMessage) bool { return text(p["text"]) != "" }

func isPlain(m map[string]json.RawMessage) bool {
	_, translated := m["translated"]
	return text(m["content"]) != "" && (len(m) == 2 || len(m) == 3 && translated)
}

func partsOf(content json.RawMessage) (parts []map[string]json.RawMessage) {
	_ = json.Unmarshal(content, &parts) // a string has none
	return parts
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // what is no string is none
	return s
}
