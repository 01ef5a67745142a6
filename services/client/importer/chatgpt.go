package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events/message"
)

// chatGPT reads conversations.json, or its shards, of an export of ChatGPT.
var chatGPT = format{
	holds: regexp.MustCompile(`^conversations(-\d+)?\.json$`).MatchString,
	beside: []string{
		"user.json", "user_settings.json", "message_feedback.json", "model_comparisons.json", "shared_conversations.json",
		"group_chats.json", "shopping.json", "sora.json", "chat.html",
	},
	head: func(raw []byte, _ string) (head, error) {
		var c gptConversation
		if json.Unmarshal(raw, &c) != nil || !bytes.HasPrefix(c.Mapping, []byte("{")) {
			return head{}, errors.New("not a conversation of ChatGPT")
		}
		h := head{id: cmp.Or(c.ConversationID, c.ID), last: latest(seconds(c.CreateTime), seconds(c.UpdateTime))}
		return h, nil
	},
	read: readChatGPT,
}

// gptConversation is a conversation as ChatGPT exports it.
type gptConversation struct {
	ID             string          `json:"id"`
	ConversationID string          `json:"conversation_id"`
	Title          string          `json:"title"`
	CreateTime     *float64        `json:"create_time"`
	UpdateTime     *float64        `json:"update_time"`
	CurrentNode    string          `json:"current_node"`
	Mapping        json.RawMessage `json:"mapping"`
}

// gptNode is a node of a mapping.
type gptNode struct {
	Parent  string      `json:"parent"`
	Message *gptMessage `json:"message"`
}

// gptMessage is a message of ChatGPT.
type gptMessage struct {
	Author struct {
		Role string `json:"role"`
		Name string `json:"name"`
	} `json:"author"`
	CreateTime *float64        `json:"create_time"`
	Content    json.RawMessage `json:"content"`
	Recipient  string          `json:"recipient"`
	Metadata   struct {
		Hidden      bool `json:"is_visually_hidden_from_conversation"`
		Attachments []struct {
			Name     string `json:"name"`
			MimeType string `json:"mime_type"`
			Mime     string `json:"mimeType"`
		} `json:"attachments"`
		Model string `json:"model_slug"`
	} `json:"metadata"`
}

// gptContent is what a message says, in the members of all kinds of contents.
type gptContent struct {
	Kind   string            `json:"content_type"`
	Parts  []json.RawMessage `json:"parts"`
	Text   string            `json:"text"`
	Result string            `json:"result"`
	Title  string            `json:"title"`
	URL    string            `json:"url"`
	Output string            `json:"output_str"`
}

func readChatGPT(records [][]byte, note func(...string)) (*tree, error) {
	var c gptConversation
	if err := json.Unmarshal(records[0], &c); err != nil {
		return nil, errors.New("not a conversation of ChatGPT")
	}
	noteMembers(records[0], note, "id", "conversation_id", "title", "create_time", "update_time", "current_node",
		"mapping")
	t := &tree{title: c.Title, current: c.CurrentNode}
	calls := map[string]*gptMessage{}
	eachMember(jsontext.Value(c.Mapping), func(name string, raw jsontext.Value, _ int) {
		n := &node{id: name, dropped: droppedNoMessage}
		var g gptNode
		err := json.Unmarshal(raw, &g)
		if n.parent = g.Parent; err == nil {
			if g.Message != nil {
				if g.Message.Metadata.Model != "" {
					note("model_slug")
				}
				n.at = seconds(g.Message.CreateTime)
				n.dropped = ""
				calls[name] = g.Message
			}
		} else {
			n.dropped = "not as ChatGPT exports messages"
		}
		t.nodes = append(t.nodes, n)
	})
	byID := map[string]*node{}
	for _, n := range t.nodes {
		byID[n.id] = n
	}
	for _, n := range t.nodes {
		if m := calls[n.id]; m != nil && n.dropped == "" {
			m.into(n, byID, calls)
		}
	}
	return t, nil
}

// into makes a node say what a message says, or drops it.
func (m *gptMessage) into(n *node, byID map[string]*node, all map[string]*gptMessage) {
	var c gptContent
	_ = json.Unmarshal(m.Content, &c) // what is odd says nothing
	calls := m.Author.Role == "assistant" && m.Recipient != "" && m.Recipient != "all"
	caller := ""
	if m.Author.Role == "tool" || m.Author.Role == "function" {
		caller = callerOf(n, byID, all)
	}
	text := m.text(c)
	switch {
	case c.Kind == "thoughts" || c.Kind == "reasoning_recap":
		n.dropped = droppedThoughts
	case c.Kind == "user_editable_context" || c.Kind == "model_editable_context":
		n.dropped = "instructions and memory of the account"
	case m.Metadata.Hidden && !calls && caller == "":
		n.dropped = droppedHidden
	case text == "":
		n.dropped = droppedEmpty
		if len(c.Parts) == 0 && c.Kind != "text" && c.Kind != "" && !calls {
			n.dropped = droppedKind
		}
	case calls:
		if c.Kind == "code" && m.Recipient == "python" {
			text = string(encode(map[string]string{"code": text}))
		}
		n.in = []messageIn{calling("", toolCall{"call_" + n.key(), m.Recipient, text})}
	case caller != "":
		n.in = []messageIn{gave("call_"+byID[caller].key(), text)}
	case m.Author.Role == "tool" || m.Author.Role == "function":
		// A tool that nothing called, such as one that reads what a user has uploaded.
		name := cmp.Or(m.Author.Name, "tool")
		id := "call_" + n.key()
		n.in = []messageIn{calling("", toolCall{id, name, "{}"}), gave(id, text)}
	case m.Author.Role == "user" || m.Author.Role == "assistant" || m.Author.Role == "system":
		if c.Kind == "code" {
			text = "```\n" + text + "\n```"
		}
		n.in = []messageIn{said(m.Author.Role, text)}
	default:
		n.dropped = droppedKind
	}
}

// callerOf returns the id of the message above a tool's that called it; "" if there is none.
func callerOf(n *node, byID map[string]*node, all map[string]*gptMessage) string {
	name := all[n.id].Author.Name
	id := n.parent
	for range len(all) {
		m, above := all[id], byID[id]
		switch {
		case above == nil || m != nil && m.Author.Role == "user":
			return ""
		case m != nil && m.Author.Role == "assistant" && m.Recipient != "" && m.Recipient != "all":
			if !strings.HasPrefix(m.Recipient, firstWord(name)) && name != "" {
				return ""
			}
			var c gptContent
			_ = json.Unmarshal(m.Content, &c) // as where it was read
			if m.text(c) == "" {
				return ""
			}
			return id
		case m != nil && m.Author.Role == "tool": // a call has one output
			return ""
		}
		id = above.parent
	}
	return ""
}

// firstWord returns a tool's name up to its first dot: web.run answers to web.
func firstWord(name string) string {
	word, _, _ := strings.Cut(name, ".")
	return word
}

// text returns what a message says. What is no text has a text in its place.
func (m *gptMessage) text(c gptContent) string {
	var texts []string
	images, spoken := false, false
	var voice []string
	for _, raw := range c.Parts {
		var text string
		var p struct {
			Kind string `json:"content_type"`
			Text string `json:"text"`
		}
		switch {
		case json.Unmarshal(raw, &text) == nil:
			texts = append(texts, text)
		case json.Unmarshal(raw, &p) != nil:
		case p.Text != "":
			spoken = true
			texts = append(texts, p.Text)
		case strings.HasPrefix(p.Kind, "image"):
			images = true
			texts = append(texts, message.ImageText)
		case strings.Contains(p.Kind, "audio"):
			voice = append(voice, "[Voice message]")
		case p.Kind != "":
			texts = append(texts, "["+p.Kind+"]")
		}
	}
	if len(c.Parts) == 0 {
		texts = []string{c.Title, c.URL, c.Text, c.Result, c.Output}
	}
	if !spoken && len(voice) > 0 {
		texts = append(texts, voice[0])
	}
	for _, a := range m.Metadata.Attachments {
		if image := strings.HasPrefix(cmp.Or(a.MimeType, a.Mime), "image/"); !image || !images {
			texts = append(texts, fileText(a.Name))
		}
	}
	return paragraphs(texts...)
}

// noteMembers notes the members of an object that say something and are not kept.
func noteMembers(object []byte, note func(...string), kept ...string) {
	eachMember(object, func(name string, raw jsontext.Value, _ int) {
		if says(json.RawMessage(raw)) && !slices.Contains(kept, name) && string(raw) != "false" {
			note(name)
		}
	})
}
