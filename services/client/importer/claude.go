package importer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// claude reads conversations.json of an export of Claude.
var claude = format{
	holds:  chatGPT.holds,
	beside: []string{"users.json", "projects.json", "memories.json"},
	head: func(raw []byte, _ string) (head, error) {
		var c struct {
			UUID     string          `json:"uuid"`
			Created  clock           `json:"created_at"`
			Updated  clock           `json:"updated_at"`
			Messages json.RawMessage `json:"chat_messages"`
		}
		if json.Unmarshal(raw, &c) != nil || c.Messages == nil {
			return head{}, errors.New("not a conversation of Claude")
		}
		return head{id: c.UUID, last: latest(c.Created.Time, c.Updated.Time)}, nil
	},
	read: readClaude,
}

// claudeMessage is a message of Claude.
type claudeMessage struct {
	UUID    string  `json:"uuid"`
	Parent  *string `json:"parent_message_uuid"`
	Sender  string  `json:"sender"`
	Created clock   `json:"created_at"`
	Text    string  `json:"text"`
	Content []struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
	} `json:"content"`
	Attachments []struct {
		Name string `json:"file_name"`
		Text string `json:"extracted_content"`
	} `json:"attachments"`
	Files []struct {
		Name string `json:"file_name"`
	} `json:"files"`
}

func readClaude(records [][]byte, note func(...string)) (*tree, error) {
	var c struct {
		Name     string            `json:"name"`
		Current  string            `json:"current_leaf_message_uuid"`
		Messages []json.RawMessage `json:"chat_messages"`
	}
	if err := json.Unmarshal(records[0], &c); err != nil {
		return nil, errors.New("not a conversation of Claude")
	}
	noteMembers(records[0], note, "uuid", "name", "created_at", "updated_at", "chat_messages", "current_leaf_message_uuid")
	t := &tree{title: c.Name, current: c.Current}
	before := ""
	for i, raw := range c.Messages {
		var m claudeMessage
		n := &node{id: fmt.Sprint(i), parent: before}
		if json.Unmarshal(raw, &m) != nil {
			n.dropped = "not as Claude exports messages"
		} else {
			m.into(n, note)
		}
		t.nodes, before = append(t.nodes, n), n.id
	}
	return t, nil
}

// into makes a node say what a message says, or drops it. A call of a tool and what it gave are messages of their own.
func (m *claudeMessage) into(n *node, note func(...string)) {
	if n.at = m.Created.Time; m.UUID != "" {
		n.id = m.UUID
	}
	if m.Parent != nil {
		n.parent = *m.Parent
	}
	role := "assistant"
	if m.Sender == "human" || m.Sender == "user" {
		role = "user"
	}
	text, last := "", ""
	flush := func() {
		if text != "" {
			n.in = append(n.in, said(role, text))
		}
		text = ""
	}
	for i, b := range m.Content {
		switch {
		case b.Type == "text":
			text = paragraphs(text, b.Text)
		case b.Type == "tool_use" && role == "assistant":
			last = b.ID
			if last == "" {
				last = fmt.Sprintf("call_%s_%d", n.key(), i)
			}
			arguments := string(b.Input)
			if !says(b.Input) {
				arguments = "{}"
			}
			n.in = append(n.in, calling(text, toolCall{last, b.Name, arguments}))
			text = ""
		case b.Type == "tool_result" && role == "assistant":
			flush()
			id := b.ToolUseID
			if id == "" {
				id = last
			}
			if id == "" { // nothing called it
				id = fmt.Sprintf("call_%s_%d", n.key(), i)
				n.in = append(n.in, calling("", toolCall{id, b.Name, "{}"}))
			}
			n.in, last = append(n.in, gave(id, textOf(b.Content, note))), ""
		default:
			note("content." + b.Type)
		}
	}
	if len(m.Content) == 0 {
		text = m.Text
	}
	for _, a := range m.Attachments {
		name := fileText(a.Name)
		if a.Name == "" && a.Text != "" {
			name = "" // a text that was pasted
		}
		text = paragraphs(text, paragraphs(name, a.Text))
	}
	for _, f := range m.Files {
		text = paragraphs(text, fileText(f.Name))
	}
	if text = paragraphs(text); text != "" {
		flush()
	}
	if len(n.in) == 0 {
		n.dropped = droppedEmpty
	}
}
