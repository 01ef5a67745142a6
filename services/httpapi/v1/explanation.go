package v1

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// explains adds the call that explains a turn.
func (a *surface) explains() {
	call(a, a.explanation, op("explain-turn", access.ContextRead|access.EventsRead, "GET "+onTurn+"/explanation",
		"See what the log holds of a turn, and which turns its prompt could see", notFound))
}

type explanationIn struct {
	SessionID      id     `path:"session_id"`
	TurnID         turnID `path:"turn_id"`
	MaxMessages    number `query:"max_messages" doc:"As the prompt was asked for; 20 by default, at least 2"`
	MaxTokens      number `query:"max_tokens" doc:"As the prompt was asked for; no bound by default"`
	Language       string `query:"language" doc:"neutral (default) or translated"`
	IncludePending string `query:"include_pending" doc:"true: with questions that had no answer yet"`
	Summary        string `query:"summary" doc:"true: with a summary in the place of turns that the window left out"`
}

type explanationJSON struct {
	SessionID string           `json:"session_id" doc:"Where the turn stands"`
	TurnID    uuid.UUID        `json:"turn_id"`
	Inherited bool             `json:"inherited" doc:"The session that was asked for is a branch that shares the turn"`
	AsOf      string           `json:"as_of" example:"0:42"`
	Events    []explainedEvent `json:"events" nullable:"false" doc:"What the log holds of the turn"`
	Turns     []explainedTurn  `json:"turns" nullable:"false" doc:"The turns before it"`
	Context   contextJSON      `json:"context" doc:"The prompt as of its question, with today's redactions"`
}

type explainedEvent struct {
	Position   string         `json:"position"`
	RecordedAt time.Time      `json:"recordedat"`
	Type       string         `json:"type"`
	ID         string         `json:"id"`
	Redacted   bool           `json:"redacted,omitempty"`
	Problem    string         `json:"problem,omitempty" doc:"Why it has no effect"`
	Usage      *session.Usage `json:"usage,omitempty" doc:"What the model used"`
}

type explainedTurn struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
	Position  string `json:"position"`
	Seen      string `json:"seen" doc:"shown, or why not"`
	Inherited bool   `json:"inherited"`
}

// explanation explains a turn.
func (a *surface) explanation(ctx context.Context, in *explanationIn) (out explanationJSON, err error) {
	ask := services.ExplainAsk{
		SessionID: in.SessionID.text(), TurnID: in.TurnID.UUID, MaxMessages: int(in.MaxMessages),
		MaxTokens: int(in.MaxTokens), Language: services.Language(in.Language),
	}
	switch {
	case in.MaxMessages == 1:
		return out, invalid("max_messages", "must be at least 2")
	case ask.Language != "" && ask.Language != services.Neutral && ask.Language != services.Translated:
		return out, invalid("language", "must be neutral or translated")
	case ask.TurnID == uuid.Nil:
		return out, services.ErrNotExplained
	}
	if ask.IncludePending, err = yes("include_pending", in.IncludePending); err != nil {
		return out, err
	}
	if ask.Summary, err = yes("summary", in.Summary); err != nil {
		return out, err
	}
	x, err := a.cfg.Explain.Explain(ctx, ask)
	if err != nil {
		return out, err
	}
	out = explanationJSON{
		SessionID: x.SessionID, TurnID: x.TurnID, Inherited: x.Inherited, AsOf: x.AsOf,
		Events: []explainedEvent{}, Turns: []explainedTurn{},
		Context: newContextJSON(&x.Prompt, services.ContextRequest{}),
	}
	for _, e := range x.Events {
		out.Events = append(out.Events, explainedEvent{
			e.Position, e.RecordedAt, e.Type, e.ID, e.Redacted, e.Problem, e.Usage,
		})
	}
	for _, t := range x.Turns {
		out.Turns = append(out.Turns, explainedTurn(t))
	}
	messages := []byte{'['}
	for i, m := range x.Prompt.Messages {
		if i > 0 {
			messages = append(messages, ',')
		}
		messages = m.AppendJSON(messages)
	}
	out.Context.Messages.RawMessage = json.RawMessage(append(messages, ']'))
	return out, nil
}

// yes reads a parameter that is true or false.
func yes(name, s string) (bool, error) {
	if s != "" && s != "true" && s != "false" {
		return false, invalid(name, "must be true or false")
	}
	return s == "true", nil
}
