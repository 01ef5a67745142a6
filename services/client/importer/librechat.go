package importer

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/message"
)

// libreChat reads the JSON that LibreChat exports of a conversation: messages in a row, or each below the one that it
// follows.
var libreChat = format{
	holds: anyJSON,
	head: func(raw []byte, _ string) (head, error) {
		var c libreConversation
		if json.Unmarshal(raw, &c) != nil || c.ID == "" || c.Messages == nil && c.Tree == nil {
			return head{}, errors.New("not a conversation of LibreChat")
		}
		h := head{id: c.ID}
		c.each(func(m *libreMessage, _ string) { h.last = latest(h.last, m.Created.Time) })
		return h, nil
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
	ID       string            `json:"messageId"`
	Parent   *string           `json:"parentMessageId"`
	User     bool              `json:"isCreatedByUser"`
	Created  clock             `json:"createdAt"`
	Text     string            `json:"text"`
	Error    bool              `json:"error"`
	Model    string            `json:"model"`
	Content  []json.RawMessage `json:"content"`
	Files    []libreFile       `json:"files"`
	Attached []libreFile       `json:"attachments"`
	Children []*libreMessage   `json:"children"`
}

type libreFile struct {
	Name string `json:"filename"`
	Type string `json:"type"`
}

// each calls use for every message, with the id of the one that it stands below.
func (c *libreConversation) each(use func(m *libreMessage, above string)) {
	type place struct {
		m     *libreMessage
		above string
	}
	var next []place
	below := func(all []*libreMessage, above string) {
		var more []place
		for _, m := range all {
			if m != nil {
				more = append(more, place{m, above})
			}
		}
		next = append(more, next...)
	}
	for _, raw := range []json.RawMessage{c.Tree, c.Messages} {
		var all []*libreMessage
		if json.Unmarshal(raw, &all) != nil {
			one := &libreMessage{}
			if json.Unmarshal(raw, one) != nil {
				continue
			}
			if all = []*libreMessage{one}; one.ID == "" {
				all = one.Children
			}
		}
		below(all, "")
	}
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		use(p.m, p.above)
		below(p.m.Children, p.m.ID)
	}
}

func readLibreChat(records [][]byte, note func(...string)) (*tree, error) {
	var c libreConversation
	if err := json.Unmarshal(records[0], &c); err != nil {
		return nil, errors.New("not a conversation of LibreChat")
	}
	noteMembers(records[0], note, "conversationId", "title", "messages", "messagesTree", "recursive", "branches",
		"exportAt")
	t := &tree{title: c.Title}
	c.each(func(m *libreMessage, above string) {
		n := &node{id: m.ID, parent: above, at: m.Created.Time}
		if n.id == "" {
			n.id = fmt.Sprint(len(t.nodes))
		}
		if above == "" && m.Parent != nil {
			n.parent = *m.Parent
		}
		if m.Model != "" {
			note("model")
		}
		m.into(n, note)
		t.nodes = append(t.nodes, n)
	})
	t.current = newest(t.nodes)
	return t, nil
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
	if m.User {
		role = "user"
	}
	text := ""
	for i, raw := range m.Content {
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
		switch {
		case p.Type == "tool_call":
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
		case p.Type == "image_file" || p.Type == "image_url":
			text = paragraphs(text, message.ImageText)
		default:
			text = paragraphs(text, textOf(json.RawMessage("["+string(raw)+"]"), note))
		}
	}
	if len(m.Content) == 0 {
		text = m.Text
	}
	for _, f := range append(m.Files, m.Attached...) {
		text = paragraphs(text, fileText(f.Name))
	}
	if text = paragraphs(text); text != "" {
		n.in = append(n.in, said(role, text))
	}
	switch {
	case m.Error:
		n.in, n.dropped = nil, "of an error"
	case len(n.in) == 0:
		n.dropped = droppedEmpty
	}
}

// textArgument returns arguments that may be a text or an object.
func textArgument(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	if !says(raw) {
		return "{}"
	}
	return string(raw)
}
