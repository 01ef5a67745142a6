package v1

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// sessionJSON is a session in the form of docs/contract.md#reading.
type sessionJSON struct {
	SessionID     string     `json:"session_id"`
	IdentityID    *string    `json:"identity_id"`
	Found         bool       `json:"found" doc:"The log knows the session, and it was not erased"`
	Title         *string    `json:"title"`
	Metadata      rawObject  `json:"metadata"`
	Turns         int        `json:"turns" doc:"Turns with and without an answer; redacted ones are none"`
	Pending       int        `json:"pending" doc:"Turns without an answer"`
	CreatedAt     *time.Time `json:"created_at"`
	LastActiveAt  *time.Time `json:"last_active_at"`
	CurrentBranch *string    `json:"current_branch" doc:"The branch that the session's chat goes on in (/v1/ui); null where that is the session"`
	ForkedFrom    forkedFrom `json:"forked_from" doc:"Of a branch; null of any other session"`
	Position      positions  `json:"position" example:"0:42" doc:"Of a branch, of all partitions that were read"`
	Duplicate     *bool      `json:"duplicate,omitempty" doc:"In answers to writes: the log had it already"`
}

func newSessionJSON(id string, h session.Head, at events.Position, others ...events.Position) sessionJSON {
	is := h.Description()
	return sessionJSON{
		SessionID: id, IdentityID: optional(&h.Identity), Found: !h.CreatedAt.IsZero() && h.Erased == 0,
		Title: optional(&is.Title), Metadata: rawObject{json.RawMessage(cmp.Or(is.Metadata, "{}"))},
		Turns: h.Finalized + h.Pending, Pending: h.Pending,
		CreatedAt: optionalTime(h.CreatedAt), LastActiveAt: optionalTime(h.LastActive),
		CurrentBranch: optional(&is.CurrentBranch),
		ForkedFrom:    forkedFrom{h.Fork()}, Position: readAt(at, others),
	}
}

// answerSession answers a write on a session.
func answerSession(ctx context.Context, s services.Session, err error) (sessionJSON, error) {
	notePosition(ctx, s.Position)
	out := newSessionJSON(s.SessionID, s.Head, s.Position)
	out.Duplicate = &s.Duplicate
	return out, err
}

type linkIn struct {
	SessionID id `path:"session_id"`
	Body      linkBody
}

type linkBody struct {
	IdentityID string `json:"identity_id" doc:"1 to 256 bytes, as for all ids"`
}

func (a *surface) linkSession(ctx context.Context, in *linkIn) (sessionJSON, error) {
	s, err := a.cfg.SessionWrites.LinkSession(ctx, in.SessionID.text(), in.Body.IdentityID, a.cfg.Source(ctx))
	return answerSession(ctx, s, err)
}

type resetIn struct {
	SessionID id `path:"session_id"`
	Body      *resetBody
}

type resetBody struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the log"`
}

func (a *surface) resetSession(ctx context.Context, in *resetIn) (sessionJSON, error) {
	s, err := a.cfg.SessionWrites.ResetSession(ctx, in.SessionID.text(), in.Body.Reason)
	return answerSession(ctx, s, err)
}

type sessionIn struct {
	SessionID   id        `path:"session_id"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
}

func (a *surface) session(ctx context.Context, in *sessionIn) (sessionJSON, error) {
	reading, err := a.read(ctx, services.Ask{SessionID: in.SessionID.text(), MinPosition: in.MinPosition, Own: true})
	if err != nil {
		return sessionJSON{}, err
	}
	return newSessionJSON(in.SessionID.text(), reading.State.Head(), reading.Position, reading.Others...), nil
}

// read reads a session, and notes the position and source of the reading for the log line.
func (a *surface) read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	reading, err := a.cfg.Sessions.Read(ctx, ask)
	noteReading(ctx, reading.Position, reading.Source)
	return reading, err
}

type describeIn struct {
	SessionID id `path:"session_id"`
	Body      describeBody
}

type describeBody struct {
	RequestID string          `json:"request_id,omitempty" doc:"The same request again changes nothing"`
	Title     nullableText    `json:"title,omitzero" doc:"At most 200 characters; null takes it away"`
	Metadata  metadataChanges `json:"metadata,omitzero" doc:"Laid over the session's; null takes a key away"`
	Kind      string          `json:"kind,omitempty" enum:"conversation" doc:"Makes the session a conversation for ever: no silence is a boundary in it, and a retention of its own holds for it"`
}

func (a *surface) describeSession(ctx context.Context, in *describeIn) (sessionJSON, error) {
	kind := events.SessionKind(in.Body.Kind)
	if kind != "" && kind != events.KindConversation {
		return sessionJSON{}, invalid("kind", "must be conversation")
	}
	s, err := a.cfg.SessionWrites.DescribeSession(ctx, decide.Describe{
		SessionID: in.SessionID.text(), RequestID: in.Body.RequestID, Kind: kind,
		Title: in.Body.Title.text, Metadata: in.Body.Metadata.values,
	})
	return answerSession(ctx, s, err)
}

const halfSurrogate = `holds half of a surrogate pair (\ud800 to \udfff alone): send Unicode`

// nullableText is a text, or null, which is the empty text; nil where none was sent.
type nullableText struct{ text *string }

// UnmarshalJSON reads a text or null.
func (n *nullableText) UnmarshalJSON(raw []byte) error {
	n.text = new(string)
	if err := json.Unmarshal(raw, n.text); err != nil {
		return invalid("", "must be a string or null")
	}
	if !jsontext.Value(raw).IsValid() {
		return invalid("", halfSurrogate)
	}
	return nil
}

// takesNull implements nullable.
func (nullableText) takesNull() {}

// Schema documents the text.
func (nullableText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true}
}

// metadataChanges are texts by key, some of them null; nil where none were sent.
type metadataChanges struct{ values map[string]*string }

// UnmarshalJSON reads an object.
func (m *metadataChanges) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &m.values); err != nil || m.values == nil {
		return invalid("", "must be an object whose values are strings or null")
	}
	if !jsontext.Value(raw).IsValid() {
		return invalid("", halfSurrogate+", or a key twice")
	}
	return nil
}

// Schema documents the object.
func (metadataChanges) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:                 huma.TypeObject,
		AdditionalProperties: &huma.Schema{Type: huma.TypeString, Nullable: true},
	}
}

type forkIn struct {
	SessionID      id     `path:"session_id"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	Body           forkBody
}

type forkBody struct {
	RequestID    *id     `json:"request_id,omitempty" doc:"The same one again gives the same branch, for ever; required here or as Idempotency-Key"`
	TurnID       *string `json:"turn_id,omitempty" doc:"The branch begins with the turns up to and with this one"`
	BeforeTurnID *string `json:"before_turn_id,omitempty" doc:"The branch begins with the turns right before this one; both left out: up to the last finalized one"`
	SessionID    *id     `json:"session_id,omitempty" doc:"The branch; left out: computed from session and request"`
}

// forkedJSON is a branch in the answer to a fork, which creates a session.
type forkedJSON struct{ sessionJSON }

func (f *forkedJSON) existedBefore() bool { return *f.Duplicate }

func (a *surface) forkSession(ctx context.Context, in *forkIn) (forkedJSON, error) {
	request, err := requestID(in.Body.RequestID, in.IdempotencyKey)
	if err != nil {
		return forkedJSON{}, err
	}
	s, err := a.cfg.SessionWrites.ForkSession(ctx, decide.ForkSession{
		SessionID: in.SessionID.text(), RequestID: request, ChildID: in.Body.SessionID.text(),
		TurnID: namedTurn(in.Body.TurnID), BeforeTurnID: namedTurn(in.Body.BeforeTurnID),
	})
	out, err := answerSession(ctx, s, err)
	return forkedJSON{out}, err
}

// namedTurn returns the turn that a body names, uuid.Nil for none. A malformed id names a turn that no session has.
func namedTurn(text *string) uuid.UUID {
	if text == nil {
		return uuid.Nil
	}
	if turn := parseTurnID(*text); turn != uuid.Nil {
		return turn
	}
	return uuid.Max
}

// forkedFrom says where a branch begins; null for a session that is no branch.
type forkedFrom struct{ session.Fork }

// MarshalJSON writes the session of the last shared turn and, unless none is shared, that turn.
func (f forkedFrom) MarshalJSON() ([]byte, error) {
	if f.ForkedAt == 0 {
		return []byte("null"), nil
	}
	out := struct {
		SessionID string     `json:"session_id"`
		TurnID    *uuid.UUID `json:"turn_id"`
	}{SessionID: f.From}
	if through := f.Through(); through != uuid.Nil {
		out.TurnID = &through
	}
	return json.Marshal(out)
}

// Schema documents the object.
func (forkedFrom) Schema(huma.Registry) *huma.Schema {
	text := func(what string, nullable bool) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Description: what, Nullable: nullable}
	}
	return &huma.Schema{Type: huma.TypeObject, Nullable: true, Properties: map[string]*huma.Schema{
		"session_id": text("The session of the last shared turn", false),
		"turn_id":    text("The last shared turn; null where none is shared", true),
	}, Required: []string{"session_id", "turn_id"}}
}

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
	Duplicate         *bool           `json:"duplicate,omitempty" doc:"In answers to writes: the log had it already"`
}

func (m *summaryJSON) existedBefore() bool { return *m.Duplicate }

func (a *surface) summarizeSession(ctx context.Context, in *summarizeIn) (summaryJSON, error) {
	b := &in.Body
	through := parseTurnID(b.ThroughTurnID)
	if through == uuid.Nil {
		return summaryJSON{}, invalid("through_turn_id", "must be the id of a turn")
	}
	m, err := a.cfg.SessionWrites.SummarizeSession(ctx, decide.Summarize{
		ThroughTurnID: through,
		Summary: events.SessionSummarized{
			SessionID: in.SessionID.text(), RequestID: b.RequestID,
			SummaryNeutral: b.SummaryNeutral, SummaryTranslated: b.SummaryTranslated, Model: b.Model,
		},
	})
	if err != nil {
		return summaryJSON{}, err
	}
	notePosition(ctx, m.Position)
	out := newSummaryJSON(m.SessionID, &m.Summary, m.Position)
	out.Duplicate = &m.Duplicate
	return out, nil
}

func newSummaryJSON(sessionID string, m *session.Summary, at events.Position) summaryJSON {
	return summaryJSON{
		SummaryID: m.ID, SessionID: sessionID, FromTurnID: m.From, ThroughTurnID: m.Through, Turns: m.Turns,
		SummaryNeutral: m.Fact.SummaryNeutral, SummaryTranslated: optional(&m.Fact.SummaryTranslated),
		Model: optional(&m.Fact.Model), CreatedAt: m.CreatedAt.UTC(), Position: at,
	}
}

// summariesJSON are the summaries of a session that are valid.
type summariesJSON struct {
	Summaries []summaryJSON `json:"summaries" nullable:"false" doc:"Those that are valid, newest last"`
}

// listSummaries lists the summaries that stand. Only the log has them.
func (a *surface) listSummaries(ctx context.Context, in *sessionIn) (summariesJSON, error) {
	ask := services.Ask{SessionID: in.SessionID.text(), MinPosition: in.MinPosition, AllTurns: true}
	reading, err := a.read(ctx, ask)
	out := summariesJSON{Summaries: []summaryJSON{}}
	if err != nil || reading.State.Expired(a.cfg.Now()) {
		return out, err
	}
	for _, m := range reading.State.Standing() {
		at := events.Position{Partition: reading.Position.Partition, Seq: m.At}
		out.Summaries = append(out.Summaries, newSummaryJSON(ask.SessionID, &m, at))
	}
	return out, nil
}
