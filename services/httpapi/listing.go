package httpapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

type turnsIn struct {
	SessionID   string `path:"session_id"`
	Limit       string `query:"limit" doc:"At most so many turns; 20 by default, clamped to 10,000"`
	Status      string `query:"status" doc:"finalized (default), pending, or all: tombstones and replaced turns, too"`
	Cursor      string `query:"cursor" doc:"next_cursor of the page before, for older turns"`
	MinPosition string `query:"min_position" doc:"The answer is at least that new"`
}

type turnsOut struct{ Body turnsJSON }

type turnsJSON struct {
	Turns      []turnJSON `json:"turns" nullable:"false" doc:"Newest last"`
	NextCursor *string    `json:"next_cursor" doc:"For the next page; null at the end"`
}

// listTurns gives a page of a session's turns, also of those before a reset or a
// silence: what prompts leave out is still there.
func (a *API) listTurns(ctx context.Context, in *turnsIn) (*turnsOut, error) {
	p, err := newPage(in)
	if err != nil {
		return nil, err
	}
	reading, turns, err := a.pageOf(ctx, in, p)
	if err != nil {
		return nil, err
	}
	out := &turnsOut{turnsJSON{Turns: []turnJSON{}}}
	if len(turns) > p.limit {
		turns = turns[len(turns)-p.limit:]
		next := p.next(turns[0]).String()
		out.Body.NextCursor = &next
	}
	for _, t := range turns {
		at := events.Position{Partition: reading.Position.Partition, Seq: t.Started}
		out.Body.Turns = append(out.Body.Turns, newTurnJSON(&services.Turn{
			Turn: *t, SessionID: in.SessionID, IdentityID: reading.State.Identity, Position: at,
		}))
	}
	callOf(ctx).turns = len(turns)
	return out, nil
}

// page is what is asked of a listing: turns of a status, of which the session has so
// many in all, or whole, turns of every status.
type page struct {
	limit  int
	status conversation.Status
	total  func(conversation.Counts) int
	whole  bool
	before cursor
}

func (p page) wanted(t *conversation.Turn) bool { return p.whole || t.Status == p.status }

func newPage(in *turnsIn) (p page, err error) {
	if p.limit, err = limit(in.Limit); err != nil {
		return p, err
	}
	switch in.Status {
	case "", "finalized":
		p.status, p.total = conversation.Finalized, func(c conversation.Counts) int { return c.Finalized }
	case "pending":
		p.status, p.total = conversation.Pending, func(c conversation.Counts) int { return c.Pending }
	case "all":
		p.whole = true
	default:
		return p, invalid("status", "must be finalized, pending or all")
	}
	p.before, err = parseCursor(in.Cursor, in.SessionID)
	return p, err
}

// pageOf gives the turns of a page, oldest first, with one more in front where there
// are older ones. What the view holds is enough if it holds that one, too, or all
// that there are; else the whole session is read.
func (a *API) pageOf(ctx context.Context, in *turnsIn, p page) (services.Reading, []*conversation.Turn, error) {
	ask := services.Ask{SessionID: in.SessionID, Shown: p.before.passed + p.limit + 1, Whole: p.whole}
	reading, err := a.read(ctx, in.MinPosition, ask)
	if err != nil {
		return reading, nil, err
	}
	turns := p.of(reading.State)
	if len(turns) > p.limit || p.allIn(reading.State) {
		return reading, turns, nil
	}
	ask.Whole = true
	reading, err = a.read(ctx, in.MinPosition, ask)
	if err != nil {
		return reading, nil, err
	}
	return reading, p.of(reading.State), nil
}

// allIn tells whether a state holds all turns that are wanted.
func (p page) allIn(s *conversation.State) bool {
	if s.Whole || p.whole {
		return true
	}
	held := 0
	for _, t := range s.Turns {
		if p.wanted(t) {
			held++
		}
	}
	return held == p.total(s.Counts)
}

// of gives the newest turns that are wanted, oldest first, one more than fit.
func (p page) of(s *conversation.State) []*conversation.Turn {
	var out []*conversation.Turn
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

// cursor is the place of the oldest turn that was given, and how many were given
// so far: the order of a session's turns never changes, but their number may.
type cursor struct {
	session uint32
	place   uint64
	version int
	passed  int
}

func (p page) next(oldest *conversation.Turn) cursor {
	return cursor{p.before.session, oldest.Place, oldest.Version, min(p.before.passed+p.limit, conversationTurns)}
}

// conversationTurns bounds what a cursor makes a view look for.
const conversationTurns = 1_000_000

// after tells whether a turn comes before the cursor's; the zero cursor is after all.
func (c cursor) after(t *conversation.Turn) bool {
	return c.place == 0 || t.Place < c.place || t.Place == c.place && t.Version < c.version
}

// String gives the opaque form.
func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(
		fmt.Appendf(nil, "%d.%d.%d.%d", c.session, c.place, c.version, c.passed),
	)
}

// parseCursor reads a cursor of a session; an empty one is before nothing.
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
	if err != nil || c.session != of || c.place == 0 || c.passed < 0 || c.passed > conversationTurns ||
		c.String() != s {
		return cursor{}, invalid("cursor", "must be the next_cursor of the page before")
	}
	return c, nil
}

type historyIn struct {
	SessionID   string `path:"session_id"`
	Limit       string `query:"limit" doc:"At most so many turns; 20 by default, clamped to 10,000"`
	MinPosition string `query:"min_position" doc:"The answer is at least that new"`
}

type historyOut struct{ Body historyJSON }

type historyJSON struct {
	History []pairJSON `json:"history" nullable:"false" doc:"Oldest first"`
}

type pairJSON struct {
	QuestionNeutral string `json:"question_neutral"`
	AnswerNeutral   string `json:"answer_neutral"`
}

// history gives what a prompt may be told of the session, in neutral language.
func (a *API) history(ctx context.Context, in *historyIn) (*historyOut, error) {
	n, err := limit(in.Limit)
	if err != nil {
		return nil, err
	}
	reading, err := a.read(ctx, in.MinPosition, services.Ask{SessionID: in.SessionID, Shown: n})
	if err != nil {
		return nil, err
	}
	pairs := pairsOf(reading.State, n, a.cfg.Now())
	callOf(ctx).turns = len(pairs)
	return &historyOut{historyJSON{pairs}}, nil
}

func pairsOf(s *conversation.State, n int, now time.Time) []pairJSON {
	pairs := []pairJSON{}
	if s.Expired(now) || s.Erased != 0 {
		return pairs
	}
	for _, t := range slices.Backward(s.Turns) {
		if len(pairs) == n {
			break
		}
		if s.Shown(t) && t.Status == conversation.Finalized {
			pairs = append(pairs, pairJSON{t.Question.QuestionNeutral, t.Answer.AnswerNeutral})
		}
	}
	slices.Reverse(pairs)
	return pairs
}
