package v1

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
)

type contextIn struct {
	SessionID   id        `path:"session_id"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
	Body        contextBody
}

type contextBody struct {
	Message             string      `json:"message" doc:"The current user message"`
	TurnID              *string     `json:"turn_id,omitempty" doc:"The turn being answered: it is left out, and history goes up to its start"`
	SystemPrompt        string      `json:"system_prompt,omitempty"`
	MaxMessages         windowSize  `json:"max_messages,omitempty" doc:"Of history; 20 by default, at least 2, clamped to 100,000"`
	MaxTokens           count       `json:"max_tokens,omitempty" doc:"Of history, counted as the configured model counts them"`
	IdleTimeout         idleTimeout `json:"idle_timeout,omitempty" doc:"Only turns since the last silence that long, such as 30m; off for none" example:"30m"`
	Language            string      `json:"language,omitempty" enum:"neutral,translated"`
	IncludePending      bool        `json:"include_pending,omitempty" doc:"Questions without an answer, too"`
	Memory              bool        `json:"memory,omitempty"`
	Rewrite             bool        `json:"rewrite,omitempty"`
	Summary             bool        `json:"summary,omitempty" doc:"A summary in the place of turns that the window leaves out"`
	IdentityID          *id         `json:"identity_id,omitempty"`
	ConversationHistory ownHistory  `json:"conversation_history,omitempty" doc:"The client's own list of role and content instead of the stored history; what is malformed is dropped"`
	Format              string      `json:"format,omitempty" enum:"openai,anthropic"`
	AsOf                *asOfBody   `json:"as_of,omitempty" doc:"What history would have been sent then, today's redactions applied"`
}

// ownHistory is a client's own history. It accepts any JSON; anything but a list counts as an empty list.
type ownHistory struct{ list []json.RawMessage }

// UnmarshalJSON accepts any JSON; null counts as absent.
func (h *ownHistory) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	if json.Unmarshal(raw, &h.list) != nil || h.list == nil {
		h.list = []json.RawMessage{}
	}
	return nil
}

// Schema documents the list.
func (ownHistory) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Nullable: true, Items: &huma.Schema{}}
}

// asOfBody is a position or a time.
type asOfBody struct {
	Position string `json:"position,omitempty" example:"0:42" doc:"Inclusive"`
	Time     string `json:"time,omitempty" format:"date-time"`
}

// asOf reads the body's form; exactly one of the two must be there.
func (b *asOfBody) asOf() (*services.AsOf, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // no as-of is a valid answer
	}
	if (b.Position == "") == (b.Time == "") {
		return nil, invalid("as_of", "must have a position or a time, and one of them only")
	}
	if b.Time != "" {
		var at moment
		if at.UnmarshalText([]byte(b.Time)) != nil {
			return nil, invalid("as_of.time", notTime)
		}
		return &services.AsOf{Time: at.Time}, nil
	}
	at, err := events.ParsePosition(b.Position)
	if err != nil {
		return nil, invalid("as_of.position", "must be a position such as 0:42")
	}
	return &services.AsOf{Position: &at}, nil
}

// UnmarshalJSON is as strict as decode is with the body itself.
func (b *asOfBody) UnmarshalJSON(raw []byte) error {
	type plain asOfBody
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return &decide.Invalid{Why: "must be an object"}
	}
	for name := range object {
		if name != "position" && name != "time" {
			return &decide.Invalid{Why: "must have a position or a time, and nothing else"}
		}
	}
	if json.Unmarshal(raw, (*plain)(b)) != nil {
		return &decide.Invalid{Why: "must have a position or a time as a string"}
	}
	return nil
}

func (in *contextIn) request() (req services.ContextRequest, err error) {
	b := &in.Body
	req = services.ContextRequest{
		SessionID: in.SessionID.text(), IdentityID: b.IdentityID.text(), MinPosition: in.MinPosition,
		Message: b.Message, SystemPrompt: b.SystemPrompt, History: b.ConversationHistory.list,
		MaxMessages: int(b.MaxMessages), MaxTokens: int(b.MaxTokens), IdleTimeout: b.IdleTimeout.value,
		Language: services.Language(b.Language), Format: services.Format(b.Format),
		IncludePending: b.IncludePending, Memory: b.Memory, Rewrite: b.Rewrite, Summary: b.Summary,
	}
	if b.TurnID != nil {
		if req.TurnID = parseTurnID(*b.TurnID); req.TurnID == uuid.Nil {
			return req, invalid("turn_id", "must be the id of a turn")
		}
	}
	req.AsOf, err = b.AsOf.asOf()
	return req, err
}

// contextJSON is the part of the answer after the messages, and documents the whole answer.
type contextJSON struct {
	Messages        rawList       `json:"messages" nullable:"false" doc:"System prompt, memory, history oldest first, the current message"`
	System          *string       `json:"system,omitempty" doc:"In the anthropic form only"`
	SessionFound    bool          `json:"session_found"`
	HistoryMessages int           `json:"history_messages" doc:"Messages taken from history"`
	HistoryTurns    int           `json:"history_turns"`
	HistoryTurnIDs  []string      `json:"history_turn_ids" nullable:"false" doc:"The turns of the history, oldest first"`
	DroppedTurns    int           `json:"dropped_turns" doc:"Turns that the window left out"`
	Summary         *shownSummary `json:"summary" doc:"Of turns that the window left out"`
	MemorySnippet   *string       `json:"memory_snippet"`
	RewrittenQuery  *string       `json:"rewritten_query"`
	RewriteFallback bool          `json:"rewrite_fallback"`
	Warnings        []string      `json:"warnings" nullable:"false"`
	Position        *string       `json:"position" example:"0:42" doc:"null where the history came with the request; of a branch, of all partitions that were read"`
	Source          string        `json:"source" enum:"view,view+log,log,request"`
}

// shownSummary is services.ShownSummary in JSON.
type shownSummary struct {
	SummaryID     uuid.UUID `json:"summary_id"`
	ThroughTurnID uuid.UUID `json:"through_turn_id"`
	Turns         int       `json:"turns" doc:"How many turns it covers"`
}

// Schema documents the summary, or null.
func (shownSummary) Schema(huma.Registry) *huma.Schema {
	id := &huma.Schema{Type: huma.TypeString, Format: "uuid"}
	return &huma.Schema{
		Type: huma.TypeObject, Nullable: true, Required: []string{"summary_id", "through_turn_id", "turns"},
		Properties: map[string]*huma.Schema{
			"summary_id": id, "through_turn_id": id,
			"turns": {Type: huma.TypeInteger, Description: "How many turns it covers"},
		},
	}
}

// buildContext writes its answer itself, so that the messages reach the client as the port returns them, without being
// parsed or copied again.
func (a *surface) buildContext(w http.ResponseWriter, r *http.Request, in *contextIn) error {
	ctx := r.Context()
	req, err := in.request()
	if err != nil {
		return err
	}
	if err := a.cfg.Admit(ctx, services.Entry{
		Kind: services.KindContext, SessionID: req.SessionID, IdentityID: req.IdentityID,
	}); err != nil {
		return err
	}
	built, err := a.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return err
	}
	noteReading(ctx, built.Position, built.Source)
	notePrompt(ctx, built.HistoryTurns, built.SessionFound, built.HistoryMessages, built.DroppedTurns)
	rest, err := json.Marshal(newContextJSON(&built, req))
	if err != nil {
		return err
	}
	writeContext(w, built.Messages, rest)
	return nil
}

func newContextJSON(c *services.Context, req services.ContextRequest) contextJSON {
	out := contextJSON{
		Messages:     rawList{json.RawMessage("[]")},
		SessionFound: c.SessionFound, HistoryMessages: c.HistoryMessages, HistoryTurns: c.HistoryTurns,
		HistoryTurnIDs: make([]string, len(c.TurnIDs)), DroppedTurns: c.DroppedTurns,
		Summary:       (*shownSummary)(c.Summary),
		MemorySnippet: optional(&c.MemorySnippet), RewrittenQuery: optional(&c.RewrittenQuery),
		RewriteFallback: c.RewriteFallback,
		Warnings:        append([]string{}, c.Warnings...), Source: string(c.Source), // never null
	}
	for i, id := range c.TurnIDs {
		out.HistoryTurnIDs[i] = id.String()
	}
	if req.Format == services.Anthropic {
		out.System = &c.System
	}
	if req.History == nil {
		at := events.NewCursor(readAt(c.Position, c.Others)...).String()
		out.Position = &at
	}
	return out
}

// beforeMessages is the part of the answer before the messages.
const beforeMessages = `{"messages":[`

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keepBuffer bounds the buffers that are kept for reuse.
const keepBuffer = 1 << 20

func writeContext(w http.ResponseWriter, messages []services.Message, rest []byte) {
	held := buffers.Get().(*[]byte)
	buf := append((*held)[:0], beforeMessages...)
	for i, m := range messages {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = m.AppendJSON(buf)
	}
	buf = append(buf, rest[len(beforeMessages):]...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(buf)))
	_, _ = w.Write(buf) // an error means that the client has gone
	if cap(buf) <= keepBuffer {
		*held = buf
		buffers.Put(held)
	}
}
