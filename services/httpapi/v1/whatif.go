package v1

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// whatIfs adds the calls that say what models were told, and would have been told.
func (a *surface) whatIfs() {
	declared := func(id, pattern, summary string, errors ...int) operation {
		o := op(id, 0, pattern, summary, append(errors, notFound)...).any(access.ContextRead | access.EventsRead).
			boundsItself().takesLong()
		o.Responses = map[string]*huma.Response{"200": {Content: contentOf[whatIfLine](a, ndjson)}}
		return o
	}
	raw[anyAnswer](a, a.whatIf, declared("what-if", "GET /whatif", "See what models were told of the history before "+
		"their answers, and what they would have been told with other settings: a line for each answered turn, then the "+
		"total"))
	raw[anyAnswer](a, a.queryWhatIf, declared("query-what-if", "POST /whatif", "The same, also with a system prompt",
		unread, tooBig))
}

func (a *surface) whatIf(w http.ResponseWriter, r *http.Request, in *whatIfIn) error {
	ask, err := in.ask()
	if err != nil {
		return err
	}
	return a.tellWhatIf(w, r, ask)
}

func (a *surface) queryWhatIf(w http.ResponseWriter, r *http.Request, in *whatIfQueryIn) error {
	return a.tellWhatIf(w, r, in.Body.ask())
}

type whatIfIn struct {
	Sessions    string    `query:"sessions" doc:"Sessions with commas between; a comma of an id is %2C once more"`
	IdentityID  id        `query:"identity_id" doc:"The sessions that are linked to it"`
	Since       moment    `query:"since" doc:"Only turns that were answered at or after that time; alone, of all sessions, which needs events:read"`
	MaxTokens   number    `query:"max_tokens" doc:"What if history had at most so many tokens"`
	MaxMessages number    `query:"max_messages" doc:"What if it had at most so many messages, at least 2"`
	Summary     string    `query:"summary" doc:"true: what if a summary stood in the place of turns that the window left out"`
	Memory      string    `query:"memory" doc:"true: what if the prompt had long-term memory, as it is today"`
	System      ownSystem `query:"system" hidden:"true"`
}

// ownSystem is a system prompt, which must not stand in an address.
type ownSystem string

// UnmarshalText refuses any text.
func (*ownSystem) UnmarshalText([]byte) error {
	return invalid("", "is a text, and addresses end up in logs: send it as the body of POST /v1/whatif")
}

func (in *whatIfIn) ask() (ask services.WhatIfAsk, err error) {
	ask = services.WhatIfAsk{
		IdentityID: in.IdentityID.text(), Since: in.Since.Time, MaxTokens: int(in.MaxTokens),
		MaxMessages: int(in.MaxMessages),
	}
	for id := range strings.SplitSeq(in.Sessions, ",") {
		if plain, err := url.PathUnescape(id); err == nil {
			id = plain
		}
		if in.Sessions != "" {
			ask.Sessions = append(ask.Sessions, id)
		}
	}
	if ask.Summary, err = yes("summary", in.Summary); err == nil {
		ask.Memory, err = yes("memory", in.Memory)
	}
	if in.MaxMessages == 1 {
		err = invalid("max_messages", "must be at least 2")
	}
	return ask, err
}

type whatIfQueryIn struct {
	Body whatIfQuery
}

type whatIfQuery struct {
	Sessions    []string   `json:"sessions,omitempty"`
	IdentityID  id         `json:"identity_id,omitempty" doc:"The sessions that are linked to it"`
	Since       moment     `json:"since,omitzero" doc:"Only turns that were answered at or after that time; alone, of all sessions, which needs events:read"`
	MaxTokens   count      `json:"max_tokens,omitempty"`
	MaxMessages windowSize `json:"max_messages,omitempty"`
	Summary     bool       `json:"summary,omitempty"`
	Memory      bool       `json:"memory,omitempty"`
	System      string     `json:"system,omitempty" doc:"What if the prompt began with this"`
}

func (q *whatIfQuery) ask() services.WhatIfAsk {
	return services.WhatIfAsk{
		Sessions: q.Sessions, IdentityID: q.IdentityID.text(), Since: q.Since.Time, MaxTokens: int(q.MaxTokens),
		MaxMessages: int(q.MaxMessages), Summary: q.Summary, Memory: q.Memory, System: q.System,
	}
}

// whatIfLine is a line of the answer: that of a turn, the total at the end, or the problem that ended it.
type whatIfLine struct {
	*whatIfJSON

	Total   *services.WhatIfTotal `json:"total,omitempty"`
	Problem *problem              `json:"problem,omitempty"`
}

type whatIfJSON struct {
	SessionID  string          `json:"session_id"`
	TurnID     uuid.UUID       `json:"turn_id"`
	Position   events.Position `json:"position" example:"0:42"`
	Told       services.Told   `json:"told" enum:"same,assumed,part"`
	TokensTold int             `json:"tokens_told"`
	TokensIf   int             `json:"tokens_if"`
	TurnsTold  int             `json:"turns_told"`
	TurnsIf    int             `json:"turns_if"`
	LeftOut    []uuid.UUID     `json:"left_out" nullable:"false" doc:"Turns that the model would have been told no more"`
	BroughtIn  []uuid.UUID     `json:"brought_in" nullable:"false" doc:"Turns that it would have been told, too"`
}

// tellWhatIf answers with a line of JSON for each answered turn, and the total. It has no deadline: it ends when the
// client goes.
func (a *surface) tellWhatIf(w http.ResponseWriter, r *http.Request, ask services.WhatIfAsk) error {
	ctx := r.Context()
	if err := a.mayAskWhatIf(r, &ask); err != nil {
		return err
	}
	out, begun, total := a.wire.NewPatient(w, nil), false, services.WhatIfTotal{}
	defer out.End()
	line := func(l whatIfLine) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", ndjson)
		}
		raw, err := json.Marshal(l)
		if err != nil {
			return err
		}
		return out.Send(append(raw, '\n'))
	}
	err := a.cfg.WhatIfs.WhatIf(ctx, ask, func(row services.WhatIf) error {
		total.Add(row)
		shown := whatIfJSON(row)
		return line(whatIfLine{whatIfJSON: &shown})
	})
	noteTurns(ctx, total.Turns)
	switch {
	case err == nil:
		return line(whatIfLine{Total: &total})
	case begun:
		_ = line(whatIfLine{Problem: problemOf(err)}) // an error means that the client has gone
	}
	return err
}

// mayAskWhatIf refuses what the caller may not see.
func (a *surface) mayAskWhatIf(r *http.Request, ask *services.WhatIfAsk) (err error) {
	ctx := r.Context()
	switch {
	case ask.Sessions != nil && ask.IdentityID != "":
		return invalid("identity_id", "stands beside sessions: send one")
	case ask.Sessions == nil && ask.IdentityID == "" && ask.Since.IsZero():
		return invalid("sessions", "is required, or identity_id, or since")
	case ask.Sessions == nil:
		ask.IdentityID, err = services.Across(ctx, ask.IdentityID)
		return err
	}
	if may := wire.CallOf(ctx).Caller.Scopes; may != 0 && may&access.ContextRead == 0 {
		return &access.MissingScopes{Scopes: access.ContextRead}
	}
	for _, id := range ask.Sessions {
		if err := validID("sessions", id); err != nil {
			return err
		}
		if err := a.cfg.Admit(ctx, services.Entry{SessionID: id}); err != nil {
			return err
		}
	}
	return nil
}
