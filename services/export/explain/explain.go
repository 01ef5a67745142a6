// Package explain shows why a turn got its answer: what the log holds of the turn, and what its prompt could see. It
// reads the events of the turn's session, and of those that it shares turns of, as a replay prints them.
package explain

import (
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/export"
)

// ErrNoTurn says that the session has no such turn.
var ErrNoTurn = errors.New("the log has no such turn in this session: turnledger replay --session shows what it has")

// Explanation shows why a turn got its answer. Its Prompt is not set: what the server told of the prompt is Context.
type Explanation struct {
	services.Explanation

	Context Context `json:"context"`
	// Question is the turn's text, if the log still has it.
	Question string `json:"-"`
	// Root is the version of the turn whose question was asked first; the other versions are corrections of it.
	Root uuid.UUID `json:"-"`

	texts Texts
	// turn is the turn as it is now; nil if no event of it counted.
	turn *session.Turn
	// asked is where the prompt was asked for. Events before the sequence until stood then.
	asked    events.Position
	until    uint64
	versions map[uuid.UUID]bool
}

// Context is the prompt of the turn. Messages are set only if texts were asked for. SummarisedThrough is the last of
// the turns that a summary in the prompt stands for. TurnIDs are the turns whose messages the prompt has.
type Context struct {
	HistoryMessages   int               `json:"history_messages"`
	HistoryTurns      int               `json:"history_turns"`
	DroppedTurns      int               `json:"dropped_turns"`
	TurnIDs           []string          `json:"-"`
	SummarisedThrough string            `json:"summarised_through,omitempty"`
	Roles             []string          `json:"roles"`
	Messages          []json.RawMessage `json:"messages,omitempty"`
}

// Values of ExplainedTurn.Seen.
const (
	seenShown      = services.SeenShown
	seenWindow     = "left out by the window"
	seenSummarised = "summarised"
	seenBoundary   = "before a reset or a silence"
	seenPending    = "had no answer yet"
	seenFiltered   = "its answer was filtered"
	seenReplaced   = "corrected"
	seenRedacted   = "redacted"
)

// Texts says whether an explanation has the texts of its events and its prompt.
type Texts bool

// The two kinds of explanations.
const (
	WithoutTexts Texts = false
	WithTexts    Texts = true
)

// Log returns the events of a session as a replay prints them.
type Log func(sessionID string) iter.Seq2[[]byte, error]

// New explains a turn of a session. It folds the session up to the turn's question, since the prompt could not see
// later events. A turn that the session shares as a branch is explained in the session that it stands in.
func New(sessionID string, turn uuid.UUID, log Log, texts Texts) (*Explanation, error) {
	own, err := read(sessionID, log)
	if err != nil {
		return nil, err
	}
	origins, err := own.readOrigins(log)
	if err != nil {
		return nil, err
	}
	for i, g := range own.today.Fork().Segments() {
		if origins[i].today.Shares(own.today.Fork().Root, g, turn) {
			x, err := New(g.SessionID, turn, log, texts)
			if err == nil {
				x.Inherited = true
			}
			return x, err
		}
	}
	return own.explain(turn, origins, texts)
}

// At explains an event of a session. The event that asked a turn's question is explained as the turn. Any other event
// is explained as a question would be that was asked right after it: which turns a prompt could see then. pick returns
// the index of the event among those of the session, or a number below 0 if there is no such event.
func At(sessionID string, pick func([]events.Recorded) int, log Log, texts Texts) (*Explanation, error) {
	own, err := read(sessionID, log)
	if err != nil {
		return nil, err
	}
	i := pick(own.all)
	if i < 0 || i >= len(own.all) || own.today.Erased != 0 {
		return nil, ErrNoTurn
	}
	origins, err := own.readOrigins(log)
	if err != nil {
		return nil, err
	}
	at := own.all[i].Position
	for _, t := range own.today.Turns {
		if t.Place == at.Seq {
			return own.explain(t.ID, origins, texts)
		}
	}
	x := &Explanation{
		Explanation: services.Explanation{SessionID: sessionID}, texts: texts, asked: at, until: at.Seq + 1,
	}
	if err := x.add(own.lines[i], own.all[i]); err != nil {
		return nil, err
	}
	x.finish(own, origins)
	return x, nil
}

// explain explains a turn that stands in the session itself.
func (s *story) explain(turn uuid.UUID, origins []*story, texts Texts) (*Explanation, error) {
	x := &Explanation{
		Explanation: services.Explanation{SessionID: s.today.SessionID, TurnID: turn}, Root: turn, texts: texts,
		versions: map[uuid.UUID]bool{turn: true},
	}
	x.place(s.today, turn, s.all)
	for i, r := range s.all {
		if turn, replaces := session.Named(r); x.versions[turn] || x.versions[replaces] {
			if err := x.add(s.lines[i], r); err != nil {
				return nil, err
			}
		}
	}
	if x.asked.Seq == 0 {
		return nil, ErrNoTurn
	}
	x.until = x.asked.Seq
	x.finish(s, origins)
	return x, nil
}

// finish notes the place among the session's events, and why a prompt can't show earlier turns.
func (x *Explanation) finish(own *story, origins []*story) {
	x.AsOf, x.Of = x.asked.String(), len(own.all)
	for _, r := range own.all {
		switch {
		case r.Position.Seq > x.asked.Seq && x.Later == "":
			x.Later = r.Position.String()
		case r.Position.Seq <= x.asked.Seq:
			x.Nth++
			if r.Position.Seq < x.asked.Seq {
				x.Earlier = r.Position.String()
			}
		}
	}
	x.explainOmissions(own, origins)
}

// place finds the versions of a turn and the position of its question. If the turn's own events have been erased, the
// tombstone has both.
func (x *Explanation) place(today *session.State, id uuid.UUID, all []events.Recorded) {
	turn := today.Turn(id)
	if turn == nil {
		return
	}
	x.turn = turn
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
	e := services.ExplainedEvent{
		Position: row.Position, RecordedAt: row.RecordedAt, Type: row.Type, ID: row.ID, Redacted: row.Redacted,
	}
	if row.Problem != nil {
		e.Problem = *row.Problem
	}
	said := events.TextsOf(r.Fact)
	e.Usage = session.UsageOf(said.Metadata)
	if e.Usage == nil && said.Answer != nil && said.Question != nil { // a whole turn has one metadata
		e.Usage = session.UsageOf(said.Question.Metadata)
	}
	if x.texts {
		e.Data = json.RawMessage(row.Data)
	}
	x.Events = append(x.Events, e)
	if x.asked.Seq == 0 { // the start never counted
		x.asked = r.Position
	}
	counts := x.turn == nil || x.turn.BroughtBy(r.Position.Seq)
	if counts && strings.HasPrefix(r.ID, x.TurnID.String()+".") {
		switch more := said.Extension; {
		case said.Question != nil:
			x.Question = said.Question.QuestionNeutral
		case more != nil && more.QuestionNeutral != "":
			x.Question = more.QuestionNeutral
		}
	}
	return nil
}

// explainOmissions notes for each earlier turn why a prompt can't show it, as far as the log alone decides that. For
// the other turns, only the server knows which of them the window showed.
func (x *Explanation) explainOmissions(own *story, origins []*story) {
	m := own.moment(x.asked)
	then := own.then(func(e events.Recorded) bool { return e.Position.Seq < x.until })
	own.inherit(then, origins, m)
	for _, now := range own.today.Turns {
		of, partition, inherited := own.today.Origin(now, x.asked.Partition)
		// A shared turn had its answer before the fork, and a correction of it has its answer from its start on.
		final := events.Recorded{
			Position: events.Position{Partition: partition, Seq: now.Final}, Time: now.FinalizedAt,
		}
		if inherited && !m.holds(final) || !inherited && now.Started >= x.until || x.versions[now.ID] {
			continue
		}
		seen := seenShown
		// The turn's events have lost their texts, so it may be missing from the state at that time.
		t := then.Turn(now.ID)
		switch {
		case t == nil || now.Status == session.Redacted:
			seen = seenRedacted
		case t.Status == session.Replaced:
			seen = seenReplaced
		case t.Place <= then.Boundary:
			seen = seenBoundary
		case t.Status == session.Pending:
			seen = seenPending
		case services.Filtered(t):
			seen = seenFiltered
		}
		at := events.Position{Partition: partition, Seq: now.Started}
		x.Turns = append(x.Turns, services.ExplainedTurn{
			SessionID: of, TurnID: now.ID.String(), Position: at.String(), Seen: seen, Inherited: inherited,
		})
	}
}

// Saw takes the server's report on the prompt, and marks the turns that the prompt showed. Of the others the window
// left out the newest ones; pending: those without an answer, too. It keeps the prompt's messages only if texts were
// asked for.
func (x *Explanation) Saw(prompt Context, pending bool) {
	for _, raw := range prompt.Messages {
		prompt.Roles = append(prompt.Roles, message.Parse(raw).Role())
	}
	if !x.texts {
		prompt.Messages = nil
	}
	x.Context = prompt
	shown := make(map[string]bool, len(prompt.TurnIDs))
	for _, id := range prompt.TurnIDs {
		shown[id] = true
	}
	left := prompt.DroppedTurns
	for i := range slices.Backward(x.Turns) {
		t := &x.Turns[i]
		switch {
		case shown[t.TurnID]:
			t.Seen = seenShown
		case t.Seen != seenShown && (t.Seen != seenPending || !pending):
		case left > 0:
			t.Seen = seenWindow
			left--
		default:
			t.Seen = seenBoundary // a silence: only the server measures it
		}
	}
	through := func(t services.ExplainedTurn) bool { return t.TurnID == prompt.SummarisedThrough }
	for i := range x.Turns[:slices.IndexFunc(x.Turns, through)+1] {
		if t := &x.Turns[i]; t.Seen == seenWindow { // those are what a summary covers
			t.Seen = seenSummarised
		}
	}
}
