package v1

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

type turnsIn struct {
	SessionID   id        `path:"session_id"`
	Limit       number    `query:"limit" doc:"At most so many turns; 20 by default, clamped to 10,000"`
	Status      string    `query:"status" doc:"finalized (default), pending, or all: tombstones and replaced turns, too"`
	Cursor      string    `query:"cursor" doc:"next_cursor of the page before, for older turns"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
}

type turnsJSON struct {
	Turns      []turnJSON `json:"turns" nullable:"false" doc:"Newest last"`
	NextCursor *string    `json:"next_cursor" doc:"For the next page; null at the end"`
}

// listTurns returns a page of a session's turns. It also lists turns before a reset or a silence, which prompts leave
// out.
func (a *surface) listTurns(ctx context.Context, in *turnsIn) (turnsJSON, error) {
	p, err := newPage(in)
	if err != nil {
		return turnsJSON{}, err
	}
	reading, turns, err := a.pageOf(ctx, in, p)
	if err != nil {
		return turnsJSON{}, err
	}
	out := turnsJSON{Turns: []turnJSON{}}
	if len(turns) > p.limit {
		turns = turns[len(turns)-p.limit:]
		next := p.next(turns[0]).String()
		out.NextCursor = &next
	}
	for _, t := range turns {
		of, partition, inherited := reading.State.Origin(t, reading.Position.Partition)
		out.Turns = append(out.Turns, newTurnJSON(&services.Turn{
			Turn: *t, SessionID: of, IdentityID: reading.State.Identity, Inherited: inherited,
			Position: events.Position{Partition: partition, Seq: t.Started},
		}))
	}
	noteTurns(ctx, len(turns))
	return out, nil
}

// mapped converts a list. The result is never nil, since JSON would encode that as null.
func mapped[T, R any](list []T, to func(*T) R) []R {
	out := make([]R, len(list))
	for i := range list {
		out[i] = to(&list[i])
	}
	return out
}

// page is the selection of a listing: turns of one status, with the session's number of such turns, or, if whole is
// set, turns of every status.
type page struct {
	limit  int
	status session.Status
	whole  bool
	before cursor
}

func (p page) wanted(t *session.Turn) bool { return p.whole || t.Status == p.status }

func newPage(in *turnsIn) (p page, err error) {
	p.limit = in.Limit.limit()
	switch in.Status {
	case "", "finalized":
		p.status = session.Finalized
	case "pending":
		p.status = session.Pending
	case "all":
		p.whole = true
	default:
		return p, invalid("status", "must be finalized, pending or all")
	}
	p.before, err = parseCursor(in.Cursor, in.SessionID.text())
	return p, err
}

// pageOf returns the turns of a page, oldest first, with one more in front if there are older ones. If the view holds
// that extra turn, or the whole session, it is enough; else the whole session is read.
func (a *surface) pageOf(ctx context.Context, in *turnsIn, p page) (services.Reading, []*session.Turn, error) {
	ask := services.Ask{
		SessionID: in.SessionID.text(), MinPosition: in.MinPosition,
		Shown: p.before.passed + p.limit + 1, AllTurns: p.whole,
	}
	reading, err := a.read(ctx, ask)
	if err != nil {
		return reading, nil, err
	}
	turns := p.turnsOf(reading.State)
	if len(turns) <= p.limit && !p.allIn(reading.State) {
		ask.AllTurns = true
		if reading, err = a.read(ctx, ask); err == nil {
			turns = p.turnsOf(reading.State)
		}
	}
	return reading, turns, err
}

// allIn reports whether a state holds all wanted turns.
func (p page) allIn(s *session.State) bool {
	if s.Whole || p.whole {
		return true
	}
	left := s.Counts.Finalized
	if p.status == session.Pending {
		left = s.Counts.Pending
	}
	for _, t := range s.Turns {
		if p.wanted(t) {
			left--
		}
	}
	return left == 0
}

// turnsOf returns the newest wanted turns, oldest first, one more than the page holds.
func (p page) turnsOf(s *session.State) []*session.Turn {
	var out []*session.Turn
	for _, t := range slices.Backward(s.Turns) {
		if p.wanted(t) && p.before.after(t) {
			if out = append(out, t); len(out) > p.limit {
				break
			}
		}
	}
	slices.Reverse(out)
	return out
}

// cursor is the place of the oldest turn that was listed, and how many turns were listed so far. The order of a
// session's turns never changes, but their number may.
type cursor struct {
	session uint32
	place   uint64
	version int
	passed  int
}

func (p page) next(oldest *session.Turn) cursor {
	return cursor{p.before.session, oldest.Place, oldest.Version, min(p.before.passed+p.limit, conversationTurns)}
}

// conversationTurns bounds how many turns a cursor can make a view search.
const conversationTurns = 1_000_000

// after reports whether the cursor's turn comes after t; the zero cursor comes after all turns.
func (c cursor) after(t *session.Turn) bool {
	return c.place == 0 || t.Place < c.place || t.Place == c.place && t.Version < c.version
}

// String returns the cursor's opaque form.
func (c cursor) String() string {
	text := fmt.Appendf(nil, "%d.%d.%d.%d", c.session, c.place, c.version, c.passed)
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor parses a cursor of a session; an empty text is the zero cursor.
func parseCursor(s, sessionID string) (cursor, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(sessionID))
	c := cursor{session: h.Sum32()}
	if s == "" {
		return c, nil
	}
	of := c.session
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "%d.%d.%d.%d", &c.session, &c.place, &c.version, &c.passed)
	}
	valid := c.session == of && c.place > 0 && c.passed >= 0 && c.passed <= conversationTurns && c.String() == s
	if err != nil || !valid {
		return cursor{}, invalid("cursor", "must be the next_cursor of the page before")
	}
	return c, nil
}

type historyIn struct {
	SessionID   id        `path:"session_id"`
	Limit       number    `query:"limit" doc:"At most so many turns; 20 by default, clamped to 10,000"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
}

type historyJSON struct {
	History []pairJSON `json:"history" nullable:"false" doc:"Oldest first"`
}

type pairJSON struct {
	QuestionNeutral string `json:"question_neutral"`
	AnswerNeutral   string `json:"answer_neutral"`
}

// history returns the questions and answers that a prompt may show, in neutral language.
func (a *surface) history(ctx context.Context, in *historyIn) (historyJSON, error) {
	n := in.Limit.limit()
	reading, err := a.read(ctx, services.Ask{SessionID: in.SessionID.text(), Shown: n, MinPosition: in.MinPosition})
	if err != nil {
		return historyJSON{}, err
	}
	pairs := pairsOf(reading.State, n, a.cfg.Now())
	noteTurns(ctx, len(pairs))
	return historyJSON{pairs}, nil
}

func pairsOf(s *session.State, n int, now time.Time) []pairJSON {
	pairs := []pairJSON{}
	if s.Expired(now) || s.Erased != 0 {
		return pairs
	}
	for _, t := range slices.Backward(s.Turns) {
		if len(pairs) == n {
			break
		}
		if s.Shown(t) && t.Status == session.Finalized {
			pairs = append(pairs, pairJSON{t.Question.QuestionNeutral, t.Answer.AnswerNeutral})
		}
	}
	slices.Reverse(pairs)
	return pairs
}

type identityTurnsIn struct {
	IdentityID  id        `path:"identity_id"`
	Since       moment    `query:"since" doc:"Turns created at or after that time"`
	Until       moment    `query:"until" doc:"Turns created before that time"`
	Limit       number    `query:"limit" doc:"At most so many turns; 20 by default, clamped to 10,000"`
	Cursor      string    `query:"cursor" doc:"next_cursor of the page before"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
}

func (a *surface) identityTurns(ctx context.Context, in *identityTurnsIn) (turnsJSON, error) {
	if a.cfg.Identities == nil {
		return turnsJSON{}, projections.ErrUnavailable
	}
	found, err := a.cfg.Identities.IdentityTurns(ctx, services.IdentityAsk{
		IdentityID: in.IdentityID.text(), Since: in.Since.Time, Until: in.Until.Time,
		Limit: in.Limit.limit(), Cursor: in.Cursor, MinPosition: in.MinPosition,
	})
	switch {
	case errors.Is(err, decide.ErrInvalid), errors.Is(err, services.ErrPositionNotReached),
		errors.Is(err, services.ErrBehind):
		return turnsJSON{}, err
	case err != nil:
		return turnsJSON{}, fmt.Errorf("%w: %w", projections.ErrUnavailable, err)
	}
	noteTurns(ctx, len(found.Turns))
	return turnsJSON{mapped(found.Turns, newTurnJSON), optional(&found.NextCursor)}, nil
}
