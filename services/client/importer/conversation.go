package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services/client"
)

// half is the question or the answer of a turn. Messages is nil where the text
// alone gives the same message back.
type half struct {
	neutral, translated string
	messages            []json.RawMessage
}

// messageIn is a message of a file; raw is the message as it was written.
type messageIn struct {
	raw        json.RawMessage
	role       string
	text       string
	translated string
	plain      bool
}

// Parse reads a line of docs/contract.md#import: a conversation and its turns. A
// user message, or a run of them, opens a turn, and what follows up to the next is
// its answer; what stands before the first user message opens the first turn.
func Parse(line []byte) (session string, turns []client.WholeTurn, err error) {
	var in struct {
		ConversationID string            `json:"conversation_id"`
		Messages       []json.RawMessage `json:"messages"`
	}
	if !utf8.Valid(line) {
		return "", nil, errors.New("not UTF-8: convert the file")
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return "", nil, errors.New("not a JSON object with conversation_id and messages")
	}
	if in.ConversationID == "" {
		return "", nil, errors.New("conversation_id is missing (examples of fine-tuning: --from openai-jsonl)")
	}
	if len(in.Messages) == 0 {
		return "", nil, errors.New("the conversation has no messages")
	}
	messages := make([]messageIn, len(in.Messages))
	for i, raw := range in.Messages {
		if messages[i], err = parseMessage(raw); err != nil {
			return "", nil, fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	for i, part := range splitTurns(messages) {
		turns = append(turns, makeTurn(in.ConversationID, i, part))
	}
	return in.ConversationID, turns, nil
}

func parseMessage(raw json.RawMessage) (messageIn, error) {
	raw = message.WithoutImages(raw) // images are not kept, and may be too large for a request
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return messageIn{}, errors.New("not an object")
	}
	m := messageIn{raw: raw}
	if json.Unmarshal(members["role"], &m.role) != nil || m.role == "" {
		return messageIn{}, errors.New("role is missing")
	}
	role, known := message.RoleOf(m.role)
	if !known {
		return messageIn{}, fmt.Errorf("role %q: %w", m.role, errRole)
	}
	if role != m.role {
		m.role, m.raw = role, withRole(raw, role)
	}
	content := members["content"]
	isText := json.Unmarshal(content, &m.text) == nil && string(content) != "null"
	if !isText {
		m.text = strings.Join(message.Parse(raw).Texts(), "\n")
	}
	_ = json.Unmarshal(members["translated"], &m.translated) // absent or odd: no translation
	// A text with invalid Unicode is restored only from the message as it was written.
	m.plain = isText && m.text != "" && len(members) == 2 && jsontext.Value(content).IsValid()
	return m, nil
}

var errRole = errors.New("not a role of a chat message: system, developer, user, assistant, tool or function")

// withRole returns a message with another role, and all else as it was written.
func withRole(message json.RawMessage, role string) (out json.RawMessage) {
	end := 0
	eachMember(jsontext.Value(message), func(name string, v jsontext.Value, at int) {
		if name == "role" {
			out = append(append(out, message[end:at]...), encode(role)...)
			end = at + len(v)
		}
	})
	return append(out, message[end:]...)
}

// splitTurns splits before each user message that does not follow another user message.
func splitTurns(messages []messageIn) [][]messageIn {
	var out [][]messageIn
	from, asked := 0, false
	for i, m := range messages {
		opens := m.role == "user" && (i == 0 || messages[i-1].role != "user")
		if opens && asked {
			out = append(out, messages[from:i])
			from = i
		}
		asked = asked || m.role == "user"
	}
	return append(out, messages[from:])
}

func endOfQuestion(part []messageIn) int {
	end := len(part)
	if last := slices.IndexFunc(part, func(m messageIn) bool { return m.role == "user" }); last >= 0 {
		for end = last; end < len(part) && part[end].role == "user"; end++ {
		}
	}
	return end
}

func makeTurn(session string, i int, part []messageIn) client.WholeTurn {
	end := endOfQuestion(part)
	q := makeHalf(part[:end], "user")
	t := client.WholeTurn{Start: client.Start{
		SessionID: session, RequestID: fmt.Sprintf("import-%d", i+1),
		QuestionNeutral: q.neutral, QuestionTranslated: q.translated, QuestionMessages: q.messages,
	}}
	if end < len(part) {
		a := makeHalf(part[end:], "assistant")
		t.Answer = &client.Answer{AnswerNeutral: a.neutral, AnswerTranslated: a.translated, AnswerMessages: a.messages}
	}
	return t
}

// makeHalf joins the texts of a role; if there are none, it joins all texts.
func makeHalf(part []messageIn, role string) half {
	var h half
	var texts, all, translated []string
	for _, m := range part {
		if m.role == role && m.translated != "" {
			translated = append(translated, m.translated)
		}
		if m.text == "" {
			continue
		}
		all = append(all, m.text)
		if m.role == role {
			texts = append(texts, m.text)
		}
	}
	if len(texts) == 0 && role == "user" {
		texts = all
	}
	h.neutral, h.translated = strings.Join(texts, "\n"), strings.Join(translated, "\n")
	if len(part) == 1 && part[0].plain && part[0].role == role {
		return h
	}
	for _, m := range part {
		h.messages = append(h.messages, m.raw)
	}
	return h
}
