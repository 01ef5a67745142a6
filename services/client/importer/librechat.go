package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events/message"
)

// libreChat reads the JSON that LibreChat exports of a conversation: messages in a row, or each below the one that it
// follows.
var libreChat = format{
	holds: anyJSON,
	head: func(raw []byte, _ string) (head, error) {
		var c libreConversation
		if json.Unmarshal(raw, &c) != nil || c.ID == "" || c.Messages == nil && c.Tree == nil {
			return head{}, errNotLibreChat
		}
		h := head{id: c.ID}
		err := c.each(func(m *libreMessage, _ string) { h.last = latest(h.last, m.Created.Time) })
		return h, err
	},
	read: readLibreChat,
}

type libreConversation struct {
	ID       string          `json:"conversationId"`
	Title    string          `json:"title"`
	Messages json.RawMessage `json:"messages"`
	Tree     json.RawMessage `json:"messagesTree"`
}

type libreMessage struct {
	ID       string                   `json:"messageId"`
	Parent   *string                  `json:"parentMessageId"`
	User     maybe[bool]              `json:"isCreatedByUser"`
	Created  clock                    `json:"createdAt"`
	Text     maybe[string]            `json:"text"`
	Error    maybe[bool]              `json:"error"`
	Model    maybe[string]            `json:"model"`
	Content  maybe[[]json.RawMessage] `json:"content"`
	Files    maybe[[]libreFile]       `json:"files"`
	Attached maybe[[]libreFile]       `json:"attachments"`
	Children []*libreMessage          `json:"children"`
}

// odd reports whether a message is none as LibreChat exports them.
func (m *libreMessage) odd() bool {
	none := m.ID == "" && m.Text.of == "" && len(m.Content.of) == 0
	return none || m.User.odd || m.Text.odd || m.Error.odd || m.Content.odd || m.Files.odd || m.Attached.odd
}

// maybe is a member that may be of another type; then it is odd, and what stands beside it is read.
type maybe[T any] struct {
	of  T
	odd bool
}

// UnmarshalJSON reads the member.
func (m *maybe[T]) UnmarshalJSON(raw []byte) error {
	m.odd = json.Unmarshal(raw, &m.of) != nil
	return nil
}

type libreFile struct {
	Name string `json:"filename"`
	Type string `json:"type"`
}

var errNotLibreChat = errors.New("not a conversation of LibreChat")

// each calls use for every message, with the id of the one that it stands below. One that can't be read is odd.
func (c *libreConversation) each(use func(m *libreMessage, above string)) error {
	type place struct {
		m     *libreMessage
		above string
	}
	var next []place // the first on top
	below := func(all []*libreMessage, above string) {
		for _, m := range slices.Backward(all) {
			if m == nil {
				m = &libreMessage{}
			}
			next = append(next, place{m, above})
		}
	}
	for _, raw := range []json.RawMessage{c.Tree, c.Messages} {
		var all []*libreMessage
		one := &libreMessage{}
		switch {
		case message.IsNull(raw):
		case raw[0] == '[':
			_ = json.Unmarshal(raw, &all) // what is of another type is odd
		case raw[0] == '{':
			_ = json.Unmarshal(raw, one) // as above
			if all = one.Children; one.ID != "" {
				all = []*libreMessage{one}
			}
		default:
			return errNotLibreChat
		}
		below(all, "")
	}
	for len(next) > 0 {
		p := next[len(next)-1]
		next = next[:len(next)-1]
		use(p.m, p.above)
		below(p.m.Children, p.m.ID)
	}
	return nil
}

func readLibreChat(records [][]byte, note func(...string)) (*tree, error) {
	var c libreConversation
	if err := json.Unmarshal(records[0], &c); err != nil {
		return nil, errNotLibreChat
	}
	noteMembers(records[0], note, "conversationId", "title", "messages", "messagesTree", "recursive", "branches",
		"exportAt")
	t := &tree{title: c.Title}
	err := c.each(func(m *libreMessage, above string) {
		n := &node{id: m.ID, parent: above, at: m.Created.Time}
		if n.id == "" {
			n.id = fmt.Sprint(len(t.nodes))
			if m.odd() {
				n.id = "odd " + n.id // no message has it
			}
		}
		if above == "" && m.Parent != nil {
			n.parent = *m.Parent
		}
		if m.Model.of != "" {
			note("model")
		}
		m.into(n, note)
		t.nodes = append(t.nodes, n)
	})
	t.current = newest(t.nodes)
	return t, err
}

// newest returns the id of the message that LibreChat shows last: the newest answer to the newest at each place.
func newest(nodes []*node) (id string) {
	last := map[string]*node{}
	known := map[string]bool{}
	for _, n := range nodes {
		known[n.id] = true
	}
	for _, n := range nodes {
		up := n.parent
		if !known[up] {
			up = ""
		}
		if was := last[up]; was == nil || !n.at.Before(was.at) {
			last[up] = n
		}
	}
	for range nodes {
		n := last[id]
		if n == nil {
			break
		}
		id = n.id
	}
	return id
}

// into makes a node say what a message says, or drops it.
func (m *libreMessage) into(n *node, note func(...string)) {
	role := "assistant"
	if m.User.of {
		role = "user"
	}
	text := ""
	for i, raw := range m.Content.of {
		var p struct {
			Type string `json:"type"`
			Call struct {
				ID       string          `json:"id"`
				Name     string          `json:"name"`
				Args     json.RawMessage `json:"args"`
				Output   *string         `json:"output"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
					Output    string `json:"output"`
				} `json:"function"`
			} `json:"tool_call"`
		}
		_ = json.Unmarshal(raw, &p) // what is odd has no type
		switch p.Type {
		case "tool_call":
			c := toolCall{p.Call.ID, p.Call.Name, textArgument(p.Call.Args)}
			if c.name == "" {
				c.name, c.arguments = p.Call.Function.Name, p.Call.Function.Arguments
			}
			if c.id == "" {
				c.id = fmt.Sprintf("call_%s_%d", n.key(), i)
			}
			n.in = append(n.in, calling(text, c))
			text = ""
			if p.Call.Output != nil || p.Call.Function.Output != "" {
				output := p.Call.Function.Output
				if p.Call.Output != nil {
					output = *p.Call.Output
				}
				n.in = append(n.in, gave(c.id, output))
			}
		case "image_file", "image_url":
			text = paragraphs(text, message.ImageText)
		default:
			text = paragraphs(text, textOf(json.RawMessage("["+string(raw)+"]"), note))
		}
	}
	if len(m.Content.of) == 0 {
		text = m.Text.of
	}
	for _, f := range append(m.Files.of, m.Attached.of...) {
		text = paragraphs(text, fileText(f.Name))
	}
	if text = paragraphs(text); text != "" {
		n.in = append(n.in, said(role, text))
	}
	switch {
	case m.odd():
		n.in, n.dropped = nil, "not as LibreChat exports messages"
	case m.Error.of:
		n.in, n.dropped = nil, "of an error"
	case len(n.in) == 0:
		n.dropped = droppedEmpty
	}
}

// textArgument returns arguments that may be a text or an object.
func textArgument(raw json.RawMessage) string {
	if text, is := textIn(raw); is {
		return text
	}
	if !says(raw) {
		return "{}"
	}
	return string(raw)
}
