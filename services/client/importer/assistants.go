package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/items"
)

// The objects of the Assistants API that an import reads, by their member "object".
const (
	objectList    = "list"
	objectThread  = "thread"
	objectMessage = "thread.message"
)

// threadObject is a thread as the Assistants API gave it.
type threadObject struct {
	ID       string             `json:"id"`
	Metadata map[string]*string `json:"metadata"`
}

// messageObject is a message of a thread as the Assistants API gave it.
type messageObject struct {
	ID        string            `json:"id"`
	ThreadID  string            `json:"thread_id"`
	CreatedAt *int64            `json:"created_at"` // in Unix seconds
	Role      string            `json:"role"`
	Status    json.RawMessage   `json:"status"`
	Content   []json.RawMessage `json:"content"`

	// rest are the other members.
	rest map[string]json.RawMessage
}

// kept are the members of a message that its item keeps as they came, where they say something.
var kept = []string{
	"assistant_id", "run_id", "attachments", "file_ids", "metadata", "incomplete_details", "incomplete_at",
	"completed_at", "created_at",
}

// membersOfMessage are the members of a message that have a place in the log.
var membersOfMessage = append([]string{"id", "object", "thread_id", "role", "status", "content"}, kept...)

// parseThread reads a thread.
func parseThread(raw json.RawMessage) (t threadObject, err error) {
	if json.Unmarshal(raw, &t) != nil {
		return t, errors.New("the thread is not as the Assistants API gives threads")
	}
	return t, checkThreadID(t.ID)
}

func checkThreadID(id string) error {
	if id == "" {
		return errors.New("the id of the thread is missing")
	}
	if decide.ValidIDs("session_id", id) != nil {
		return errors.New("the id of the thread can't be the id of a session")
	}
	return nil
}

// parseMessageObject reads a message of a thread. Of a message that is wrong it returns the thread's id, if it has one.
func parseMessageObject(raw json.RawMessage) (m messageObject, err error) {
	_ = json.Unmarshal(raw, &m.rest) // the caller knows that it is an object
	if json.Unmarshal(raw, &m) != nil {
		_ = json.Unmarshal(m.rest["thread_id"], &m.ThreadID) // without one the message has no thread
		return m, errors.New("the message is not as the Assistants API gives messages")
	}
	switch {
	case checkThreadID(m.ThreadID) != nil:
		err = checkThreadID(m.ThreadID)
		m.ThreadID = ""
	case m.ID == "":
		err = errors.New("the message has no id")
	case m.CreatedAt == nil:
		err = errors.New("the message has no created_at, by which messages are put in order")
	case m.Role != "user" && m.Role != "assistant":
		err = errors.New("the role of the message must be user or assistant")
	}
	return m, err
}

// chat returns the message as the log keeps it: the chat message of the item that it is.
func (m *messageObject) chat() (messageIn, error) {
	i := message.Item{
		"type": encode("message"), "id": encode(m.ID), "role": encode(m.Role), "status": m.Status,
	}
	for _, name := range kept {
		if says(m.rest[name]) {
			i[name] = m.rest[name]
		}
	}
	content := []any{}
	for n, raw := range m.Content {
		part, err := partOf(raw, m.Role)
		if err != nil {
			return messageIn{}, fmt.Errorf("content %d of the message %w", n+1, err)
		}
		content = append(content, part)
	}
	i["content"] = encode(content)
	if !items.KeepsID(i) {
		i = i.WithoutID()
	}
	return parseMessage(i.Normal().Message())
}

// says reports whether a member holds more than nothing.
func says(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "{}", "[]", `""`:
		return false
	}
	return true
}

// partOf returns a part of a message's content in the form of an item's part. A part of an unknown type stays as it is.
func partOf(raw json.RawMessage, role string) (any, error) {
	var p struct {
		Type string
		Text struct {
			Value       *string
			Annotations []map[string]json.RawMessage
		}
		ImageFile struct {
			FileID string          `json:"file_id"`
			Detail json.RawMessage `json:"detail,omitempty"`
		} `json:"image_file"`
		ImageURL struct {
			URL    string
			Detail json.RawMessage
		} `json:"image_url"`
	}
	if json.Unmarshal(raw, &p) != nil || p.Type == "" {
		return nil, errors.New("is not as the Assistants API gives it")
	}
	switch {
	case p.Type == "text" && p.Text.Value == nil:
		return nil, errors.New("has no text.value")
	case p.Type == "text" && role == "user":
		return map[string]any{"type": "input_text", "text": *p.Text.Value}, nil
	case p.Type == "text":
		return map[string]any{
			"type": "output_text", "text": *p.Text.Value, "annotations": annotations(p.Text.Annotations),
			"logprobs": []any{},
		}, nil
	case p.Type == "image_file":
		return image("file_id", p.ImageFile.FileID, p.ImageFile.Detail), nil
	case p.Type == "image_url":
		return image("image_url", p.ImageURL.URL, p.ImageURL.Detail), nil
	}
	return raw, nil
}

func image(member, value string, detail json.RawMessage) any {
	part := map[string]any{"type": "input_image", member: value}
	if says(detail) {
		part["detail"] = detail
	}
	return part
}

// annotations returns what stands beside a text in the form of items: what names a file names it in the annotation
// itself, and the place in the text is the index, too.
func annotations(all []map[string]json.RawMessage) []map[string]json.RawMessage {
	out := []map[string]json.RawMessage{}
	for _, a := range all {
		var kind string
		_ = json.Unmarshal(a["type"], &kind) // what is no text is no type that is known here
		var file map[string]json.RawMessage
		if json.Unmarshal(a[kind], &file) == nil && file["file_id"] != nil {
			delete(a, kind)
			_ = json.Unmarshal(encode(ofFile(kind, file["file_id"], a["start_index"])), &a) // adds what it says
		}
		out = append(out, a)
	}
	return out
}

// fileAnnotation is what an item says of a file that its text cites or gives.
type fileAnnotation struct {
	FileID json.RawMessage `json:"file_id"`
	// Index is the place in the text.
	Index json.RawMessage `json:"index"`
	// Filename of a citation is empty, since the Assistants API does not tell it.
	Filename *string `json:"filename,omitempty"`
}

func ofFile(kind string, id, at json.RawMessage) fileAnnotation {
	a := fileAnnotation{FileID: id, Index: at}
	if at == nil {
		a.Index = encode(0)
	}
	if kind == "file_citation" {
		a.Filename = new(string)
	}
	return a
}

func encode(v any) json.RawMessage {
	raw, _ := events.JSON(v) // never fails: v is made of JSON and texts
	return raw
}

// turnsOf returns the turns of a thread, whose messages are in order.
func turnsOf(thread string, messages []*threadMessage) (turns []client.WholeTurn) {
	if len(messages) == 0 {
		return nil
	}
	in := make([]messageIn, len(messages))
	for n, m := range messages {
		in[n] = m.in
	}
	for n, part := range splitTurns(in) {
		turns = append(turns, makeTurn(thread, n, part))
	}
	return turns
}

// describing returns a call that describes a thread's session: a conversation, which no silence ends, with the thread's
// metadata.
func describing(thread string, metadata map[string]*string) func(context.Context, Store) error {
	d := client.Describe{SessionID: thread, RequestID: "import", Kind: string(events.KindConversation)}
	if len(metadata) > 0 {
		d.RequestID, d.Metadata = "import-thread", metadata
	}
	return func(ctx context.Context, to Store) error {
		_, err := to.Describe(ctx, d)
		return err
	}
}

// named returns the ids of the threads that a text names, which is no JSON.
func named(text string) (ids []string) {
	const member = `"thread_id"`
	for {
		_, after, found := strings.Cut(text, member)
		if !found {
			return ids
		}
		text = after
		value := strings.TrimLeft(after, ": \t\r\n")
		if !strings.HasPrefix(value, `"`) {
			continue
		}
		if id, rest, closed := strings.Cut(value[1:], `"`); closed {
			ids, text = append(ids, id), rest
		}
	}
}
