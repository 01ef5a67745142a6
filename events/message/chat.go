package message

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
)

// Chat renders messages for an endpoint of OpenAI's chat completions, with the members that OpenAI's document has. What
// such an endpoint refuses is mended, so that no message that the log can hold makes a prompt that is refused: roles,
// contents and names of other vendors, calls and results in their blocks, calls apart from their results, and what a
// message lacks. What only items say is left out, but for the reasoning of the turn under way, which a model gets back
// on the message with its calls (https://api-docs.deepseek.com/guides/thinking_mode).
func Chat(list []Message) []json.RawMessage {
	question := lastQuestion(list)
	var d chatDialogue
	for i, m := range list {
		if m.onlyItem() {
			d.thought += m.thought()
			continue
		}
		for _, c := range m.inChat(i > question) {
			d.add(c, i > question)
		}
	}
	chat := paired(d.messages)
	last := len(chat) - 1
	for last >= 0 && chat[last].role != User {
		last--
	}
	raws := []json.RawMessage{}
	for i, c := range chat {
		if i < last {
			c.shortenIDs()
		}
		raws = append(raws, withNumbers(c.json()))
	}
	return raws
}

// lastQuestion returns the index of the last message of a user; what follows it is of the turn under way.
func lastQuestion(list []Message) int {
	at := len(list) - 1
	for at >= 0 && list[at].role != User {
		at--
	}
	return at
}

// chatDialogue is a chat under construction. thought is what the model thought before its next call.
type chatDialogue struct {
	messages []*chatMessage
	thought  string
}

// add adds a message. underWay says that it belongs to the turn that is being answered.
func (d *chatDialogue) add(c *chatMessage, underWay bool) {
	if c.role == Tool {
		d.messages = callLast(d.messages, c.answers)
	}
	if last := len(d.messages) - 1; last >= 0 && c.joins(d.messages[last]) {
		d.messages[last].addCalls(c.calls)
		return
	}
	if len(c.calls) > 0 && d.thought != "" && underWay {
		c.set(reasoningContent, d.thought)
	}
	if c.role != Assistant || len(c.calls) > 0 {
		d.thought = ""
	}
	d.messages = append(d.messages, c)
}

// chatMessage is a message in the form of OpenAI's chat. all holds its members; nil for one that stays as it came.
type chatMessage struct {
	Message

	all   Item
	role  string
	calls []*chatCall
	// answers is the id of the call whose result the message is.
	answers string
}

// chatCall is a call of a message, with the members that nobody here knows.
type chatCall struct {
	Call

	all      Item
	answered bool
}

const reasoningContent = "reasoning_content"

func (c *chatMessage) json() json.RawMessage {
	if c.all == nil {
		return c.Message.JSON()
	}
	return events.Raw(c.all)
}

func (c *chatMessage) set(name string, value any) { c.all[name] = events.Raw(value) }

func (c *chatMessage) silent() bool { return c.all != nil && silent(c.all["content"]) }

// silent reports whether a content says nothing.
func silent(content json.RawMessage) bool {
	s := string(content)
	return s == "" || s == "null" || s == `""` || s == "[]"
}

// inChat returns what a message is in a chat: mostly one message, and one more for each result of a tool that stands
// among its parts. underWay says that no message of the user follows.
func (m Message) inChat(underWay bool) (out []*chatMessage) {
	if m.stored == nil || m.asSent {
		return []*chatMessage{{Message: m, role: m.role}}
	}
	if m.role == Tool || m.role == Function {
		if out = m.chatResults(); len(out) == 0 {
			out = append(out, m.chatResult(m.answered(), m.stored.Content, m.stored.parts))
		}
		return out
	}
	if m.role != Assistant {
		if out = m.chatResults(); len(out) == 0 || !silent(m.chatContent()) {
			out = append(out, m.chatSaid(underWay))
		}
		return out
	}
	for _, m := range m.split() {
		out = append(append(out, m.chatSaid(underWay)), m.chatResults()...)
	}
	return out
}

// chatResults returns the results of tools that stand among the parts of a message.
func (m Message) chatResults() (out []*chatMessage) {
	for _, p := range m.stored.parts {
		if p.Type == toolResult {
			out = append(out, New(Tool, "").chatResult(p.ToolUseID, events.Raw(WordsIn(p.Content)), nil))
		}
	}
	return out
}

// answered returns the id of the call whose result a tool's message is, or "".
func (m Message) answered() string {
	if ids := m.Answers(); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// chatResult returns the result of a call. OpenAI's endpoint takes texts there and nothing else.
func (m Message) chatResult(call string, content json.RawMessage, parts []part) *chatMessage {
	out := &chatMessage{Message: m, role: Tool, answers: call, all: Item{}}
	out.set("role", Tool)
	out.set("tool_call_id", chatID(call))
	texts := []any{}
	for _, p := range parts {
		if text := p.words(); text != "" {
			texts = append(texts, textPart(text))
		}
	}
	switch {
	case len(texts) > 0:
		out.set("content", texts)
	case len(parts) > 0 || IsNull(content):
		out.set("content", "")
	case isText(content):
		out.all["content"] = content
	default:
		out.set("content", string(content)) // other JSON is said as it is written
	}
	return out
}

// chatSaid returns what a system, a user or an assistant says, and the calls that it makes.
func (m Message) chatSaid(underWay bool) *chatMessage {
	out := &chatMessage{Message: m, role: m.role, all: Item{}}
	if !slices.Contains([]string{System, Developer, Assistant}, out.role) {
		out.role = User
	}
	out.set("role", out.role)
	sent := asMembers(m.stored.raw)
	if name := chatName(m.stored.Name); name != "" {
		out.set("name", name)
	}
	for _, name := range []string{reasoningContent, "reasoning", "reasoning_details"} {
		if value := sent[name]; out.role == Assistant && underWay && !IsNull(value) {
			out.all[name] = value
		}
	}
	if out.role == Assistant {
		out.addCalls(m.chatCalls())
	}
	switch content := m.chatContent(); {
	case !silent(content):
		out.all["content"] = content
	case len(out.calls) > 0:
		out.set("content", nil)
	default:
		out.set("content", noText)
	}
	return out
}

// notInSpeaker matches the characters that OpenAI refuses in the names of speakers.
var notInSpeaker = regexp.MustCompile(`[\s<|\\/>]+`)

// chatName returns the name of a speaker as OpenAI takes it, or "".
func chatName(name string) string {
	runes := []rune(notInSpeaker.ReplaceAllString(strings.TrimSpace(name), "_"))
	return string(runes[:min(len(runes), longestName)])
}

// chatContent returns the content in the form of a chat.
func (m Message) chatContent() json.RawMessage {
	switch {
	case len(m.stored.parts) > 0 && !silent(m.stored.Content) && !isText(m.stored.Content):
		return events.Raw(m.chatParts())
	case len(m.stored.parts) > 0: // a refusal, what was spoken, or a part of a message that was split
		return events.Raw(m.Words())
	case silent(m.stored.Content):
		return nil
	case isText(m.stored.Content):
		return m.stored.Content
	default:
		return events.Raw(string(m.stored.Content)) // other JSON is said as it is written
	}
}

// chatParts returns the parts of a content in the forms that a chat has for the message's role.
func (m Message) chatParts() []json.RawMessage {
	out := []json.RawMessage{}
	for _, p := range m.stored.parts {
		switch {
		case p.inChat(m.role):
			out = append(out, p.raw)
		case p.isImage() && IsAddress(p.address()) && m.role == User:
			image := map[string]any{"type": chatImage, chatImage: map[string]string{"url": p.address()}}
			out = append(out, events.Raw(image))
		case cmp.Or(textIn(p.raw), p.words()) != "":
			out = append(out, textPart(cmp.Or(textIn(p.raw), p.words())))
		}
	}
	return out
}

// inChat reports whether a chat takes the part as it is from a role.
func (p part) inChat(role string) bool {
	switch p.Type {
	case "text":
		return p.Text != ""
	case "refusal":
		return role == Assistant && p.Refusal != ""
	case "image_url":
		return role == User && IsAddress(p.address()) && len(p.ImageURL) > 0 && p.ImageURL[0] == '{'
	case "input_audio":
		return role == User && p.Audio.Data != "" && (p.Audio.Format == "wav" || p.Audio.Format == "mp3")
	case "file":
		return role == User && (p.File.Data != "" || p.File.ID != "")
	}
	return false
}

// chatCalls returns the calls of a message in the form of a chat: with a type, with arguments in a text, and with the
// members that nobody here knows.
func (m Message) chatCalls() (out []*chatCall) {
	if m.stored == nil {
		return nil
	}
	for _, c := range m.everyCall() {
		call := &chatCall{Call: c, all: asMembers(c.raw)}
		call.mend()
		out = append(out, call)
	}
	if len(out) == 1 {
		out[0].carry(m.stored.Item)
	}
	return out
}

// mend gives a call the members that a chat asks for.
func (c *chatCall) mend() {
	if c.all == nil {
		c.all = Item{}
	}
	delete(c.all, "index") // of a stream
	c.all["id"] = events.Raw(chatID(c.ID))
	if c.Custom.Name != "" {
		custom := asMembers(c.all["custom"])
		custom["name"], custom["input"] = events.Raw(toolName(c.Custom.Name)), events.Raw(c.Custom.Input)
		c.all["type"], c.all["custom"] = events.Raw("custom"), events.Raw(custom)
		delete(c.all, "function")
		return
	}
	f := asMembers(c.all["function"])
	if f == nil {
		f = Item{}
	}
	f["name"] = events.Raw(toolName(c.Function.Name))
	f["arguments"] = events.Raw(chatArguments(string(c.Function.Arguments)))
	c.all["type"], c.all["function"] = events.Raw("function"), events.Raw(f)
	delete(c.all, "custom")
}

// chatID returns the id of a call as a chat has it. A function_call, the older form, has none.
func chatID(id string) string {
	if name, older := strings.CutPrefix(id, functionID("")); older {
		return "call_" + name
	}
	return id
}

// longestChatID is the most that OpenAI's chat takes of a call's id.
const longestChatID = 40

// ShortID returns an id of a call that is no longer than most, the same for the same id. Some models write what they
// want to see again into the ids of their calls, so those of the turn under way stay as they are.
func ShortID(id string, most int) string {
	if len(id) <= most {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}

// shortenIDs shortens the ids of the calls of a message, and that of the call whose result it is.
func (c *chatMessage) shortenIDs() {
	shorten := func(all Item, member string) {
		if id := all.Text(member); len(id) > longestChatID {
			all[member] = events.Raw(ShortID(id, longestChatID))
		}
	}
	shorten(c.all, "tool_call_id")
	for _, call := range c.calls {
		shorten(call.all, "id")
	}
	if len(c.calls) > 0 {
		c.addCalls(nil)
	}
}

// chatArguments returns the arguments of a call as a chat takes them: those of a call without any are an empty object.
func chatArguments(arguments string) string {
	if s := strings.TrimSpace(arguments); s == "" || s == "null" {
		return "{}"
	}
	if whole := withNumbers(Whole(json.RawMessage(arguments))); json.Valid(whole) {
		return string(whole)
	}
	return arguments
}

// known are the members of an item of a call that a chat's form says, or has no word for.
var known = []string{
	"type", "id", "status", "call_id", "name", "arguments", "input", "phase", "namespace", "caller", upstream,
}

// More returns the members of an item of a call that nobody here knows: they came with the call, and its model wants to
// see them again.
func (i Item) More() Item {
	more := maps.Clone(i)
	maps.DeleteFunc(more, func(name string, value json.RawMessage) bool {
		return slices.Contains(known, name) || IsNull(value)
	})
	return more
}

// carry gives a call what its model wants to see again.
func (c *chatCall) carry(item json.RawMessage) { maps.Copy(c.all, asMembers(item).More()) }

// addCalls adds calls to those of a message.
func (c *chatMessage) addCalls(more []*chatCall) {
	if c.calls = append(c.calls, more...); len(c.calls) == 0 {
		delete(c.all, "tool_calls")
		return
	}
	raws := make([]Item, len(c.calls))
	for i, call := range c.calls {
		raws[i] = call.all
	}
	c.set("tool_calls", raws)
}

// joins reports whether the calls of a message join those of the message before it.
func (c *chatMessage) joins(before *chatMessage) bool {
	return len(c.calls) > 0 && len(before.calls) > 0 && c.silent()
}

// callLast moves the calls of the message that makes a call into the last message, if all between them is what else the
// assistant said.
func callLast(list []*chatMessage, id string) []*chatMessage {
	last := len(list) - 1
	for k := last; k >= 0 && list[k].role == Assistant; k-- {
		c := list[k]
		if !slices.ContainsFunc(c.calls, func(c *chatCall) bool { return c.ID == id }) {
			continue
		}
		if k == last {
			break
		}
		to := list[last]
		if to.all == nil {
			to.all = asMembers(to.JSON())
		}
		if thought, has := c.all[reasoningContent]; has {
			to.all[reasoningContent] = thought
			delete(c.all, reasoningContent)
		}
		calls := c.calls
		c.calls, to.calls = nil, append(calls, to.calls...)
		c.addCalls(nil)
		to.addCalls(nil)
		if c.silent() {
			return slices.Delete(list, k, k+1)
		}
		break
	}
	return list
}

// paired puts each result right behind the message with its call, and turns calls without a result, and results without
// a call, into text. A result that comes twice is set aside: the texts of such results stand behind the others.
func paired(list []*chatMessage) (out []*chatMessage) {
	var caller *chatMessage
	var aside []*chatMessage
	end := func() { out, aside = append(out, aside...), nil }
	for _, c := range list {
		if c.role != Tool {
			end()
			caller = c
			out = append(out, c)
			continue
		}
		if caller != nil && caller.answer(c.answers) {
			out = append(out, c)
			continue
		}
		c.role = User
		c.all = Item{
			"role": events.Raw(User), "content": events.Raw(resultText("", WordsIn(c.all["content"]))),
		}
		aside = append(aside, c)
	}
	end()
	for _, c := range out {
		c.say()
	}
	return out
}

// answer notes that the call of an id has its result: the last one of that id. It reports false where there is none.
func (c *chatMessage) answer(id string) bool {
	for _, call := range slices.Backward(c.calls) {
		if call.ID == id && id != "" {
			was := call.answered
			call.answered = true
			return !was
		}
	}
	return false
}

// say turns the calls that are not answered into text.
func (c *chatMessage) say() {
	var said []string
	kept := slices.DeleteFunc(slices.Clone(c.calls), func(call *chatCall) bool {
		if !call.answered {
			said = append(said, callText(call.Call))
		}
		return !call.answered
	})
	if len(said) == 0 {
		return
	}
	c.calls = kept
	c.addCalls(nil)
	c.set("content", strings.TrimSpace(WordsIn(c.all["content"])+"\n"+strings.Join(said, "\n")))
}

// thought returns what a model thought that is an item of reasoning without a form of its vendor, or "".
func (m Message) thought() string {
	if i := asMembers(m.stored.Item); i.Type() == typeReasoning && i.Encrypted() == "" {
		return i.thought()
	}
	return ""
}
