package message

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/events"
)

// block is a content block of the Anthropic form.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Source    any             `json:"source,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	// Content of a result: a text, or blocks if there are images in it.
	Content any  `json:"content,omitempty"`
	IsError bool `json:"is_error,omitempty"`
	// Thinking is what the model thought, with its Signature; Data what nobody else may read of it.
	Thinking  *string `json:"thinking,omitempty"`
	Signature string  `json:"signature,omitempty"`
	Data      string  `json:"data,omitempty"`
}

func textBlock(s string) block { return block{Type: "text", Text: s} }

const (
	spokeFirst = "(The assistant spoke first.)"
	noText     = "(no text)"
)

// Anthropic returns the system text and messages that the API takes: the first and the
// last are the user's, roles strictly alternate, and every tool_use is answered by a
// tool_result at the beginning of the next message. A call without its result in the
// user's next message, and a result without its call right before it, become text.
func Anthropic(messages []Message) (string, []Message) {
	var system []string
	out := &dialogue{}
	utterances := utterancesOf(messages)
	names := toolNames{}
	for i := range utterances {
		u := &utterances[i]
		switch u.role {
		case System:
			if strings.TrimSpace(u.text) != "" {
				system = append(system, u.text)
			}
		case Assistant:
			names.pair(u, utterances[i+1:])
			out.add(Assistant, u.blocksInOrder()...)
		case Tool:
			out.add(User, u.result())
		default:
			out.add(User, u.blocks...)
		}
	}
	// A last message of white space alone is still the one to answer.
	if out.last() != User {
		out.add(User, textBlock(noText))
	}
	return strings.Join(system, "\n\n"), out.messages()
}

// dialogue is a list of messages with alternating roles: neighbours of the same role are merged.
type dialogue struct {
	turns []alternating
	// silent is the role whose message had no words. The other role's next words then begin a message of their own.
	silent string
}

type alternating struct {
	role   string
	blocks []block
}

func (d *dialogue) last() string {
	if len(d.turns) == 0 {
		return ""
	}
	return d.turns[len(d.turns)-1].role
}

func (d *dialogue) add(role string, blocks ...block) {
	if len(blocks) == 0 {
		if d.last() != role {
			d.silent = role
		}
		return
	}
	if d.last() == role && d.silent != "" {
		d.turns = append(d.turns, alternating{d.silent, []block{textBlock(noText)}})
	}
	d.silent = ""
	if d.last() == role {
		last := &d.turns[len(d.turns)-1]
		last.blocks = append(last.blocks, blocks...)
		return
	}
	if d.last() == "" && role == Assistant {
		d.add(User, textBlock(spokeFirst))
	}
	d.turns = append(d.turns, alternating{role, blocks})
}

func (d *dialogue) messages() []Message {
	out := make([]Message, len(d.turns))
	for i, t := range d.turns {
		out[i] = t.message()
	}
	return out
}

// message returns a message. Its content is a string if it has a single text, and else blocks: results of tools first,
// as the API requires, and calls last.
func (a alternating) message() Message {
	var results, rest, calls []block
	for _, b := range a.blocks {
		switch b.Type {
		case toolResult:
			results = append(results, b)
		case toolUse:
			calls = append(calls, b)
		default:
			rest = append(rest, b)
		}
	}
	if len(calls) == 0 {
		rest = withoutLastThoughts(rest)
	}
	if len(results)+len(calls) == 0 && len(rest) == 1 && rest[0].Type == "text" {
		return New(a.role, rest[0].Text)
	}
	content := events.Raw(append(append(results, rest...), calls...))
	raw := events.Raw(map[string]any{"role": a.role, "content": content})
	return Message{role: a.role, stored: &stored{raw: raw, Role: a.role, Content: content}}
}

// withoutLastThoughts leaves out thoughts that nothing follows, which the API refuses: what followed was deleted, or
// the model came no further.
func withoutLastThoughts(blocks []block) []block {
	n := len(blocks)
	for n > 0 && (blocks[n-1].Type == thinking || blocks[n-1].Type == hiddenThinking) {
		n--
	}
	if n == 0 && len(blocks) > 0 {
		return []block{textBlock(noText)}
	}
	return blocks[:n]
}

// utterance is a message split for the API: what a user or an assistant says, or one result of a tool.
type utterance struct {
	role   string
	text   string // of the system and of a result
	blocks []block
	calls  []*call
	// answers and name belong to a result: the call it answers and the tool's name. call is set when the result is
	// paired.
	answers, name string
	isError       bool
	call          *call
	// images of a result, if there are any: the result's blocks.
	images []block
}

type call struct {
	Call
	use *block // what it is in the prompt; nil without its result
}

func utterancesOf(messages []Message) (out []utterance) {
	for _, m := range messages {
		switch m.role {
		case System, Developer:
			out = append(out, utterance{role: System, text: m.Words()})
		case Assistant:
			if m.onlyItem() {
				if blocks := m.thoughts(); blocks != nil {
					out = append(out, utterance{role: Assistant, blocks: blocks})
				}
				continue
			}
			for _, m := range m.split() {
				u := utterance{role: Assistant, blocks: m.contentBlocks()}
				for _, c := range m.everyCall() {
					u.calls = append(u.calls, &call{Call: c})
				}
				out = append(append(out, u), m.results()...)
			}
		case Tool, Function:
			results := m.results()
			if text := m.Words(); text != "" || len(results) == 0 {
				u := utterance{role: Tool, text: text, answers: m.stored.ToolCallID, name: m.stored.Name}
				u.images = m.shown()
				out = append(out, u)
			}
			out = append(out, results...)
		default:
			results := m.results()
			m = m.named()
			out = append(out, results...)
			if u := (utterance{role: User, blocks: m.contentBlocks()}); len(u.blocks) > 0 || len(results) == 0 {
				out = append(out, u)
			}
		}
	}
	return out
}

// split divides an assistant's message after each result of a tool that stands in the message itself.
func (m Message) split() (out []Message) {
	for m.stored != nil {
		end := slices.IndexFunc(m.stored.parts, func(p part) bool { return p.Type == toolResult }) + 1
		if end == 0 || end == len(m.stored.parts) {
			break
		}
		first, rest := *m.stored, stored{Role: m.role, parts: m.stored.parts[end:]}
		first.parts, first.Content = first.parts[:end], nil
		out = append(out, Message{role: m.role, stored: &first})
		m.stored = &rest
	}
	return append(out, m)
}

// results returns the results of tools that stand among the content.
func (m Message) results() (out []utterance) {
	if m.stored == nil {
		return nil
	}
	for _, p := range m.stored.parts {
		if p.Type == toolResult {
			u := utterance{role: Tool, text: WordsIn(p.Content), answers: p.ToolUseID, name: p.Name, isError: p.IsError}
			out = append(out, u)
		}
	}
	return out
}

// toolNames is the set of ids that were given to calls. No two calls share an id.
type toolNames map[string]bool

// notInName matches the characters that the API refuses in ids and names.
var notInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

const longestName = 64

// pair finds, for every call of an utterance, its result among those right after the utterance and what else the
// assistant says.
func (n toolNames) pair(u *utterance, next []utterance) {
	for len(u.calls) > 0 && len(next) > 0 && next[0].role == Assistant {
		next = next[1:]
	}
	for _, c := range u.calls {
		for i := range next {
			r := &next[i]
			if r.role != Tool {
				break
			}
			if r.call != nil || c.ID == "" || r.answers != c.ID {
				continue
			}
			r.call = c
			c.use = &block{
				Type: toolUse, ID: n.id(c.ID), Name: toolName(c.Function.Name),
				Input: toolInput(string(c.Function.Arguments)),
			}
			break
		}
	}
}

// id returns an id for a call that the API accepts and that no other call has.
func (n toolNames) id(was string) string {
	base := notInName.ReplaceAllString(was, "_")
	id := base
	for i := 2; n[id]; i++ {
		id = base + "_" + strconv.Itoa(i)
	}
	n[id] = true
	return id
}

func toolName(was string) string {
	if was == "" {
		return "tool"
	}
	name := notInName.ReplaceAllString(was, "_")
	return name[:min(len(name), longestName)]
}

// toolInput returns a call's arguments as the object that the API wants.
func toolInput(arguments string) json.RawMessage {
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage("{}")
	}
	if asMembers(json.RawMessage(arguments)) == nil {
		return events.Raw(map[string]string{"arguments": arguments})
	}
	return withNumbers(Whole(json.RawMessage(arguments)))
}

// blocksInOrder returns an assistant's texts and calls as blocks.
func (u *utterance) blocksInOrder() []block {
	blocks := u.blocks
	for _, c := range u.calls {
		if c.use != nil {
			blocks = append(blocks, *c.use)
		} else {
			blocks = append(blocks, textBlock(callText(c.Call)))
		}
	}
	return blocks
}

// result returns a tool's result as a block, or as text if its call is not right before it. The API refuses a failure
// without a text.
func (u *utterance) result() block {
	if u.call != nil {
		if u.isError && strings.TrimSpace(u.text) == "" {
			u.text = noText
		}
		b := block{Type: toolResult, ToolUseID: u.call.use.ID, IsError: u.isError}
		switch {
		case len(u.images) > 0:
			b.Content = u.images
		case u.text != "":
			b.Content = u.text
		}
		return b
	}
	return textBlock(resultText(u.name, u.text))
}

// contentBlocks returns what the message says as blocks. It leaves out texts of nothing but white space, which the API
// refuses. Only a user may show images, and the API fetches them over https alone.
func (m Message) contentBlocks() (out []block) {
	if m.stored == nil || len(m.stored.parts) == 0 {
		if text := m.Words(); strings.TrimSpace(text) != "" {
			return []block{textBlock(text)}
		}
		return nil
	}
	for _, p := range m.stored.parts {
		source := p.image()
		switch text := p.words(); {
		case source != nil && p.Text == "" && m.role != Assistant:
			out = append(out, block{Type: "image", Source: source})
		case strings.TrimSpace(text) != "":
			out = append(out, textBlock(text))
		}
	}
	return out
}
