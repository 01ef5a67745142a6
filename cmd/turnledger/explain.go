package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export"
)

type explainCmd struct {
	Session     string `arg:"" help:"The session."`
	Turn        string `arg:"" help:"The turn."`
	Text        bool   `help:"With the texts."`
	MaxMessages int    `help:"As the prompt was asked for; 20 by default."`
	MaxTokens   int    `help:"As the prompt was asked for; no bound by default."`
	IdleTimeout string `help:"As the prompt was asked for; the server's by default."`
	Language    string `help:"neutral or translated."`
	Pending     bool   `help:"With the questions that had no answer yet."`
	remote
}

// explanation is why a turn was answered as it was.
type explanation struct {
	SessionID string              `json:"session_id"`
	TurnID    string              `json:"turn_id"`
	AsOf      string              `json:"as_of"`
	Events    []explainedEvent    `json:"events"`
	Context   explainedContext    `json:"context"`
	Turns     []explainedTurn     `json:"turns"`
	question  string              `json:"-"`
	asked     events.Position     `json:"-"`
	versions  map[uuid.UUID]bool  `json:"-"`
	root      uuid.UUID           `json:"-"` // the version that was asked
	then      *conversation.State `json:"-"`
}

// explainedEvent is an event of the turn; Data is there with --text only.
type explainedEvent struct {
	Position   string          `json:"position"`
	RecordedAt time.Time       `json:"recordedat"`
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Redacted   bool            `json:"redacted,omitempty"`
	Problem    string          `json:"problem,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type explainedContext struct {
	HistoryMessages int               `json:"history_messages"`
	HistoryTurns    int               `json:"history_turns"`
	DroppedTurns    int               `json:"dropped_turns"`
	Roles           []string          `json:"roles"`
	Messages        []json.RawMessage `json:"messages,omitempty"`
}

// explainedTurn is a turn that stood before the explained one. Seen is how it entered
// the prompt: shown, or why not.
type explainedTurn struct {
	TurnID   string `json:"turn_id"`
	Position string `json:"position"`
	Seen     string `json:"seen"`
}

// How an earlier turn entered the prompt.
const (
	seenShown    = "shown"
	seenWindow   = "left out by the window"
	seenBoundary = "before a reset or a silence"
	seenPending  = "had no answer yet"
	seenReplaced = "corrected"
	seenRedacted = "redacted"
)

// Run tells what the log has of a turn, and what its prompt could see.
func (c *explainCmd) Run(e *env) error {
	id, err := uuid.Parse(c.Turn)
	if err != nil || id.String() != c.Turn {
		return fmt.Errorf("%w: TURN must be the id of a turn, which every answer about it names", errUsage)
	}
	s, err := c.dial(1, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	x, err := c.read(e, s, id)
	if errors.Is(err, errNoTurn) {
		return err
	}
	if err != nil {
		return c.remote.explain(e.ctx, err)
	}
	if err := c.context(e, s, x); err != nil {
		return c.remote.explain(e.ctx, err)
	}
	if c.JSON {
		return printJSON(e.out, x)
	}
	return c.show(e, x)
}

var errNoTurn = errors.New("the log has no such turn in this session: turnledger replay --session shows what it has")

// read takes the events of the turn and of its other versions from the session's, and
// folds the session up to where the turn was asked: what came later was not seen.
func (c *explainCmd) read(e *env, s *client.Client, id uuid.UUID) (*explanation, error) {
	x := &explanation{SessionID: c.Session, TurnID: c.Turn, versions: map[uuid.UUID]bool{id: true}, root: id}
	today := conversation.New(c.Session, conversation.Rules{})
	var lines [][]byte
	var all []events.Recorded
	for ev, err := range s.Events(client.EventQuery{SessionID: c.Session}).All(e.ctx) {
		if err != nil {
			return nil, err
		}
		line := append([]byte(nil), ev.JSON...)
		r, err := export.Recorded(line)
		if err != nil {
			return nil, err
		}
		today.Fold(r)
		lines, all = append(lines, line), append(all, r)
	}
	// Also where its own events are physically gone: the tombstone knows where they were.
	if turn := today.Turn(id); turn != nil {
		x.asked = events.Position{Partition: all[0].Position.Partition, Seq: turn.Place}
		for _, t := range today.Turns {
			if t.Place != turn.Place {
				continue
			}
			x.versions[t.ID] = true
			if t.Started == t.Place {
				x.root = t.ID
			}
		}
	}
	for i, r := range all {
		if turn, replaces := conversation.Named(r); x.versions[turn] || x.versions[replaces] {
			if err := x.add(lines[i], r, c.Text); err != nil {
				return nil, err
			}
		}
	}
	if len(x.Events) == 0 && x.asked.Seq == 0 {
		return nil, errNoTurn
	}
	x.AsOf = x.asked.String()
	x.then = conversation.New(c.Session, conversation.Rules{})
	for _, r := range all {
		if r.Position.Seq < x.asked.Seq {
			x.then.Fold(r)
		}
	}
	x.tell(today)
	return x, nil
}

// add takes an event of the turn.
func (x *explanation) add(line []byte, r events.Recorded, text bool) error {
	row, err := export.ParseEvent(line)
	if err != nil {
		return err
	}
	ev := explainedEvent{Position: row.Position, RecordedAt: row.RecordedAt, Type: row.Type, ID: row.ID, Redacted: row.Redacted}
	if row.Problem != nil {
		ev.Problem = *row.Problem
	}
	if text {
		ev.Data = json.RawMessage(row.Data)
	}
	x.Events = append(x.Events, ev)
	if x.asked.Seq == 0 { // it never counted
		x.asked = r.Position
	}
	if !strings.HasPrefix(r.ID, x.TurnID+".") {
		return nil
	}
	if q := events.TextsOf(r.Fact).Question; q != nil {
		x.question = q.QuestionNeutral
	}
	return nil
}

// tell says of each earlier turn what the log alone tells; which of the others the
// window showed is the server's to say.
func (x *explanation) tell(today *conversation.State) {
	for _, now := range today.Turns {
		if now.Started >= x.asked.Seq || x.versions[now.ID] {
			continue
		}
		one := explainedTurn{TurnID: now.ID.String(), Position: events.Position{Partition: x.asked.Partition, Seq: now.Started}.String(), Seen: seenShown}
		// Its events say nothing any more, so that it is not in what was then.
		t := x.then.Turn(now.ID)
		switch {
		case t == nil || now.Status == conversation.Redacted:
			one.Seen = seenRedacted
		case t.Status == conversation.Replaced:
			one.Seen = seenReplaced
		case t.Place <= x.then.Boundary:
			one.Seen = seenBoundary
		case t.Status == conversation.Pending:
			one.Seen = seenPending
		}
		x.Turns = append(x.Turns, one)
	}
}

// context asks what the turn's prompt was, as of its start, and marks the turns: the
// window takes the newest ones, and leaves out older ones.
func (c *explainCmd) context(e *env, s *client.Client, x *explanation) error {
	message := x.question
	if message == "" {
		message = "(no text)"
	}
	got, err := s.Context(e.ctx, c.Session, client.ContextRequest{
		Message: message, TurnID: x.root.String(), MaxMessages: c.MaxMessages, MaxTokens: c.MaxTokens, IdleTimeout: c.IdleTimeout,
		Language: c.Language, IncludePending: c.Pending, AsOf: &client.AsOf{Position: x.AsOf},
	})
	if err != nil {
		return err
	}
	x.Context = explainedContext{HistoryMessages: got.HistoryMessages, HistoryTurns: got.HistoryTurns, DroppedTurns: got.DroppedTurns}
	for _, m := range got.Messages {
		x.Context.Roles = append(x.Context.Roles, roleOf(m))
	}
	if c.Text {
		x.Context.Messages = got.Messages
	}
	left := got.HistoryTurns
	window := got.DroppedTurns
	for i := len(x.Turns) - 1; i >= 0; i-- {
		t := &x.Turns[i]
		if t.Seen != seenShown && (t.Seen != seenPending || !c.Pending) {
			continue
		}
		switch {
		case left > 0:
			t.Seen = seenShown
			left--
		case window > 0:
			t.Seen = seenWindow
			window--
		default:
			t.Seen = seenBoundary // a silence, which the server alone measures
		}
	}
	return nil
}

func roleOf(message json.RawMessage) string {
	var m struct {
		Role string `json:"role"`
	}
	_ = json.Unmarshal(message, &m) // a message of the server's
	return m.Role
}

func (c *explainCmd) show(e *env, x *explanation) error {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(e.out, format+"\n", args...) }
	p("Turn %s of session %s", x.TurnID, x.SessionID)
	p("")
	p("Events:")
	for _, ev := range x.Events {
		note := ""
		switch {
		case ev.Problem != "":
			note = "  (without effect: " + ev.Problem + ")"
		case ev.Redacted:
			note = "  (redacted)"
		}
		p("  %-8s %s  %s%s", ev.Position, ev.RecordedAt.Format(time.RFC3339Nano), ev.Type, note)
		if len(ev.Data) > 0 {
			p("           %s", ev.Data)
		}
	}
	p("")
	p("Its prompt, as of %s with today's redactions: %d messages of %d turns, %d left out, then the question.", x.AsOf, x.Context.HistoryMessages, x.Context.HistoryTurns, x.Context.DroppedTurns)
	for _, m := range x.Context.Messages {
		printMessage(&env{out: e.out}, m)
	}
	if len(x.Turns) > 0 {
		p("")
		p("Turns before it:")
	}
	for _, t := range x.Turns {
		p("  %-8s %s  %s", t.Position, t.TurnID, t.Seen)
	}
	return nil
}
