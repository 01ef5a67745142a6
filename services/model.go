package services

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// ModelOptions are what a caller asks of an answer beside its prompt. The zero value leaves all to the model.
type ModelOptions struct {
	Tools      []ModelTool
	ToolChoice ToolChoice
	// OneCall: an answer calls at most one tool.
	OneCall           bool
	Temperature, TopP *float64
	// PresencePenalty and FrequencyPenalty are from -2 to 2. Only an endpoint of chat completions gets them.
	PresencePenalty, FrequencyPenalty *float64
	// MaxTokens bounds the answer; 0: the model's own bound.
	MaxTokens int64
	Format    AnswerFormat
	// Effort of the model's reasoning, the Summary of it that is asked for, and the Verbosity of the answer, in
	// OpenAI's words.
	Effort, Summary, Verbosity string
	// Others are members of a request in the form of OpenAI's Responses API. Only a model that speaks it gets them.
	Others map[string]json.RawMessage
	// Members are those of a chat completion as they came. Only a model that speaks these gets them, and nothing else
	// of the options.
	Members map[string]json.RawMessage
}

// ModelTool is a tool that the model may call. Parameters is the JSON schema of its arguments. Raw is the tool in the
// form of OpenAI's Responses API, as it came; only a model that speaks it knows other kinds than ToolFunction and
// ToolCustom.
type ModelTool struct {
	Kind, Name, Description string
	Parameters              json.RawMessage
	Strict                  *bool
	Raw                     json.RawMessage
}

// Kinds of tools that every model can call: a function has arguments in JSON, and a custom tool one text.
const (
	ToolFunction = "function"
	ToolCustom   = "custom"
)

// ToolChoice says whether the model calls tools. Tool names the one that ToolNamed asks for. Raw is the choice in the
// form of OpenAI's Responses API, if it came so.
type ToolChoice struct {
	Mode ToolMode
	Tool string
	Raw  json.RawMessage
}

// ToolMode says whether the model calls tools.
type ToolMode string

// The modes. The model decides in ToolAuto and in the zero value.
const (
	ToolAuto     ToolMode = "auto"
	ToolNone     ToolMode = "none"
	ToolRequired ToolMode = "required"
	ToolNamed    ToolMode = "named"
)

// AnswerFormat is the form of an answer's text. Kind is "" for plain text, json_object, or json_schema; the other
// fields belong to json_schema.
type AnswerFormat struct {
	Kind, Name, Description string
	Schema                  json.RawMessage
	Strict                  *bool
}

// PartKind is what a part of a model's answer is.
type PartKind string

// The kinds. PartReasoning is the model's reasoning, and PartSummary a summary of it. PartCall calls a function, with
// its arguments as Text, and PartCustomCall a custom tool, with its input as Text. PartItem is an item of a model that
// speaks OpenAI's Responses API, such as the call of a hosted tool.
const (
	PartText       PartKind = "text"
	PartRefusal    PartKind = "refusal"
	PartReasoning  PartKind = "reasoning"
	PartSummary    PartKind = "summary"
	PartCall       PartKind = "call"
	PartCustomCall PartKind = "custom_call"
	PartItem       PartKind = "item"
)

// AnswerPart is a part of a model's answer.
type AnswerPart struct {
	Kind         PartKind
	Text         string
	CallID, Name string
	// Item is what the model itself needs to see again of a part, in the form of an item of OpenAI's Responses API: a
	// PartItem, or reasoning with its encrypted content.
	Item json.RawMessage
	// ID is the model's own id of the item that begins here, where the Item comes later; else "".
	ID string
}

// AnswerPiece is a piece of the part with the index Part, as it arrives: Text is what is new of the text. The first
// piece of a part has its kind and its names. Parts begin in the order of their indices, and may be interleaved.
type AnswerPiece struct {
	Part int
	AnswerPart
}

// ModelAnswer is an answer of a model.
type ModelAnswer struct {
	Parts  []AnswerPart
	Finish Finish
	// Usage is nil if the model did not tell it.
	Usage *session.Usage
	// Model is the name that the endpoint gave for the model that answered, or "".
	Model string
	// Pieces are the lengths of the pieces in which the answer was told (PieceLengths).
	Pieces string
	// Prompt is what the prompt was built with; nil where that is not kept.
	Prompt *PromptSettings
}

// Said reports whether a part is told to the user: a text or a refusal.
func (p AnswerPart) Said() bool { return p.Kind == PartText || p.Kind == PartRefusal }

// Cut reports whether the answer ended before it was whole: by the model's limit of tokens, or by its filter.
func (a ModelAnswer) Cut() bool { return a.Finish == FinishLength || a.Finish == FinishFiltered }

// Whole returns the answer, with a text without words in it if it has no part at all, which it emits.
func (a ModelAnswer) Whole(emit func(AnswerPiece)) ModelAnswer {
	if len(a.Parts) == 0 {
		a.Parts = []AnswerPart{{Kind: PartText}}
		emit(AnswerPiece{AnswerPart: a.Parts[0]})
	}
	return a
}

// Text returns what the answer tells the user.
func (a ModelAnswer) Text() string {
	var b strings.Builder
	for _, p := range a.Parts {
		if p.Said() {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Prompt is what is sent to the model: messages in the model's format, in the Anthropic format with the system text
// apart, and what the caller asks of the answer.
type Prompt struct {
	System   string
	Messages []json.RawMessage
	// Exact: an endpoint that takes OpenAI's chat completions gets the messages as they are; else it gets so what the
	// system and the user say in those that are Sent.
	Exact bool
	Sent  map[string]bool
	ModelOptions
	// Conversation is the session's id, for traces. Models do not get it.
	Conversation string
	// Settings are what the prompt was built with, for the log; nil where nothing is recorded. Models do not get them.
	Settings *PromptSettings
}

// Model answers prompts.
type Model interface {
	// Name is shown to clients.
	Name() string
	// Format of the prompts that it takes.
	Format() Format
	// Answer calls emit with each piece of the answer as it arrives. With an error the answer is incomplete. The
	// error's text may be logged: it holds nothing of the prompt or the answer.
	Answer(ctx context.Context, p Prompt, emit func(AnswerPiece)) (ModelAnswer, error)
}

var (
	errTooMuch    = errors.New("the model wrote more than was asked for")
	errUnfinished = errors.New("the model wrote nothing, or its answer was cut off")
)

// Write has a model that takes prompts in OpenAI's format write a text of at most so many characters, and ends its
// answer once that is longer. The error's text holds nothing of the prompt or the answer.
func Write(ctx context.Context, m Model, instructions, given string, most int) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var b strings.Builder
	left := most
	answer, err := m.Answer(ctx, Prompt{Messages: []json.RawMessage{
		message.New("system", instructions).JSON(), message.New("user", given).JSON(),
	}}, func(p AnswerPiece) {
		if p.Kind != PartText { // a model that refuses has written nothing
			return
		}
		b.WriteString(p.Text)
		if left -= utf8.RuneCountInString(p.Text); left < 0 {
			cancel()
		}
	})
	text := strings.TrimSpace(b.String())
	switch {
	case left < 0:
		return "", errTooMuch
	case err != nil:
		return "", err
	case answer.Cut() || text == "":
		return "", errUnfinished
	}
	return text, nil
}
