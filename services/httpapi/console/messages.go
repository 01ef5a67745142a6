package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
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
	// Tokens is how many tokens it has in a prompt; 0 if that is not shown.
	Tokens int
	shownText
	Folded []foldedItem
}

// foldedItem is what of a message is no text: a tool's call with its result, or an item that chat has no form for.
type foldedItem struct {
	// Call: it is a tool's call. Then Name is the tool's, else the type of the item.
	Call   bool
	Name   string
	JSON   shownText
	Result *shownText
}

// said is a recorded message: its text, and the items in it that are no text.
type said struct {
	role, text string
	others     []items.Item
}

// messagesOf returns the messages of a turn, with each tool's result in its call. rest reports whether some are left
// out since the page is full.
func messagesOf(t *conversation.Turn, in services.Language, r *room) (list []message, rest bool) {
	var all []said
	if q := t.Question; q != nil {
		all = half("user", q.QuestionMessages, q.QuestionNeutral, q.QuestionTranslated, in)
	}
	if a := t.Answer; a != nil {
		all = append(all, half("assistant", a.AnswerMessages, a.AnswerNeutral, a.AnswerTranslated, in)...)
	}
	called, results := callsOf(all)
	for _, m := range all {
		others := slices.DeleteFunc(m.others, func(i items.Item) bool { return i.IsOutput() && called[i.CallID()] })
		if m.text == "" && len(others) == 0 && len(m.others) > 0 {
			continue // stands in its call
		}
		if r.left -= frame; r.left <= 0 {
			return list, true
		}
		shown, full := said{m.role, m.text, others}.shown(results, r)
		list = append(list, shown)
		if full {
			return list, true
		}
	}
	return list, false
}

// shown returns a message as pages show it: a result that stands by itself is its text. full reports whether some of it
// is left out since the page is full.
func (m said) shown(results map[string]items.Item, r *room) (out message, full bool) {
	text := []string{m.text}
	for _, i := range m.others {
		if i.IsOutput() && i["output"] != nil {
			text = append(text, textOf(i["output"]))
		}
	}
	out.Role = r.take(m.role, mostName).Text
	out.shownText = r.take(strings.TrimPrefix(strings.Join(text, "\n"), "\n"), mostText)
	for _, i := range m.others {
		if i.IsOutput() && i["output"] != nil {
			continue
		}
		if r.left -= frame; r.left <= 0 {
			return out, true
		}
		out.Folded = append(out.Folded, foldedOf(i, results, r))
	}
	return out, false
}

// callsOf returns the ids of the calls in some messages, and the results by the ids of their calls.
func callsOf(all []said) (called map[string]bool, results map[string]items.Item) {
	called, results = map[string]bool{}, map[string]items.Item{}
	for _, m := range all {
		for _, i := range m.others {
			if i.IsCall() {
				called[i.CallID()] = true
			} else if i.IsOutput() {
				results[i.CallID()] = i
			}
		}
	}
	return called, results
}

// foldedOf returns an item as a message shows it.
func foldedOf(i items.Item, results map[string]items.Item, r *room) foldedItem {
	out := foldedItem{Name: i.Type()}
	body := indented(i.JSON())
	for _, member := range []string{"arguments", "input"} { // of a function's call, and of a custom tool's
		if text := i[member]; text != nil && i.IsCall() {
			out.Call, out.Name, body = true, textOf(i["name"]), textOf(text)
		}
	}
	out.Name, out.JSON = r.take(out.Name, mostName).Text, r.take(body, mostJSON)
	if result, ok := results[i.CallID()]; ok && i.IsCall() {
		text := r.take(textOf(result["output"]), mostText)
		out.Result = &text
	}
	return out
}

// textIn returns the translated text if it is wanted and there is one.
func textIn(text, translation string, translated bool) string {
	if translated && translation != "" {
		return translation
	}
	return text
}

// half returns the messages of a half of a turn, or its text where it has none. Messages are in the neutral language,
// so a translation stands in their place.
func half(role string, raw json.RawMessage, neutral, translation string, in services.Language) (list []said) {
	translated := in == services.Translated && translation != ""
	if translated || !events.HasMessages(raw) {
		if text := textIn(neutral, translation, translated); text != "" {
			list = []said{{role: role, text: text}}
		}
		return list // none of a half whose items were deleted
	}
	var all []json.RawMessage
	_ = json.Unmarshal(raw, &all) // HasMessages has looked
	for _, one := range all {
		list = append(list, saidOf(role, one))
	}
	return list
}

// saidOf takes a recorded message apart. What is no message is shown as it is.
func saidOf(role string, raw json.RawMessage) said {
	var m struct {
		Role string `json:"role"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return said{role: role, text: string(raw)}
	}
	out := said{role: cmp.Or(m.Role, role)}
	for _, i := range items.Of(raw) {
		if i.Type() == "message" {
			out.text = textOf(i["content"])
		} else {
			out.others = append(out.others, i)
		}
	}
	return out
}

// textOf returns the text of a message's content or of a result: a string, parts, or any other JSON as it is. Images
// and files are the text of their reference; they are never loaded.
func textOf(raw json.RawMessage) string {
	var text string
	var parts []contentPart
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return ""
	case json.Unmarshal(raw, &text) == nil:
		return text
	case raw[0] != '[' || json.Unmarshal(raw, &parts) != nil:
		return string(raw)
	}
	lines := make([]string, len(parts))
	for i, p := range parts {
		lines[i] = p.text()
	}
	return strings.Join(lines, "\n")
}

// contentPart is a part of an item's content.
type contentPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
	Filename string `json:"filename"`
}

func (p contentPart) text() string {
	switch reference := cmp.Or(p.ImageURL, p.Filename, p.FileID); {
	case p.Text != "":
		return p.Text
	case p.Refusal != "":
		return "[Refusal: " + p.Refusal + "]"
	case p.Type == "input_image" && reference != "":
		return "[Image: " + reference + "]"
	case p.Type == "input_file" && reference != "":
		return "[File: " + reference + "]"
	default:
		return "[" + p.Type + "]"
	}
}

// indented returns JSON as people read it.
func indented(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
