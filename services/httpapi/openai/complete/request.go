package complete

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/problems"
)

// Request is a request for a chat completion.
type Request struct {
	services.StepAsk

	// Stream: it asks for chunks, and with Usage for one that has the usage. Legacy: it offers functions, the older
	// form of tools.
	Stream, Usage, Legacy bool
	// Session is what the metadata has as the session's id, of any type.
	Session json.RawMessage
}

// kept are the members that no endpoint gets as they came.
var kept = []string{"messages", "model", "stream", "stream_options", "metadata", "store"}

func bad(param, code, message string) error {
	return respond.Refuse(problems.Invalid, param, code, message)
}

// Parse reads a body. Members that nobody knows go on to the model.
func Parse(body []byte) (r Request, err error) {
	m, err := respond.Members(body)
	if err != nil {
		return r, err
	}
	var known struct {
		Stream   bool `json:"stream"`
		N        *int `json:"n"`
		Metadata map[string]json.RawMessage
		Options  struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	for name, into := range map[string]any{
		"stream": &known.Stream, "n": &known.N, "stream_options": &known.Options, "metadata": &known.Metadata,
	} {
		if raw := m[name]; !message.IsNull(raw) && json.Unmarshal(raw, into) != nil {
			return r, bad(name, "invalid_type", "'"+name+"' has a type that it can't have.")
		}
	}
	if known.N != nil && *known.N > 1 {
		return r, bad("n", "invalid_value", "'n' must be 1: one answer comes back.")
	}
	r.Stream, r.Usage, r.Session = known.Stream, known.Options.Usage, known.Metadata["session_id"]
	r.Completion, r.Streams = &services.Completion{}, r.Stream
	r.Legacy = message.IsNull(m["tools"]) && !message.IsNull(m["functions"])
	r.Settings = services.Settings{}
	if r.Options, err = options(m); err != nil {
		return r, err
	}
	for _, name := range kept {
		delete(m, name)
	}
	r.Options.Members = m
	return r, r.messages(body)
}

// messages reads the messages: those of the system and the developer are settings, and the others the input.
func (r *Request) messages(body []byte) error {
	var in struct{ Messages []json.RawMessage }
	if json.Unmarshal(body, &in) != nil {
		return bad("messages", "invalid_type", "'messages' must be an array.")
	}
	if len(in.Messages) == 0 {
		return bad("messages", "missing_required_parameter", "'messages' must hold at least one message.")
	}
	var instructions []string
	r.Sent = map[string]json.RawMessage{}
	for n, raw := range in.Messages {
		param := fmt.Sprintf("messages[%d]", n)
		m, err := message.ParseItem(raw)
		if err != nil || m.Text("role") == "" {
			return bad(param, "invalid_type", "'"+param+"' must be a message with a role.")
		}
		switch m.Text("role") {
		case message.System, message.Developer:
			r.Completion.System = append(r.Completion.System, raw)
			if words := message.Parse(raw).Words(); words != "" {
				instructions = append(instructions, words)
			}
			continue
		}
		r.add(raw)
	}
	r.Completion.Sent = in.Messages
	if r.Instructions = strings.Join(instructions, "\n\n"); r.Instructions != "" {
		raw, _ := json.Marshal(r.Instructions) // a text
		r.Settings["instructions"] = raw
	}
	return nil
}

// add adds a message to the input, as the items that it is. The model gets it as it came.
func (r *Request) add(raw json.RawMessage) {
	all := message.Items(raw)
	for _, i := range all {
		i = i.Sealed().Normal().WithoutID()
		if stored := string(i.Message()); len(all) == 1 && !i.IsOutput() && !i.IsCall() {
			r.Sent[stored] = raw
		}
		r.Input, r.IDs = append(r.Input, i), append(r.IDs, "")
	}
}

// In makes the request one of a session.
func (r *Request) In(sessionID string, history services.History) error {
	r.Store, r.Completion.Session, r.Completion.History = true, sessionID, history
	switch n := len(r.Input); {
	case n == 0:
		return bad("messages", "invalid_value", "'messages' has nothing to answer.")
	case !r.Input[n-1].Asks() && !r.Input[n-1].IsOutput():
		return bad("messages", "invalid_value", "'messages' must not end with the assistant's: in a session an answer "+
			"is recorded whole.")
	}
	return nil
}
