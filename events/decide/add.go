package decide

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// AddMessages asks to add messages to a session without naming turns. On finds the turns that they belong to.
type AddMessages struct {
	SessionID, RequestID string
	Messages             []AddedMessage
	// Named: the turn that the last message opens has the request's id as it is.
	Named bool
	// Settings are those of the last fact, which asks a model with them: the turn's question takes no more messages.
	Settings json.RawMessage
	// After, above 0, is the last event that brought the session texts (State.LastText). If others came since, nothing
	// is added. Begins: nothing is added either if the session has texts of its own already.
	After  uint64
	Begins bool
	// Busy is as in Start. A command with it shares no append.
	Busy Busy
	// Now decides whether an anonymous session was silent for too long.
	Now time.Time
}

// AddedMessage is a message, clean of base64 data, with what a decision has to know of it.
type AddedMessage struct {
	JSON json.RawMessage
	// Asks: it is part of a question. All else is part of an answer. ByUser: it asks, and the user says it.
	Asks, ByUser bool
	// Words is the text of a message of the user or the assistant.
	Words string
	// Makes is the id of the call that the message makes, and Takes that of the call whose output it is; "" for none.
	Makes, Takes string
	// Answers is the turn that holds the call of Takes, if it was recorded before; uuid.Nil if that is not known.
	Answers uuid.UUID
}

// AddedAt is where a message was added: as which message of its half, whose first event is at the sequence Begun, or
// where that is 0, is the fact Fact of the same append.
type AddedAt struct {
	Answer  bool
	Begun   uint64
	Fact    int
	Message int
}

// Added is a decision on AddMessages. At holds the place of each message. Bases holds for each fact which message of
// its half its first message is. Place is that of the turn of the last fact; 0 if a fact of the same append opens it.
type Added struct {
	Decision
	At    []AddedAt
	Bases []int
	Place uint64
}

const (
	// longestRun bounds the messages of one question, and mostWords its text in bytes: with every append that extends
	// it, an event repeats the text. The input of a response is one question, however long.
	longestRun, mostWords = 64, 64 << 10
	// mostInFact bounds the bytes of messages in one fact of several.
	mostInFact = 512 << 10
)

// Adds decides where the messages of commands belong that one append carries out, one after the other: each
// command finds the session as those before it leave it. No two commands share a fact. These are the rules.
//
//   - A message that asks extends the question of the session's last turn if that is pending, else it opens a turn. So
//     a run of them is one question, until it is long. A command with settings asks a model: what it asks is never more
//     than one question, since a branch shares no question without an answer.
//   - Any other message answers: after a pending turn it finalizes it, after a finalized one it extends its answer. The
//     output of a call of an earlier turn extends the answer of that turn, and so does what follows it until a
//     message asks, also in later commands. The output of a call that no turn makes opens a turn while a model is asked
//     for the newest one.
//   - Messages that answer before any user has spoken, such as a greeting, are part of the first turn's question.
//
// All facts are one append, which expects the session's last sequence.
func Adds(s *session.State, commands []AddMessages) []Added {
	out := make([]Added, len(commands))
	a := adding{state: s, turns: map[uuid.UUID]*growing{}}
	for i, c := range commands {
		switch {
		case s.Erased != 0:
			out[i].Err = ErrSessionErased
		case !s.Found():
			out[i].Err = ErrSessionNotFound
		case c.After > 0 && (s.LastText() != c.After || len(a.facts) > 0),
			c.Begins && (s.LastText() != 0 || len(a.facts) > 0):
			out[i].Err = ErrWentOn
		default:
			if out[i].Err = c.Busy.refusal(s); out[i].Err == nil {
				out[i] = a.command(c)
			}
		}
	}
	return out
}

// ErrWentOn says that others have added to the session since.
var ErrWentOn = errors.New("the session went on meanwhile")

// On is Adds for one command, and a session that need not exist yet.
func (c AddMessages) On(s *session.State) Added {
	a := adding{state: s, turns: map[uuid.UUID]*growing{}}
	return a.command(c)
}

// command adds the messages of a command, behind those of the commands before it.
func (a *adding) command(c AddMessages) Added {
	a.AddMessages, a.at, a.firsts, a.made = c, nil, nil, map[string]*growing{}
	if len(a.facts) == 0 {
		if a.goes = goesOn(a.state, c.Now); a.goes != nil {
			a.turns[a.goes.id] = a.goes
			a.behind = a.late()
		}
	}
	first := len(a.facts)
	for i, m := range c.Messages {
		a.add(i, m)
	}
	return a.added(first)
}

// goesOn returns the last turn, if it is one that may go on.
func goesOn(s *session.State, now time.Time) *growing {
	if s.Expired(now) {
		return nil
	}
	for _, t := range slices.Backward(s.Turns) {
		if s.Shown(t) {
			return growingOf(s, t)
		}
	}
	return nil
}

// late returns the turn of behind, as the session has it: an earlier one, if the last texts went to its answer.
func (a *adding) late() *growing {
	t := a.state.LastTold()
	if t == nil || t.ID == a.goes.id || t.Status != session.Finalized || !t.AnswerGrew() || !a.state.Shown(t) {
		return nil
	}
	g := growingOf(a.state, t)
	a.turns[t.ID] = g
	return g
}

// growing is a turn as the facts of an append leave it.
type growing struct {
	*session.Turn

	id       uuid.UUID
	pending  bool
	spoken   bool // a user has spoken in it
	opening  bool // no turn stands before it
	asked    bool // a model is asked with the question
	question string
	// order is that of the turns in the session.
	order uint64
	// count of the messages of the half that may go on, and the half's first event: in the log, or of this append.
	count int
	begun uint64
	first *addedFact
	// open is the fact of this append that takes further messages of the half; nil if there is none.
	open *addedFact
}

func growingOf(s *session.State, t *session.Turn) *growing {
	g := &growing{
		Turn: t, id: t.ID, pending: t.Status == session.Pending, order: t.Place, asked: t.Asked,
		count: int(t.LastMessages), begun: t.Begun(events.HalfQuestion),
		opening: len(s.Turns) == 1 && s.Fork().Root == "",
	}
	if !g.pending {
		g.begun = t.Begun(events.HalfAnswer)
	}
	if q := t.Question; q != nil {
		g.question, g.spoken = q.QuestionNeutral, !events.HasMessages(q.QuestionMessages) || spoken(q.QuestionMessages)
	}
	return g
}

// place returns the place of the turn, or 0 if the append opens it.
func (g *growing) place() uint64 {
	if g.Turn == nil {
		return 0
	}
	return g.Place
}

// adding is an append that grows message by message, for the command that is carried out now.
type adding struct {
	AddMessages

	state *session.State
	goes  *growing
	// behind is the turn of the last output, if that is an earlier one: what follows belongs to it until a message
	// asks.
	behind *growing
	// turns are those that messages were added to, and made those whose calls were.
	turns map[uuid.UUID]*growing
	made  map[string]*growing
	facts []*addedFact
	// at are the places of the command's messages, and firsts the first fact of the half of each.
	at     []AddedAt
	firsts []*addedFact
}

// newTurns is above the place of every turn that there is.
const newTurns = 1 << 62

// addedFact is a fact that is not complete yet.
type addedFact struct {
	turn     *growing
	id       uuid.UUID
	request  string
	starts   bool
	half     events.Half
	finishes bool
	base     int
	size     int
	messages []json.RawMessage
	words    string
	settings json.RawMessage
	// answer is what the next fact would have finished the turn with; nil if none comes with the start.
	answer *addedFact
}

func (a *adding) add(i int, m AddedMessage) {
	g := a.goes
	if m.Asks {
		a.behind = nil
	}
	switch {
	case g == nil:
		a.start(i, m)
	case (m.Asks || g.opening && !g.spoken) && a.asking(g):
		a.extend(i, m, g, events.HalfQuestion)
	case m.Asks, m.Takes != "" && g.pending && g.asked && a.earlier(m) == nil: // a model is asked, and not for this
		a.start(i, m)
	default:
		a.answer(i, m)
	}
}

// asking reports whether the question of the turn may be extended.
func (a *adding) asking(g *growing) bool {
	known := g.Turn == nil || g.Turn.Question != nil
	long := g.count >= longestRun || len(g.question) >= mostWords
	return g.pending && known && !g.asked && (!long || len(a.Settings) > 0)
}

// start opens a turn.
func (a *adding) start(i int, m AddedMessage) {
	request := requestOfMessage(a.RequestID, i)
	if a.Named && i == len(a.Messages)-1 {
		request = a.RequestID
	}
	g := &growing{
		id: events.TurnID(a.SessionID, request), pending: true, order: newTurns + uint64(len(a.facts)),
		opening: len(a.state.Turns) == 0 && a.goes == nil && a.state.Fork().Root == "",
	}
	g.open = &addedFact{turn: g, id: g.id, request: request, starts: true, half: events.HalfQuestion}
	g.first, a.behind = g.open, nil
	a.facts, a.goes, a.turns[g.id] = append(a.facts, g.open), g, g
	a.put(g, m)
}

// answer adds a message to the answer of the turn that goes on, or of the one that holds the call which it answers.
func (a *adding) answer(i int, m AddedMessage) {
	g := a.goes
	if m.Takes != "" || m.Answers != uuid.Nil {
		a.behind = a.earlier(m)
	}
	if a.behind != nil {
		a.extend(i, m, a.behind, events.HalfAnswer)
		return
	}
	if !g.pending {
		a.extend(i, m, g, events.HalfAnswer)
		return
	}
	g.open = &addedFact{turn: g, id: g.id, half: events.HalfAnswer, finishes: true}
	g.pending, g.count, g.begun, g.first = false, 0, 0, g.open
	a.facts = append(a.facts, g.open)
	a.put(g, m)
}

// earlier returns the turn before the one that goes on which made the call that a message takes, if its answer may be
// extended; else nil.
func (a *adding) earlier(m AddedMessage) *growing {
	g := a.made[m.Takes]
	if g == nil {
		g = a.turns[m.Answers]
	}
	if t := a.state.Turn(m.Answers); g == nil && t != nil && t.Status == session.Finalized && a.state.Shown(t) {
		g = growingOf(a.state, t)
		a.turns[t.ID] = g
	}
	if g == nil || g == a.goes || g.pending {
		return nil
	}
	return g
}

// extend adds a message to a half of a turn. It makes a new fact if none is open, or if a message of another turn came
// between: a call that comes again is answered in the order of the facts. Of the facts that extend a half, the last one
// has the text.
func (a *adding) extend(i int, m AddedMessage, g *growing, half events.Half) {
	if g.open == nil || g.open != a.facts[len(a.facts)-1] || g.open.size+len(m.JSON) > mostInFact {
		next := &addedFact{turn: g, id: g.id, request: requestOfMessage(a.RequestID, i), half: half, base: g.count}
		if old := g.open; old != nil && old.half == half && !old.starts && !old.finishes {
			next.words, old.words = old.words, ""
		}
		g.open = next
		a.facts = append(a.facts, next)
	}
	a.put(g, m)
}

// put adds a message to the open fact of a turn.
func (a *adding) put(g *growing, m AddedMessage) {
	f := g.open
	a.at = append(a.at, AddedAt{Answer: f.half == events.HalfAnswer, Begun: g.begun, Message: g.count})
	a.firsts = append(a.firsts, g.first)
	f.messages, f.size = append(f.messages, m.JSON), f.size+len(m.JSON)
	g.count++
	if m.Makes != "" {
		a.made[m.Makes] = g
	}
	switch {
	case f.half == events.HalfAnswer:
		if m.Words != "" {
			f.words = m.Words
		}
	case m.ByUser:
		g.spoken = true
		if m.Words != "" {
			g.question = strings.TrimPrefix(g.question+"\n\n"+m.Words, "\n\n")
			f.words = g.question
		}
	}
}

// added returns the decision of a command that makes the facts from a number on, which are complete.
func (a *adding) added(from int) Added {
	out := Added{At: a.at, Decision: Decision{Expect: true}}
	if len(a.Settings) > 0 { // the model is asked about the newest turn
		byTurn := func(f, g *addedFact) int { return cmp.Compare(f.turn.order, g.turn.order) }
		slices.SortStableFunc(a.facts[from:], byTurn)
	}
	facts := a.whole(from)
	for i, first := range a.firsts {
		if first != nil {
			out.At[i].Fact = slices.Index(a.facts, first)
		}
	}
	for i, f := range facts {
		if i == len(facts)-1 && len(a.Settings) > 0 {
			f.settings = a.Settings
			f.turn.asked = f.turn.asked || f.half == events.HalfQuestion
		}
		f.turn.open, out.Place = nil, f.turn.place()
		if a.behind = f.turn; a.behind == a.goes {
			a.behind = nil
		}
		out.Facts, out.Bases = append(out.Facts, f.fact(a.SessionID)), append(out.Bases, f.base)
	}
	return out
}

// whole joins starts with the answers right behind them, each pair to one fact, from the fact with a number on, and
// returns these facts. An answer that a model is asked with stays a fact of its own.
func (a *adding) whole(from int) []*addedFact {
	facts := a.facts[from:from]
	for i, f := range a.facts[from:] {
		asks := len(a.Settings) > 0 && from+i == len(a.facts)-1
		if last := len(facts) - 1; !asks && f.finishes && last >= 0 && facts[last].takes(f) {
			start := facts[last]
			start.answer = f
			if f.turn.first == f {
				f.turn.first = start
			}
			for k, first := range a.firsts {
				if first == f {
					a.firsts[k] = start
				}
			}
			continue
		}
		facts = append(facts, f)
	}
	a.facts = a.facts[:from+len(facts)]
	return facts
}

// takes reports whether a fact that starts a turn has room for the answer.
func (f *addedFact) takes(answer *addedFact) bool {
	return f.starts && f.answer == nil && f.turn == answer.turn && f.size+answer.size <= mostInFact
}

// fact returns the complete fact.
func (f *addedFact) fact(sessionID string) events.Fact {
	messages := events.Raw(f.messages)
	switch {
	case f.answer != nil:
		return &events.TurnRecorded{
			TurnID: f.id, SessionID: sessionID, RequestID: f.request,
			Question: events.Question{QuestionNeutral: f.words, QuestionMessages: messages},
			Answer: events.Answer{
				AnswerNeutral: f.answer.words, AnswerMessages: events.Raw(f.answer.messages),
			},
		}
	case f.starts:
		return &events.TurnStarted{
			TurnID: f.id, SessionID: sessionID, RequestID: f.request,
			Question: events.Question{QuestionNeutral: f.words, QuestionMessages: messages}, Settings: f.settings,
		}
	case f.finishes:
		c := Finalize{
			SessionID: sessionID, TurnID: f.id, Answer: events.Answer{AnswerNeutral: f.words, AnswerMessages: messages},
			Settings: f.settings,
		}
		return c.fact(f.turn.Turn != nil && f.turn.TranslateChat)
	}
	x := events.Extension{Half: f.half, Messages: messages}
	if f.half == events.HalfQuestion {
		x.QuestionNeutral = f.words
	} else {
		x.AnswerNeutral = f.words
	}
	return &events.TurnExtended{
		TurnID: f.id, SessionID: sessionID, ExtensionID: f.request, Extension: x, Settings: f.settings,
	}
}

// spoken reports whether a message is the user's.
func spoken(messages json.RawMessage) bool {
	byUser := func(m message.Message) bool { return m.Speaker() == message.User }
	return slices.ContainsFunc(message.ParseList(messages), byUser)
}

// requestOfMessage returns the request, or the id of an extension, under which message i of an AddMessages goes in.
func requestOfMessage(request string, i int) string { return fmt.Sprintf("%s#%d", request, i) }

// RequestOf returns the request of the AddMessages that gave a turn's request, or an extension, its id; "" for an id
// of another kind.
func RequestOf(id string) string { return id[:max(0, strings.LastIndexByte(id, '#'))] }
