package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// langChain reads the messages that LangChain's histories keep, {"type", "data"}: in rows that name their session, in
// documents with the messages of one, or in a file for each session.
var langChain = format{
	holds: anyJSON,
	parts: true,
	head: func(raw []byte, file string) (head, error) {
		var r chainRow
		if json.Unmarshal(raw, &r) != nil || len(r.messages()) == 0 {
			return head{}, errors.New("not a message, a row or a history of LangChain")
		}
		id := cmp.Or(r.session(), strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
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

// messages returns the messages of a row.
func (r *chainRow) messages() (all []chainMessage) {
	if r.Type != "" && (r.Data != nil || r.Content != nil) {
		return []chainMessage{r.chainMessage}
	}
	for _, raw := range []json.RawMessage{r.Message, r.History, r.Messages} {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			raw = json.RawMessage(text) // JSON in a text column
		}
		var one chainMessage
		var rows []json.RawMessage
		if json.Unmarshal(raw, &rows) != nil {
			rows = []json.RawMessage{raw}
		}
		for _, row := range rows {
			if json.Unmarshal(row, &text) == nil {
				row = json.RawMessage(text)
			}
			one = chainMessage{}
			if json.Unmarshal(row, &one) == nil && one.Type != "" && (one.Data != nil || one.Content != nil) {
				all = append(all, one)
			}
		}
	}
	return all
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
	d := m.chainData
	if m.Data != nil {
		d = *m.Data
	}
	text := paragraphs(textOf(d.Content, note))
	var calls []toolCall
	for i, c := range d.Calls {
		calls = append(calls, toolCall{cmp.Or(c.ID, fmt.Sprintf("call_%s_%d", n.key(), i)), c.Name, textArgument(c.Args)})
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
	default:
		n.dropped = "of the type " + m.Type
		return
	}
	if text == "" && len(calls) == 0 {
		n.in, n.dropped = nil, droppedEmpty
	}
}
