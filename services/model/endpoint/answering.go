package endpoint

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Answering is an answer while it arrives. Options are what its caller asked for, and Messages those of the prompt.
type Answering struct {
	Options  services.ModelOptions
	Messages []json.RawMessage

	emit  func(services.AnswerPiece)
	parts []*arriving
	// index is where the part of each key stands.
	index  map[string]int
	why    services.Finish
	usage  *session.Usage
	model  string
	failed bool
}

// arriving is a part whose text arrives.
type arriving struct {
	services.AnswerPart

	key        string
	text, held strings.Builder
}

// Add adds a piece to the part that the vendor's stream knows by key; the first piece of a key begins a part. A piece
// that brings nothing to a part that has begun is left out.
func (a *Answering) Add(key string, p services.AnswerPart) {
	at, begun := a.index[key]
	if !begun {
		at = len(a.parts)
		a.index[key] = at
		a.parts = append(a.parts, &arriving{AnswerPart: p, key: key})
	} else if p.Text == "" && p.Item == nil {
		return
	}
	part := a.parts[at]
	part.text.WriteString(p.Text)
	if p.Item != nil {
		part.Item = p.Item
	}
	a.emit(services.AnswerPiece{Part: at, AnswerPart: p})
}

// AddOn adds a piece to the newest part if that is of the same kind, and else begins a part with it: for a stream that
// does not say to which part a piece belongs.
func (a *Answering) AddOn(p services.AnswerPart) {
	at := len(a.parts)
	if at > 0 && a.parts[at-1].Kind == p.Kind {
		at--
	}
	a.Add(string(p.Kind)+" "+strconv.Itoa(at), p)
}

// Kind returns the kind of the part of a key, or "" if it has not begun.
func (a *Answering) Kind(key string) services.PartKind {
	if at, begun := a.index[key]; begun {
		return a.parts[at].Kind
	}
	return ""
}

// Text returns the text so far of the part of a key.
func (a *Answering) Text(key string) string {
	if at, begun := a.index[key]; begun {
		return a.parts[at].text.String()
	}
	return ""
}

// Annotate notes annotations of the newest text, in the form of the Responses API.
func (a *Answering) Annotate(annotations []json.RawMessage) {
	for _, p := range slices.Backward(a.parts) {
		if p.Kind == services.PartText {
			part := map[string]any{"type": "output_text", "text": p.text.String(), "annotations": annotations}
			a.Add(p.key, services.AnswerPart{
				Kind: p.Kind, Item: Item(map[string]any{"type": "message", "content": []any{part}}),
			})
			return
		}
	}
}

// Hold keeps a piece of a part that has begun and can't be told yet, and returns all that was kept of it.
func (a *Answering) Hold(key, piece string) string {
	at, begun := a.index[key]
	if !begun {
		return ""
	}
	a.parts[at].held.WriteString(piece)
	return a.parts[at].held.String()
}

// End notes why the answer ended; the first reason stands.
func (a *Answering) End(why services.Finish) { a.why = cmp.Or(a.why, why) }

// Fail notes that the endpoint reported a failure. The stream is read no further.
func (a *Answering) Fail() { a.failed = true }

// Use notes the usage; the last one stands.
func (a *Answering) Use(u session.Usage) { a.usage = &u }

// Used returns the usage that was noted last.
func (a *Answering) Used() session.Usage {
	if a.usage == nil {
		return session.Usage{}
	}
	return *a.usage
}

// Named notes the name of the model that answers.
func (a *Answering) Named(model string) { a.model = cmp.Or(a.model, model) }

// Item returns a value as an item of an AnswerPart.
func Item(v any) json.RawMessage {
	raw, _ := json.Marshal(v) // strings and JSON only
	return raw
}

func (a *Answering) answer() services.ModelAnswer {
	out := services.ModelAnswer{Finish: a.why, Usage: a.usage, Model: a.model}
	for _, p := range a.parts {
		p.AnswerPart.Text = p.text.String()
		out.Parts = append(out.Parts, p.AnswerPart)
	}
	return out
}
