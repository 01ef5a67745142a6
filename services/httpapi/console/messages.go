package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
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

// shownMessage is a chat message as a page shows it.
type shownMessage struct {
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
	others     []message.Item
}

// messagesOf returns the messages of a turn, with each tool's result in its call. rest reports whether some are left
// out since the page is full.
func messagesOf(t *session.Turn, in services.Language, r *room) (list []shownMessage, rest bool) {
	var all []said
	if q := t.Question; q != nil {
		all = half("user", q.QuestionMessages, q.QuestionNeutral, q.QuestionTranslated, in)
	}
	if a := t.Answer; a != nil {
		all = append(all, half("assistant", a.AnswerMessages, a.AnswerNeutral, a.AnswerTranslated, in)...)
	}
	called, results := callsOf(all)
	for _, m := range all {
		others := slices.DeleteFunc(m.others, func(i message.Item) bool { return i.IsOutput() && called[i.CallID()] })
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
func (m said) shown(results map[string]message.Item, r *room) (out shownMessage, full bool) {
	text := []string{m.text}
	for _, i := range m.others {
		if i.IsOutput() && i["output"] != nil {
			text = append(text, message.WordsIn(i["output"]))
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
func callsOf(all []said) (called map[string]bool, results map[string]message.Item) {
	called, results = map[string]bool{}, map[string]message.Item{}
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
func foldedOf(i message.Item, results map[string]message.Item, r *room) foldedItem {
	out := foldedItem{Name: i.Type()}
	body := indented(i.JSON())
	for _, member := range []string{"arguments", "input"} { // of a function's call, and of a custom tool's
		if text := i[member]; text != nil && i.IsCall() {
			out.Call, out.Name, body = true, i.Name(), message.WordsIn(text)
		}
	}
	out.Name, out.JSON = r.take(out.Name, mostName).Text, r.take(body, mostJSON)
	if result, ok := results[i.CallID()]; ok && i.IsCall() {
		text := r.take(message.WordsIn(result["output"]), mostText)
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
	if raw[0] != '{' {
		return said{role: role, text: string(raw)}
	}
	out := said{role: cmp.Or(message.Parse(raw).Speaker(), role)}
	for _, i := range message.Items(raw) {
		if i.Type() == "message" {
			out.text = message.WordsIn(i["content"])
		} else {
			out.others = append(out.others, i)
		}
	}
	return out
}

// indented returns JSON as people read it.
func indented(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
