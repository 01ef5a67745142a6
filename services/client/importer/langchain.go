package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/message"
)

// langChain reads the messages that LangChain's histories keep, {"type", "data"}: in rows that name their session, in
// documents with the messages of one, or in a file for each session.
var langChain = format{
	holds: anyJSON,
	parts: true,
	head: func(raw []byte, file string) (head, error) {
		var r chainRow
		if json.Unmarshal(raw, &r) != nil || !slices.ContainsFunc(r.messages(), (*chainMessage).known) {
			return head{}, errors.New("not a message, a row or a history of LangChain")
		}
		id := r.session()
		if id == "" && file != "" {
			id = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
		return head{id: id, last: r.Created.Time}, nil
	},
	read: readLangChain,
}

// chainRow is a message, a row with one, or a document with those of a session.
type chainRow struct {
	Session      json.RawMessage `json:"session_id"`
	SessionCamel json.RawMessage `json:"sessionId"`
	SessionUpper json.RawMessage `json:"SessionId"`
	Created      clock           `json:"created_at"`
	Message      json.RawMessage `json:"message"`
	History      json.RawMessage `json:"History"`
	Messages     json.RawMessage `json:"messages"`
	chainMessage
}

// chainMessage is a message of LangChain.
type chainMessage struct {
	Type string     `json:"type"`
	Data *chainData `json:"data"`
	chainData
}

type chainData struct {
	Content json.RawMessage `json:"content"`
	Calls   []struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"tool_calls"`
	Extra struct {
		Calls []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"additional_kwargs"`
	CallID string `json:"tool_call_id"`
	Role   string `json:"role"`
}

func (r *chainRow) session() string {
	for _, raw := range []json.RawMessage{r.Session, r.SessionCamel, r.SessionUpper} {
		var text string
		if json.Unmarshal(raw, &text) == nil && text != "" {
			return text
		}
		if says(raw) && raw[0] != '"' && raw[0] != '{' && raw[0] != '[' {
			return string(raw) // a number
		}
	}
	return ""
}

// known reports whether it is a message that could be read.
func (m *chainMessage) known() bool { return m.Type != "" && (m.Data != nil || m.Content != nil) }

// messages returns the messages of a row. One that can't be read is not known.
func (r *chainRow) messages() (all []*chainMessage) {
	if r.known() {
		return []*chainMessage{&r.chainMessage}
	}
	for _, raw := range []json.RawMessage{r.Message, r.History, r.Messages} {
		if message.IsNull(raw) {
			continue
		}
		var rows []json.RawMessage
		if raw = inText(raw); json.Unmarshal(raw, &rows) != nil {
			rows = []json.RawMessage{raw}
		}
		for _, row := range rows {
			one := &chainMessage{}
			if json.Unmarshal(inText(row), one) != nil {
				one = &chainMessage{}
			}
			all = append(all, one)
		}
	}
	return all
}

// inText returns the JSON that a text holds; else the value itself.
func inText(raw json.RawMessage) json.RawMessage {
	if text, is := textIn(raw); is {
		return json.RawMessage(text)
	}
	return raw
}

func readLangChain(records [][]byte, note func(...string)) (*tree, error) {
	t := &tree{}
	for _, raw := range records {
		var r chainRow
		if json.Unmarshal(raw, &r) != nil {
			return nil, errors.New("not a message, a row or a history of LangChain")
		}
		for _, m := range r.messages() {
			// The place of a message is its id: most of LangChain's have none.
			n := &node{id: fmt.Sprint(len(t.nodes) + 1), parent: fmt.Sprint(len(t.nodes)), at: r.Created.Time}
			m.into(n, note)
			t.nodes = append(t.nodes, n)
		}
	}
	if len(t.nodes) == 0 {
		return nil, errNoMessages
	}
	return t, nil
}

// into makes a node say what a message says, or drops it.
func (m *chainMessage) into(n *node, note func(...string)) {
	if !m.known() {
		n.dropped = "not as LangChain keeps messages"
		return
	}
	d := m.chainData
	if m.Data != nil {
		d = *m.Data
	}
	text := paragraphs(textOf(d.Content, note))
	var calls []toolCall
	for i, c := range d.Calls {
		id := cmp.Or(c.ID, fmt.Sprintf("call_%s_%d", n.key(), i))
		calls = append(calls, toolCall{id, c.Name, textArgument(c.Args)})
	}
	if len(calls) == 0 {
		for _, c := range d.Extra.Calls {
			calls = append(calls, toolCall{c.ID, c.Function.Name, c.Function.Arguments})
		}
	}
	kind := strings.TrimSuffix(strings.ToLower(m.Type), "messagechunk")
	if kind == "chat" {
		kind = strings.ToLower(d.Role)
	}
	switch kind {
	case "human", "user":
		n.in = []messageIn{said("user", text)}
	case "ai", "assistant":
		n.in = []messageIn{said("assistant", text)}
		if len(calls) > 0 {
			n.in = []messageIn{calling(text, calls...)}
		}
	case "system", "developer":
		n.in = []messageIn{said(kind, text)}
	case "tool", "function":
		n.in = []messageIn{gave(cmp.Or(d.CallID, "call_"+n.key()), text)}
		return // what gives nothing back is an answer, too
	case "remove":
		n.dropped = "of the type remove"
		return
	default:
		n.dropped = droppedKind
		return
	}
	if text == "" && len(calls) == 0 {
		n.in, n.dropped = nil, droppedEmpty
	}
}
