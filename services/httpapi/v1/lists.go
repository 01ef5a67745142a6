package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// Bounds of lists of sessions (docs/contract.md#reading).
const (
	defaultSessions = 50
	maxSessions     = 200
)

// across adds the calls that read across sessions.
func (a *surface) across() {
	byEither := func(id, pattern, summary string, errors ...int) operation {
		return op(id, 0, pattern, summary, append(errors, http.StatusForbidden)...).
			any(access.ContextRead | access.EventsRead).boundsItself()
	}
	call(a, a.listSessions,
		byEither("list-sessions", "GET /sessions", "List sessions, the one that was active last first"))
	call(a, a.querySessions, byEither("query-sessions", "POST /sessions/query",
		"List sessions, also by title and metadata", unread, tooBig))
	call(a, a.search, byEither("search", "POST /search", "Find turns by their words or their meaning", unread, tooBig))
	call(a, a.similar, byEither("similar", "POST /similar",
		"Find finalized turns whose question is near in meaning: have we answered this before?", unread, tooBig))
	call(a, a.stats, op("get-stats", 0, "GET /stats", "Count turns over time").
		any(access.EventsRead|access.Admin))
}

type listSessionsIn struct {
	IdentityID  id        `query:"identity_id" doc:"Sessions that are linked to it; left out: all, which needs events:read"`
	Since       moment    `query:"since" doc:"Sessions that were active at or after that time"`
	Until       moment    `query:"until" doc:"Sessions that were last active before that time"`
	Limit       number    `query:"limit" doc:"At most so many sessions; 50 by default, clamped to 200"`
	Cursor      string    `query:"cursor" doc:"next_cursor of the page before"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
	Title       noAddress `query:"title" hidden:"true"`
	Metadata    noAddress `query:"metadata" hidden:"true"`
}

// noAddress is a text that must not stand in an address.
type noAddress string

// UnmarshalText refuses any text.
func (*noAddress) UnmarshalText([]byte) error {
	return invalid("", "is a text, and addresses end up in logs: send it as the body of POST /v1/sessions/query")
}

type querySessionsIn struct {
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
	Body        sessionsQuery
}

type sessionsQuery struct {
	IdentityID id      `json:"identity_id,omitempty" doc:"Sessions that are linked to it; left out: all, which needs events:read"`
	Since      moment  `json:"since,omitzero" doc:"Sessions that were active at or after that time"`
	Until      moment  `json:"until,omitzero" doc:"Sessions that were last active before that time"`
	Limit      count   `json:"limit,omitempty" doc:"At most so many sessions; 50 by default, clamped to 200"`
	Cursor     string  `json:"cursor,omitempty" doc:"next_cursor of the page before"`
	Title      string  `json:"title,omitempty" doc:"A part of the title, in any case"`
	Metadata   members `json:"metadata,omitempty" doc:"Members that the session's metadata has"`
}

// members are texts by key.
type members map[string]string

// UnmarshalJSON reads an object of texts. It refuses a null in the place of one, which is no text.
func (m *members) UnmarshalJSON(raw []byte) error {
	var all map[string]*string
	if err := json.Unmarshal(raw, &all); err != nil {
		return invalid("", "must be an object whose values are strings")
	}
	*m = members{}
	for key, value := range all {
		if value == nil {
			return invalid("", "must be an object whose values are strings")
		}
		(*m)[key] = *value
	}
	return nil
}

type sessionsJSON struct {
	Sessions   []listedJSON `json:"sessions" nullable:"false" doc:"Newest activity first, then by session_id"`
	NextCursor *string      `json:"next_cursor" doc:"For the next page; null at the end"`
}

type listedJSON struct {
	sessionJSON
	LastTurn *lastTurnJSON `json:"last_turn" doc:"Null where there is none, and for an anonymous session that has left the recent view"`
}

type lastTurnJSON struct {
	TurnID          uuid.UUID `json:"turn_id"`
	Status          string    `json:"status" enum:"pending,finalized"`
	QuestionNeutral string    `json:"question_neutral" doc:"The first 200 characters"`
	AnswerNeutral   *string   `json:"answer_neutral" doc:"The first 200 characters"`
}

func (a *surface) listSessions(ctx context.Context, in *listSessionsIn) (sessionsJSON, error) {
	return a.sessions(ctx, services.SessionsAsk{
		SessionFilter: projections.SessionFilter{
			IdentityID: in.IdentityID.text(), Since: in.Since.Time, Until: in.Until.Time,
		},
		Limit: int(in.Limit), Cursor: in.Cursor, MinPosition: in.MinPosition,
	})
}

func (a *surface) querySessions(ctx context.Context, in *querySessionsIn) (sessionsJSON, error) {
	q := &in.Body
	return a.sessions(ctx, services.SessionsAsk{
		SessionFilter: projections.SessionFilter{
			IdentityID: q.IdentityID.text(), Since: q.Since.Time, Until: q.Until.Time, Title: q.Title,
			Metadata: q.Metadata,
		},
		Limit: int(q.Limit), Cursor: q.Cursor, MinPosition: in.MinPosition,
	})
}

func (a *surface) sessions(ctx context.Context, ask services.SessionsAsk) (out sessionsJSON, err error) {
	if ask.IdentityID, err = services.Across(ctx, ask.IdentityID); err != nil {
		return out, err
	}
	if a.cfg.Lists == nil {
		return out, projections.ErrUnavailable
	}
	if ask.Limit == 0 {
		ask.Limit = defaultSessions
	}
	ask.Limit = min(ask.Limit, maxSessions)
	page, err := a.cfg.Lists.Sessions(ctx, ask)
	if err != nil {
		return out, acrossError(err)
	}
	return sessionsJSON{mapped(page.Sessions, newListedJSON), optional(&page.NextCursor)}, nil
}

// acrossError returns an error of a read of the tables as the caller is told of it.
func acrossError(err error) error {
	if errors.Is(err, decide.ErrInvalid) || errors.Is(err, services.ErrPositionNotReached) ||
		errors.Is(err, services.ErrBehind) || errors.Is(err, services.ErrIndex) {
		return err
	}
	return fmt.Errorf("%w: %w", projections.ErrUnavailable, err)
}

func newListedJSON(s *projections.ListedSession) listedJSON {
	out := listedJSON{sessionJSON: newSessionJSON(s.SessionID, s.Head, s.Position)}
	if t := s.LastTurn; t != nil {
		out.LastTurn = &lastTurnJSON{
			TurnID: t.TurnID, Status: t.Status.String(), QuestionNeutral: t.Question,
			AnswerNeutral: optional(&t.Answer),
		}
	}
	return out
}

type statsIn struct {
	Since       moment    `query:"since" doc:"Turns that started at or after that time; left out: the last 30 days, today included"`
	Until       moment    `query:"until" doc:"Turns that started before that time"`
	Bucket      string    `query:"bucket" doc:"hour or day (default), of UTC"`
	By          string    `query:"by" doc:"pipeline_name, consultant, repository or none (default)"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
}

type statsJSON struct {
	Buckets   []bucketJSON `json:"buckets" nullable:"false" doc:"By start, then by; those without a turn are left out"`
	Position  string       `json:"position" doc:"One of each partition: what is counted" example:"0:42,1:17"`
	LagEvents uint64       `json:"lag_events" doc:"How many events of the log are not counted yet"`
}

type bucketJSON struct {
	Start       time.Time `json:"start"`
	By          *string   `json:"by" doc:"Null with none, and for turns that name none or were redacted"`
	Started     int       `json:"started" doc:"Turns that started in the bucket, tombstones included; a turn counts once, however often it was corrected"`
	Finalized   int       `json:"finalized" doc:"Those of them that have an answer now"`
	Redacted    int       `json:"redacted" doc:"Those of them that were redacted since"`
	Corrected   int       `json:"corrected" doc:"Finalized ones that were corrected"`
	Pending     int       `json:"pending" doc:"Those of them without an answer"`
	Sessions    int       `json:"sessions" doc:"Sessions of these turns"`
	Identities  int       `json:"identities" doc:"Identities of these sessions"`
	AnswerMSP50 *float64  `json:"answer_ms_p50" doc:"Milliseconds from start to answer; null where no turn was answered in a call of its own"`
	AnswerMSP95 *float64  `json:"answer_ms_p95"`
}

// stats counts turns of all sessions.
func (a *surface) stats(ctx context.Context, in *statsIn) (out statsJSON, err error) {
	f, err := countsFilter(in, a.cfg.Now())
	if err != nil {
		return out, err
	}
	if a.cfg.Counts == nil {
		return out, projections.ErrUnavailable
	}
	page, err := a.cfg.Counts.Counts(ctx, services.CountsAsk{CountsFilter: f, MinPosition: in.MinPosition})
	if err != nil {
		return out, acrossError(err)
	}
	if len(page.Counts) > projections.MostCounts {
		return out, invalid("by", "leads to more than 10,000 buckets: ask for less time, or days")
	}
	return statsJSON{
		mapped(page.Counts, newBucketJSON), events.NewCursor(page.Positions...).String(), page.LagEvents,
	}, nil
}

// statsDays is how many days statistics go back where no time is named.
const statsDays = 30

func countsFilter(in *statsIn, now time.Time) (f projections.CountsFilter, err error) {
	f = projections.CountsFilter{Since: in.Since.UTC(), Until: in.Until.UTC(), By: projections.By(in.By)}
	bucket := 24 * time.Hour
	switch in.Bucket {
	case "", "day":
	case "hour":
		f.Hour, bucket = true, time.Hour
	default:
		return f, invalid("bucket", "must be hour or day")
	}
	switch f.By {
	case "":
		f.By = projections.ByNone
	case projections.ByNone, projections.ByPipeline, projections.ByConsultant, projections.ByRepository:
	default:
		return f, invalid("by", "must be pipeline_name, consultant, repository or none")
	}
	if f.Until.IsZero() {
		f.Until = now.UTC().Truncate(bucket).Add(bucket)
	}
	if f.Since.IsZero() {
		f.Since = f.Until.Add(-1).Truncate(24*time.Hour).AddDate(0, 0, 1-statsDays)
	}
	if f.Until.Sub(f.Since.Truncate(bucket)) > projections.MostCounts*bucket {
		return f, invalid("since", "leads to more than 10,000 buckets: ask for less time, or days")
	}
	return f, nil
}

func newBucketJSON(c *projections.Counts) bucketJSON {
	return bucketJSON{
		c.Start, c.By, c.Started, c.Finalized, c.Redacted, c.Corrected, c.Pending, c.Sessions, c.Identities,
		c.AnswerP50, c.AnswerP95,
	}
}
