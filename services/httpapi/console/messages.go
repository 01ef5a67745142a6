package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// room is what is left of a page for texts, in bytes of HTML.
type room struct{ left int }

// Bounds of a page in bytes of HTML: all texts of its turns, all JSON of its events, one text, one event, and what a
// message or an event takes besides its text.
const (
	roomOfTurns  = 150_000
	roomOfEvents = 90_000
	mostText     = 8_000
	mostJSON     = 2_500
	mostName     = 300
	frame        = 300
	frameOfEvent = 900
	frameOfLink  = 40
)

// shownText is a text, or its beginning.
type shownText struct {
	Text string
	// Left is how many bytes of the text are not shown.
	Left int
}

// take returns as much of a text as there is room for, at most most.
func (r *room) take(s string, most int) shownText {
	limit, used := max(min(most, r.left), 0), 0
	for i, c := range s {
		cost := utf8.RuneLen(c)
		if strings.ContainsRune(`"'&<>`+"\x00", c) {
			cost = len("&#34;")
		} else if c < ' ' || c == 0x7f {
			cost = len("\u2400")
		}
		if used+cost > limit {
			r.left -= used
			return shownText{s[:i], len(s) - i}
		}
		used += cost
	}
	r.left -= used
	return shownText{s, 0}
}

// message is a chat message as a page shows it.
type message struct {
	Role string
	shownText
	Calls []toolCall
}

// toolCall is a call of a tool with its result, if the turn has it.
type toolCall struct {
	Name      string
	Arguments shownText
	Result    *shownText
}

// chatMessage is a chat message in the OpenAI form, as far as pages show it.
type chatMessage struct {
	Role       string          `json:"role"`
	Name       string          `json:"name"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// messagesOf returns the messages of a turn, with each tool's result in its call. rest reports whether some are left
// out since the page is full.
func messagesOf(t *conversation.Turn, in services.Language, r *room) (list []message, rest bool) {
	translated := in == services.Translated
	var all []chatMessage
	if q := t.Question; q != nil {
		text := textIn(q.QuestionNeutral, q.QuestionTranslated, translated)
		all = half(all, "user", q.QuestionMessages, text, translated)
	}
	if a := t.Answer; a != nil {
		text := textIn(a.AnswerNeutral, a.AnswerTranslated, translated)
		all = half(all, "assistant", a.AnswerMessages, text, translated)
	}
	results := map[string]string{}
	called := map[string]bool{}
	for _, m := range all {
		for _, c := range m.ToolCalls {
			called[c.ID] = true
		}
		if m.Role == "tool" && m.ToolCallID != "" {
			results[m.ToolCallID] = textOf(m.Content)
		}
	}
	for _, m := range all {
		if m.Role == "tool" && called[m.ToolCallID] {
			continue // stands in its call
		}
		if r.left -= frame; r.left <= 0 {
			return list, true
		}
		shown := message{Role: r.take(m.Role, mostName).Text, shownText: r.take(textOf(m.Content), mostText)}
		for _, c := range m.ToolCalls {
			if r.left -= frame; r.left <= 0 {
				return append(list, shown), true
			}
			call := toolCall{Name: r.take(c.Function.Name, mostName).Text}
			call.Arguments = r.take(textOf(c.Function.Arguments), mostJSON)
			if text, ok := results[c.ID]; ok && c.ID != "" {
				result := r.take(text, mostText)
				call.Result = &result
			}
			shown.Calls = append(shown.Calls, call)
		}
		list = append(list, shown)
	}
	return list, false
}

// textIn returns the translated text if it is wanted and there is one.
func textIn(text, translation string, translated bool) string {
	if translated && translation != "" {
		return translation
	}
	return text
}

// half adds the messages of a half of a turn, or its text where it has none. Messages are in the neutral language, so
// the translated text goes before them.
func half(to []chatMessage, role string, raw json.RawMessage, text string, translated bool) []chatMessage {
	if events.HasMessages(raw) && !translated {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, one := range list {
				m := chatMessage{}
				if json.Unmarshal(one, &m) != nil {
					m = chatMessage{Role: role, Content: one} // shown as it is
				}
				to = append(to, m)
			}
			return to
		}
	}
	content, _ := json.Marshal(text) // a string always encodes
	return append(to, chatMessage{Role: role, Content: content})
}

// textOf returns the text of a message's content: a string, parts, or any other JSON as it is. An image is the text of
// its reference; it is never loaded.
func textOf(raw json.RawMessage) string {
	var text string
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		ImageURL json.RawMessage `json:"image_url"`
	}
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return ""
	case json.Unmarshal(raw, &text) == nil:
		return text
	case raw[0] != '[' || json.Unmarshal(raw, &parts) != nil:
		return string(raw)
	}
	var lines []string
	for _, p := range parts {
		switch {
		case p.Text != "":
			lines = append(lines, p.Text)
		case len(p.ImageURL) > 0:
			lines = append(lines, "[Image: "+imageOf(p.ImageURL)+"]")
		default:
			lines = append(lines, "["+p.Type+"]")
		}
	}
	return strings.Join(lines, "\n")
}

// imageOf returns the reference of an image, which is a string or an object with one.
func imageOf(raw json.RawMessage) string {
	var object struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(raw, &object) == nil && object.URL != "" {
		return object.URL
	}
	return textOf(raw)
}

// indented returns JSON as people read it.
func indented(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
