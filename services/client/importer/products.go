package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"path"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events/message"
)

// Exports of other products (docs/import.md).
const (
	FromChatGPT     Source = "chatgpt"
	FromClaude      Source = "claude"
	FromOpenAIJSONL Source = "openai-jsonl"
	FromLangChain   Source = "langchain"
	FromLibreChat   Source = "librechat"
)

// formats are what reads the exports of other products.
var formats = map[Source]format{
	FromChatGPT:     chatGPT,
	FromClaude:      claude,
	FromOpenAIJSONL: fineTuning,
	FromLangChain:   langChain,
	FromLibreChat:   libreChat,
}

// UnknownForm is the error of a file that another source wrote than the import was told.
type UnknownForm struct {
	Where string
	From  Source
}

func (u *UnknownForm) Error() string {
	return u.Where + ": this is no file of conversations, but one to import with --from " + string(u.From)
}

// Recognize returns what wrote a value of a file that is no conversation of docs/contract.md#import; "" if that is not
// known.
func Recognize(value []byte) Source {
	if bytes.HasPrefix(value, []byte("PK\x03\x04")) {
		return FromChatGPT // which is shipped as a zip
	}
	var m struct {
		Object         string
		Mapping        json.RawMessage
		ChatMessages   json.RawMessage `json:"chat_messages"`
		ConversationID json.RawMessage `json:"conversationId"`
		Conversations  []json.RawMessage
		Type           string
		Data           json.RawMessage
		Message        json.RawMessage
		History        json.RawMessage
		Messages       json.RawMessage
		Own            json.RawMessage `json:"conversation_id"`
	}
	if json.Unmarshal(value, &m) != nil {
		return ""
	}
	switch {
	case m.Mapping != nil:
		return FromChatGPT
	case m.ChatMessages != nil:
		return FromClaude
	case m.ConversationID != nil:
		return FromLibreChat
	case len(m.Conversations) > 0:
		return Recognize(m.Conversations[0])
	case m.Object == objectThread, m.Object == objectMessage, m.Object == objectList:
		return FromAssistants
	case m.Type != "" && m.Data != nil, m.Own == nil && (m.History != nil || m.Message != nil):
		return FromLangChain
	case m.Own == nil && m.Messages != nil:
		return FromOpenAIJSONL
	}
	return ""
}

// anyJSON matches the names of files with JSON.
func anyJSON(name string) bool {
	end := path.Ext(name)
	return end == ".json" || end == ".jsonl" || end == ".ndjson"
}

// chat returns a chat message.
func chat(members map[string]any) messageIn {
	m, _ := parseMessage(encode(members)) // the members are those of a chat message
	return m
}

// said returns a message that is a text.
func said(role, text string) messageIn { return chat(map[string]any{"role": role, "content": text}) }

// toolCall is a call of a tool by an assistant. Arguments are an object, or a text that becomes one.
type toolCall struct{ id, name, arguments string }

// calling returns the message of an assistant that calls tools, and perhaps says something.
func calling(text string, calls ...toolCall) messageIn {
	var all []any
	for _, c := range calls {
		all = append(all, map[string]any{
			"id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": object(c.arguments)},
		})
	}
	m := map[string]any{"role": "assistant", "content": nil, "tool_calls": all}
	if text != "" {
		m["content"] = text
	}
	return chat(m)
}

// gave returns the message of a tool that gave something back.
func gave(id, text string) messageIn {
	return chat(map[string]any{"role": "tool", "tool_call_id": id, "content": text})
}

// object returns the arguments of a call, which are an object in JSON.
func object(text string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &members) == nil && members != nil {
		return text
	}
	return string(encode(map[string]string{"input": text}))
}

// fileText is what stands in the place of a file.
func fileText(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".heic":
		return message.ImageText
	}
	if name == "" {
		return "[File]"
	}
	return "[File: " + name + "]"
}

// paragraphs joins the texts that say something.
func paragraphs(texts ...string) string {
	var all []string
	for _, t := range texts {
		if strings.TrimSpace(t) != "" {
			all = append(all, t)
		}
	}
	return strings.Join(all, "\n\n")
}

// seconds is a time in Unix seconds.
func seconds(s *float64) time.Time {
	if s == nil || *s <= 0 || math.IsNaN(*s) || *s > 1e11 {
		return time.Time{}
	}
	return time.UnixMicro(int64(*s * 1e6)).UTC()
}

// clock is a time as a text; zero if it is none.
type clock struct{ time.Time }

// UnmarshalJSON reads the time.
func (c *clock) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999-07",
		"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
	} {
		if at, err := time.Parse(layout, text); err == nil {
			c.Time = at.UTC()
			return nil
		}
	}
	return nil
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// textIn returns the text that a value is, if it is one; null is none.
func textIn(raw json.RawMessage) (text string, is bool) {
	is = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
	return text, is
}

// textOf returns the text of a content: a text, or parts, of which images become what stands in their place. Kinds of
// parts that have none are noted.
func textOf(content json.RawMessage, note func(...string)) string {
	if text, is := textIn(content); is {
		return text
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		parts = []json.RawMessage{content}
	}
	var texts []string
	for _, raw := range parts {
		var p struct {
			Type string
			Text json.RawMessage
		}
		var value struct{ Value string }
		text, is := textIn(raw)
		if !is && json.Unmarshal(raw, &p) == nil {
			text, is = textIn(p.Text)
		}
		switch {
		case is:
			texts = append(texts, text)
		case json.Unmarshal(p.Text, &value) == nil && value.Value != "":
			texts = append(texts, value.Value)
		case strings.Contains(p.Type, "image"):
			texts = append(texts, message.ImageText)
		case p.Type == "file" || p.Type == "document":
			texts = append(texts, fileText(""))
		case p.Type != "" && p.Type != "tool_use":
			note("content." + p.Type)
		}
	}
	return paragraphs(texts...)
}

var errNoMessages = errors.New("the conversation has no messages")
