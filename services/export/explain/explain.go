// Package explain shows why a turn got its answer: what the log holds of the turn, and what its prompt could see. It
// reads the events of the turn's session as a replay prints them.
package explain

import (
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/export"
)

// ErrNoTurn says that the session has no such turn.
var ErrNoTurn = errors.New("the log has no such turn in this session: turnledger replay --session shows what it has")

// Explanation shows why a turn got its answer.
type Explanation struct {
	SessionID string  `json:"session_id"`
	TurnID    string  `json:"turn_id"`
	AsOf      string  `json:"as_of"`
	Events    []Event `json:"events"`
	Context   Context `json:"context"`
	Turns     []Turn  `json:"turns"`
	// Question is the turn's text, if the log still has it.
	Question string `json:"-"`
	// Root is the version of the turn whose question was asked first; the other versions are corrections of it.
	Root uuid.UUID `json:"-"`

	texts    bool
	asked    events.Position
	versions map[uuid.UUID]bool
}

// Event is an event of the turn. Data is set only if texts were asked for.
type Event struct {
	Position   string          `json:"position"`
	RecordedAt time.Time       `json:"recordedat"`
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Redacted   bool            `json:"redacted,omitempty"`
	Problem    string          `json:"problem,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// Context is the prompt of the turn. Messages are set only if texts were asked for.
type Context struct {
	HistoryMessages int               `json:"history_messages"`
	HistoryTurns    int               `json:"history_turns"`
	DroppedTurns    int               `json:"dropped_turns"`
	Roles           []string          `json:"roles"`
	Messages        []json.RawMessage `json:"messages,omitempty"`
}

// Turn is a turn before the explained one. Seen says whether the prompt showed it, and if not, why.
type Turn struct {
	TurnID   string `json:"turn_id"`
	Position string `json:"position"`
	Seen     string `json:"seen"`
}

// Values of Turn.Seen.
const (
	seenShown    = "shown"
	seenWindow   = "left out by the window"
	seenBoundary = "before a reset or a silence"
	seenPending  = "had no answer yet"
	seenReplaced = "corrected"
	seenRedacted = "redacted"
)

// New reads the lines of a session's replay, and folds the session up to the turn's question, since the prompt could
// not see later events.
func New(sessionID string, turn uuid.UUID, lines iter.Seq2[[]byte, error], texts bool) (*Explanation, error) {
	x := &Explanation{
		SessionID: sessionID, TurnID: turn.String(), Root: turn, texts: texts,
		versions: map[uuid.UUID]bool{turn: true},
	}
	today, then := conversation.New(sessionID, conversation.Rules{}), conversation.New(sessionID, conversation.Rules{})
	var kept [][]byte
	var all []events.Recorded
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		line = slices.Clone(line)
		r, err := export.Recorded(line)
		if err != nil {
			return nil, err
		}
		today.Fold(r)
		kept, all = append(kept, line), append(all, r)
	}
	x.place(today, turn, all)
	for i, r := range all {
		if turn, replaces := conversation.Named(r); x.versions[turn] || x.versions[replaces] {
			if err := x.add(kept[i], r); err != nil {
				return nil, err
			}
		}
	}
	if x.asked.Seq == 0 {
		return nil, ErrNoTurn
	}
	x.AsOf = x.asked.String()
	for _, r := range all {
		if r.Position.Seq < x.asked.Seq {
			then.Fold(r)
		}
	}
	x.explainOmissions(today, then)
	return x, nil
}

// place finds the versions of a turn and the position of its question. If the turn's own events have been erased, the
// tombstone has both.
func (x *Explanation) place(today *conversation.State, id uuid.UUID, all []events.Recorded) {
	turn := today.Turn(id)
	if turn == nil {
		return
	}
	x.asked = events.Position{Partition: all[0].Position.Partition, Seq: turn.Place}
	for _, t := range today.Turns {
		if t.Place != turn.Place {
			continue
		}
		x.versions[t.ID] = true
		if t.Started == t.Place {
			x.Root = t.ID
		}
	}
}

// add adds an event of the turn.
func (x *Explanation) add(line []byte, r events.Recorded) error {
	row, err := export.ParseEvent(line)
	if err != nil {
		return err
	}
	e := Event{Position: row.Position, RecordedAt: row.RecordedAt, Type: row.Type, ID: row.ID, Redacted: row.Redacted}
	if row.Problem != nil {
		e.Problem = *row.Problem
	}
	if x.texts {
		e.Data = json.RawMessage(row.Data)
	}
	x.Events = append(x.Events, e)
	if x.asked.Seq == 0 { // the start never counted
		x.asked = r.Position
	}
	if q := events.TextsOf(r.Fact).Question; q != nil && strings.HasPrefix(r.ID, x.TurnID+".") {
		x.Question = q.QuestionNeutral
	}
	return nil
}

// explainOmissions notes for each earlier turn why a prompt can't show it, as far as the log alone decides that. For
// the other turns, only the server knows which of them the window showed.
func (x *Explanation) explainOmissions(today, then *conversation.State) {
	for _, now := range today.Turns {
		if now.Started >= x.asked.Seq || x.versions[now.ID] {
			continue
		}
		seen := seenShown
		// The turn's events have lost their texts, so it may be missing from the state at that time.
		t := then.Turn(now.ID)
		switch {
		case t == nil || now.Status == conversation.Redacted:
			seen = seenRedacted
		case t.Status == conversation.Replaced:
			seen = seenReplaced
		case t.Place <= then.Boundary:
			seen = seenBoundary
		case t.Status == conversation.Pending:
			seen = seenPending
		}
		at := events.Position{Partition: x.asked.Partition, Seq: now.Started}
		x.Turns = append(x.Turns, Turn{TurnID: now.ID.String(), Position: at.String(), Seen: seen})
	}
}

// Saw takes the server's report on the prompt, and marks the turns that the window showed: the newest ones, including
// those without an answer if pending is set. Older turns were left out. It keeps the prompt's messages only if texts
// were asked for.
func (x *Explanation) Saw(prompt Context, pending bool) {
	for _, raw := range prompt.Messages {
		var m struct {
			Role string `json:"role"`
		}
		_ = json.Unmarshal(raw, &m) // the server's messages are well-formed
		prompt.Roles = append(prompt.Roles, m.Role)
	}
	if !x.texts {
		prompt.Messages = nil
	}
	x.Context = prompt
	shown, left := prompt.HistoryTurns, prompt.DroppedTurns
	for i := range slices.Backward(x.Turns) {
		t := &x.Turns[i]
		switch {
		case t.Seen != seenShown && (t.Seen != seenPending || !pending):
		case shown > 0:
			t.Seen = seenShown
			shown--
		case left > 0:
			t.Seen = seenWindow
			left--
		default:
			t.Seen = seenBoundary // a silence: only the server measures it
		}
	}
}
