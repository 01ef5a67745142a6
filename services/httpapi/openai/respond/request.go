package respond

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// Request is a request for a response. Stream: it asks for events. Include is what of the items it is to be shown.
type Request struct {
	services.StepAsk

	Stream bool

	Include message.Includes
}

// repeated are the members of a request that its response repeats.
var repeated = []string{
	"background", frequencyPenalty, "instructions", "max_output_tokens", "max_tool_calls", "metadata",
	"parallel_tool_calls",
	presencePenalty, "prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "temperature", "text",
	"tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
}

// mostSafetyID bounds a safety_identifier, in characters.
const mostSafetyID = 64

// MostInput is how many items a request may bring.
const MostInput = 500

// Refer returns the item that an item_reference of a request names; it has no id. param is the member that holds the
// reference, and beside are the ids of all items of the input. Of the request, Conversation and Previous are known.
type Refer func(r *Request, id, param string, beside []string) (message.Item, error)

// HostedTools says whether the model has tools of its own.
type HostedTools bool

// Members reads a body: the members of an object. An empty body is one without members. What can't be read is refused
// without a code, as OpenAI does it.
func Members(body []byte) (m services.Settings, err error) {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return services.Settings{}, nil
	case !utf8.Valid(body):
		return nil, refuse("", "", "The body is not UTF-8.")
	case json.Unmarshal(body, &m) != nil || m == nil:
		return nil, refuse("", "", "The body is not a JSON object.")
	case events.TooDeep(body):
		return nil, refuse("invalid_value", "", "The body nests deeper than 500 levels.")
	}
	return m, nil
}

// Parse reads the body of a request. Members that nobody knows are ignored, since clients are newer than servers.
// hosted says whether the model knows tools beside functions and custom tools.
func Parse(body []byte, hosted HostedTools, refer Refer) (Request, error) {
	m, err := Members(body)
	if err != nil {
		return Request{}, err
	}
	p := parser{members: m, sent: map[string]json.RawMessage{}}
	r := Request{Stream: p.flag("stream"), Include: p.includes()}
	r.Background = p.flag("background")
	r.Store, r.Previous, r.Instructions = p.unless("store"), p.previous(), p.instructions()
	r.Truncate = p.word("truncation", "disabled", "auto") == "auto"
	r.Conversation = p.conversation()
	p.refer = func(id, param string) (message.Item, error) { return refer(&r, id, param, p.named) }
	r.Input = p.input()
	if r.IDs, r.Sent = p.ids, p.sent; !hosted {
		p.inChat(r.Input)
	}
	r.Options, r.Settings = p.options(hosted), withoutSecrets(only(m, repeated))
	if !hosted {
		delete(r.Settings, "service_tier") // a chat model is asked in the default tier
	}
	for _, name := range []string{"model", "prompt_cache_key", "safety_identifier", "user"} {
		if long := utf8.RuneCountInString(p.text(name)) > mostSafetyID; long && name == "safety_identifier" {
			p.refuse("string_above_max_length", name, "'safety_identifier' is longer than 64 characters.")
		}
	}
	p.unsupported()
	if p.err == nil && r.Conversation != "" && r.Previous != "" {
		p.err = ErrTwoHistories
	}
	if r.Missing = p.missing; p.err != nil {
		return Request{}, cmp.Or(p.missing, p.err)
	}
	return r, nil
}

// only returns of members those with the names that have a value.
func only(s services.Settings, names []string) services.Settings {
	out := services.Settings{}
	for _, name := range names {
		if raw, given := s[name]; given && string(raw) != "null" {
			out[name] = raw
		}
	}
	return out
}

// parser reads members, and keeps the first refusal.
type parser struct {
	members services.Settings
	refer   func(id, param string) (message.Item, error)
	err     error
	// missing is the first item that is not found, which is told before what is wrong with the others.
	missing error
	// ids and sent are those of the input, and named all ids that its items bring.
	ids, named []string
	sent       map[string]json.RawMessage
}

func (p *parser) refuse(code, param, message string) {
	if p.err == nil {
		p.err = refuse(code, param, message)
	}
}

// read reads a member, and reports whether it has a value. want names the type for the refusal.
func (p *parser) read(name string, into any, want string) bool {
	raw := p.members[name]
	if message.IsNull(raw) {
		return false
	}
	if json.Unmarshal(raw, into) != nil {
		p.refuse("invalid_type", name, fmt.Sprintf("Invalid type for '%s': expected %s.", name, want))
		return false
	}
	return true
}

// flag reads a member that is false if it is left out.
func (p *parser) flag(name string) (set bool) {
	p.read(name, &set, "a boolean")
	return set
}

// unless reads a member that is true if it is left out.
func (p *parser) unless(name string) bool {
	set := true
	return !p.read(name, &set, "a boolean") || set
}

func (p *parser) text(name string) (s string) {
	p.read(name, &s, "a string")
	return s
}

// includes reads what of the items is to be shown.
func (p *parser) includes() message.Includes {
	var list []string
	p.read("include", &list, "an array of strings")
	out := message.Includes{}
	for _, value := range list {
		if !slices.Contains(message.KnownIncludes, value) {
			p.refuse("invalid_value", "include", "'include' has a value that there is not.")
		}
		out[value] = true
	}
	return out
}

// number reads a number between bounds; nil if there is none.
func (p *parser) number(name string, least, most float64) *float64 {
	var n float64
	if !p.read(name, &n, "a number") {
		return nil
	}
	switch {
	case n < least:
		p.refuse("decimal_below_min_value", name, fmt.Sprintf("'%s' must be at least %g.", name, least))
	case n > most:
		p.refuse("decimal_above_max_value", name, fmt.Sprintf("'%s' must be at most %g.", name, most))
	}
	return &n
}

// count reads a whole number of at least least; 0 if there is none.
func (p *parser) count(name string, least int64) int64 {
	var n int64
	if p.read(name, &n, "an integer") && n < least {
		p.refuse("integer_below_min_value", name, fmt.Sprintf("'%s' must be at least %d.", name, least))
	}
	return n
}

// word reads a member that has one of a few values; the first is the default.
func (p *parser) word(name string, values ...string) string {
	var s *string
	p.read(name, &s, "a string")
	return cmp.Or(p.among(name, s, values...), values[0])
}

// among returns a value that may be one of a few; "" if there is none. param names its member for the refusal.
func (p *parser) among(param string, value *string, values ...string) string {
	if value == nil {
		return ""
	}
	if !slices.Contains(values, *value) {
		p.refuse("invalid_value", param, fmt.Sprintf("'%s' has a value that it can't have.", param))
	}
	return *value
}

// input reads the items, or the text in their place.
func (p *parser) input() (out []message.Item) {
	raw := p.members["input"]
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		asked, _ := message.ParseItem(message.New(message.User, text).JSON()) // it is one
		p.ids = []string{""}
		return []message.Item{asked.Normal()}
	}
	var list []json.RawMessage
	switch {
	case message.IsNull(raw) || string(raw) == `""`:
		return nil
	case json.Unmarshal(raw, &list) != nil:
		p.refuse("invalid_type", "input", "Invalid type for 'input': expected a string or an array of items.")
	case len(list) > MostInput:
		p.refuse("array_above_max_length", "input", fmt.Sprintf("'input' may hold at most %d items.", MostInput))
		return nil
	}
	for _, raw := range list {
		var named struct{ ID string }
		_ = json.Unmarshal(raw, &named) // another form has no id
		p.named = append(p.named, named.ID)
	}
	for i, raw := range list {
		if item, listed := p.item(raw, "input["+strconv.Itoa(i)+"]"); listed {
			out = append(out, item)
		}
	}
	return out
}

// inChat refuses an input of which a model behind a chat endpoint would be sent nothing.
func (p *parser) inChat(input []message.Item) {
	for _, i := range input {
		m := i.Message()
		if sent, has := p.sent[string(m)]; has {
			m = sent
		}
		if message.InChat(m) {
			return
		}
	}
	if len(input) > 0 {
		p.refuse("invalid_value", "input", "'input' has no item that the model behind this server can be sent: "+
			"no message, no call of a tool, and no output of one.")
	}
}

// item reads an item of the input, or the one that it refers to. Items get ids of ours, but for those of an endpoint's
// own that it gets as they came.
func (p *parser) item(raw json.RawMessage, param string) (message.Item, bool) {
	item, err := message.ParseItem(raw)
	if err != nil {
		p.refuse("invalid_type", param, fmt.Sprintf("'%s' %s.", param, err))
		return nil, false
	}
	id := item.ID()
	if item.Refers() {
		if item, err = p.refer(id, param); err != nil {
			p.missing = cmp.Or(p.missing, err)
			return nil, false
		}
	}
	if wrong := item.Check(); wrong != nil {
		name := param + "." + wrong.Member
		p.refuse(wrong.Code(), name, fmt.Sprintf("'%s' %s.", name, wrong.Error()))
		return nil, false
	}
	if !item.Listed() {
		return nil, false
	}
	_, ours := items.Locate(id)
	if !ours {
		item = item.Sealed()
	}
	kept := item.Normal()
	if kept, err = items.Known(kept, func(id string) (message.Item, error) {
		there, err := p.refer(id, param)
		if Absent(err) {
			err = nil // what a history has at the place of what is gone is judged with the rest of it
		}
		return there, err
	}); err != nil {
		p.missing = cmp.Or(p.missing, err)
		return nil, false
	}
	if item.IsSentWhole() && id != "" && !ours {
		kept = kept.With("id", id)
	} else {
		kept = kept.WithoutID()
	}
	if sent, has := item.WithData(); has {
		p.sent[string(kept.Message())] = sent
	}
	p.ids = append(p.ids, id)
	return kept, true
}

// instructions reads what stands before the history: a text, or items whose texts are joined.
func (p *parser) instructions() string {
	raw := p.members["instructions"]
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		p.refuse("invalid_type", "instructions", "Invalid type for 'instructions': expected a string.")
	}
	for _, raw := range list {
		item, err := message.ParseItem(raw)
		if err != nil || item.Check() != nil {
			p.refuse("invalid_value", "instructions", "'instructions' must be a string or an array of items.")
			return ""
		}
		if words := item.Normal().Words(); words != "" {
			text += words + "\n\n"
		}
	}
	return text
}

// previous reads the id of a response. An empty one names none, and is no request without a history.
func (p *parser) previous() (id string) {
	if p.read("previous_response_id", &id, "a string") && id == "" {
		p.err = cmp.Or(p.err, error(ErrPrevious))
	}
	return id
}

// conversation reads the id of a conversation, which may stand in an object. An empty one names none, and is no request
// without a history.
func (p *parser) conversation() string {
	raw := p.members["conversation"]
	if message.IsNull(raw) {
		return ""
	}
	var id *string
	if json.Unmarshal(raw, &id) != nil {
		id = nil
		var object struct{ ID *string }
		if json.Unmarshal(raw, &object) == nil {
			id = object.ID
		}
	}
	switch {
	case id == nil:
		p.refuse("invalid_type", "conversation",
			"Invalid type for 'conversation': expected an id, or an object with one.")
		return ""
	case *id == "":
		p.err = cmp.Or(p.err, error(ErrConversation))
	}
	return *id
}

// unsupported refuses what would change the answer if it were ignored, and metadata that a response could not show.
func (p *parser) unsupported() {
	if !message.IsNull(p.members["prompt"]) {
		p.refuse("unsupported_parameter", "prompt", "Stored prompts are not supported: send 'instructions'.")
	}
	if list := p.members["context_management"]; !message.IsNull(list) && string(list) != "[]" {
		p.refuse("unsupported_parameter", "context_management",
			"'context_management' is not supported: with 'truncation' the oldest turns are left out.")
	}
	if !message.IsNull(p.members["moderation"]) {
		p.refuse("unsupported_parameter", "moderation", "'moderation' is not supported: ask a moderation endpoint.")
	}
	if p.flag("background") && !p.unless("store") {
		p.refuse("invalid_value", "background", "A response in the background must be stored.")
	}
	p.metadata()
}

func encode(v any) json.RawMessage {
	raw, _ := events.JSON(v) // never fails: v is made of JSON and texts
	return raw
}
