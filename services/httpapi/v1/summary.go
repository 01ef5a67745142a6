package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/access"
)

// summaries adds the call that records a summary.
func (a *surface) summaries() {
	o := op("summarize-session", access.TurnsWrite, "POST "+onSession+"/summaries",
		"Record a summary of a session's turns, from the first visible one on",
		unread, notFound, conflict, gone, tooBig)
	o.DefaultStatus = http.StatusCreated
	o.Responses = map[string]*huma.Response{
		"200": {Description: "The log had it already", Content: contentOf[summaryJSON](a, "application/json")},
	}
	call(a, a.summarizeSession, o)
}

type summarizeIn struct {
	SessionID id `path:"session_id"`
	Body      summarizeBody
}

type summarizeBody struct {
	RequestID         string `json:"request_id" doc:"The same request again is answered with the first summary"`
	ThroughTurnID     string `json:"through_turn_id" doc:"The last turn that the summary covers"`
	SummaryNeutral    string `json:"summary_neutral"`
	SummaryTranslated string `json:"summary_translated,omitempty"`
	Model             string `json:"model,omitempty" doc:"What made the summary"`
}

// summaryJSON is a summary in the form of docs/contract.md#writing.
type summaryJSON struct {
	SummaryID         uuid.UUID       `json:"summary_id"`
	SessionID         string          `json:"session_id"`
	FromTurnID        uuid.UUID       `json:"from_turn_id"`
	ThroughTurnID     uuid.UUID       `json:"through_turn_id"`
	Turns             int             `json:"turns" doc:"How many turns it covers"`
	SummaryNeutral    string          `json:"summary_neutral"`
	SummaryTranslated *string         `json:"summary_translated"`
	Model             *string         `json:"model"`
	CreatedAt         time.Time       `json:"created_at"`
	Position          events.Position `json:"position" example:"0:42"`
	Duplicate         bool            `json:"duplicate" doc:"The log had it already"`
}

func (a *surface) summarizeSession(ctx context.Context, in *summarizeIn) (summaryJSON, error) {
	b := &in.Body
	through := parseTurnID(b.ThroughTurnID)
	if through == uuid.Nil {
		return summaryJSON{}, invalid("through_turn_id", "must be the id of a turn")
	}
	m, err := a.cfg.SessionWrites.SummarizeSession(ctx, conversation.Summarize{
		SessionID: in.SessionID.text(), RequestID: b.RequestID, ThroughTurnID: through,
		SummaryNeutral: b.SummaryNeutral, SummaryTranslated: b.SummaryTranslated, Model: b.Model,
	})
	if err != nil {
		return summaryJSON{}, err
	}
	notePosition(ctx, m.Position)
	return summaryJSON{
		SummaryID: m.ID, SessionID: m.SessionID, FromTurnID: m.From, ThroughTurnID: m.Through, Turns: m.Turns,
		SummaryNeutral: m.Fact.SummaryNeutral, SummaryTranslated: optional(&m.Fact.SummaryTranslated),
		Model: optional(&m.Fact.Model), CreatedAt: m.CreatedAt.UTC(), Position: m.Position, Duplicate: m.Duplicate,
	}, nil
}
