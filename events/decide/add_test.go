package decide_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// adds is a session to which messages are added.
type adds struct {
	state *session.State
	seq   uint64
	time  time.Time
	calls int
	// settings are those of the next messages.
	settings json.RawMessage
	// at has the place of each message: where it was said to be added.
	at map[string]decide.AddedAt
}

func newAdds() *adds {
	a := &adds{
		state: session.New("s", session.Rules{SessionTTL: time.Hour}),
		time:  time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), at: map[string]decide.AddedAt{},
	}
	a.fold(&events.SessionDescribed{SessionID: "s", RequestID: "d"})
	return a
}

func (a *adds) fold(f events.Fact) session.Change {
	a.seq++
	env, err := events.Encode(f, a.time)
	if err != nil {
		panic(err)
	}
	return a.state.Fold(events.Decode(env, events.Position{Seq: a.seq}, a.time))
}

// message reads "U text", "S text" (system), "A text" or "T text" (a tool's output), and "T>2 text" for an output whose
// call is in the second turn. "A=c text" makes the call c, and "T=c text" takes it.
func (a *adds) message(line string) decide.AddedMessage {
	kind, text, _ := strings.Cut(line, " ")
	kind, turn, found := strings.Cut(kind, ">")
	kind, call, _ := strings.Cut(kind, "=")
	role := map[string]string{"U": "user", "S": "system", "A": "assistant", "T": "tool"}[kind]
	m := decide.AddedMessage{
		JSON: json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, text)),
		Asks: kind == "U" || kind == "S", ByUser: kind == "U",
	}
	switch kind {
	case "U", "A":
		m.Words, m.Makes = text, call
	case "T":
		m.Takes = call
	}
	if found {
		n := 0
		_, _ = fmt.Sscan(turn, &n)
		m.Answers = a.state.Turns[n-1].ID
	}
	return m
}

// command returns a call that adds messages.
func (a *adds) command(lines ...string) decide.AddMessages {
	a.calls++
	c := decide.AddMessages{
		SessionID: "s", RequestID: fmt.Sprint("r", a.calls), Settings: a.settings, Now: a.time,
	}
	for _, line := range lines {
		c.Messages = append(c.Messages, a.message(line))
	}
	return c
}

// add adds messages with one call, and notes where they were put.
func (a *adds) add(t require.TestingT, lines ...string) decide.Added {
	d := decide.Adds(a.state, []decide.AddMessages{a.command(lines...)})[0]
	a.put(t, d, lines)
	return d
}

// put folds what was decided of messages.
func (a *adds) put(t require.TestingT, d decide.Added, lines []string) {
	require.NoError(t, d.Err)
	require.True(t, d.Expect)
	require.Len(t, d.At, len(lines))
	require.Len(t, d.Bases, len(d.Facts))
	first := a.seq + 1
	for _, f := range d.Facts {
		require.True(t, a.fold(f).Kind.ChangesView(), "%T", f)
	}
	for i, line := range lines {
		at := d.At[i]
		if at.Begun == 0 {
			at.Begun = first + uint64(at.Fact)
		}
		a.at[line] = at
	}
}

// shown describes the turns: "q | a", with a text for each message and the neutral text behind it.
func (a *adds) shown() (out []string) {
	for _, t := range a.state.Turns {
		line := half(t.Question.QuestionMessages, t.Question.QuestionNeutral)
		if t.Answer != nil {
			line += " | " + half(t.Answer.AnswerMessages, t.Answer.AnswerNeutral)
		}
		out = append(out, line)
	}
	return out
}

func half(messages json.RawMessage, neutral string) string {
	var list []struct{ Content string }
	_ = json.Unmarshal(messages, &list)
	var texts []string
	for _, m := range list {
		texts = append(texts, m.Content)
	}
	return strings.Join(texts, "+") + " (" + strings.ReplaceAll(neutral, "\n\n", "/") + ")"
}

// The rules by which messages become turns.
//
//conformance:o32
func TestMessagesBecomeTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls [][]string
		want  []string
	}{
		"a question and its answer": {[][]string{{"U q"}, {"A a"}}, []string{"q (q) | a (a)"}},
		"at once":                   {[][]string{{"U q", "A a", "U q2"}}, []string{"q (q) | a (a)", "q2 (q2)"}},
		"a run is one question":     {[][]string{{"U a", "U b"}, {"U c"}}, []string{"a+b+c (a/b/c)"}},
		"a system text in a run":    {[][]string{{"S s", "U b"}}, []string{"s+b (b)"}},
		"it goes on":                {[][]string{{"U q", "A a"}, {"A b"}, {"T t"}}, []string{"q (q) | a+b+t (b)"}},
		"a call, its output and the answer": {[][]string{{"U q"}, {"A "}, {"T t"}, {"A a"}, {"U n"}},
			[]string{"q (q) | +t+a (a)", "n (n)"}},
		"a late output": {[][]string{{"U q", "A call"}, {"U n", "A m"}, {"T>1 t", "A o", "T>1 u"}},
			[]string{"q (q) | call+t+o+u (o)", "n (n) | m (m)"}},
		"what follows a late output, call by call": {
			[][]string{{"U q", "A call"}, {"U n"}, {"A m"}, {"T>1 t"}, {"A o"}, {"A p"}, {"U l"}, {"A z"}},
			[]string{"q (q) | call+t+o+p (p)", "n (n) | m (m)", "l (l) | z (z)"},
		},
		"what follows a late output before the newer answer": {
			[][]string{{"U q", "A call"}, {"U n"}, {"T>1 t"}, {"A o"}, {"U m"}, {"A a"}},
			[]string{"q (q) | call+t+o (o)", "n+m (n/m) | a (a)"},
		},
		"an output of a call at once": {[][]string{{"U q", "A=c call", "U n", "T=c t", "A m", "T=c u"}},
			[]string{"q (q) | call+t+m+u (m)", "n (n)"}},
		"an output of the newer call": {[][]string{{"U q", "A=c call"}, {"U n", "A=c again", "T=c t"}},
			[]string{"q (q) | call (call)", "n (n) | again+t (again)"}},
		"an output of nothing known": {[][]string{{"U q"}, {"T t"}}, []string{"q (q) | t ()"}},
		"a greeting":                 {[][]string{{"A hello"}, {"U q"}, {"A a"}}, []string{"hello+q (q) | a (a)"}},
		"a greeting at once":         {[][]string{{"S s", "A hello", "U q", "A a"}}, []string{"s+hello+q (q) | a (a)"}},
		"a system text between": {[][]string{{"U q", "A a"}, {"S s"}, {"A b"}},
			[]string{"q (q) | a (a)", "s () | b (b)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdds()
			for _, lines := range c.calls {
				a.add(t, lines...)
			}
			require.Equal(t, c.want, a.shown())
		})
	}
}

// The settings are those of the newest turn that the messages reach, wherever its messages stand among the others.
func TestSettingsAreOfTheNewestTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines []string
		turn  int
	}{
		"an older call":              {[]string{"T>1 t"}, 0},
		"the newer call first":       {[]string{"T>2 t", "T>1 u"}, 1},
		"the older call first":       {[]string{"T>1 t", "T>2 u"}, 1},
		"a question first":           {[]string{"U n", "T>1 t"}, 2},
		"a call at once":             {[]string{"U n", "A=c call", "U m", "T=c t"}, 3},
		"an older call in between":   {[]string{"A a", "T>1 t", "A b"}, 1},
		"only the newest turn of it": {[]string{"A a"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdds()
			a.add(t, "U q1", "A c1", "U q2", "A c2")
			a.settings = json.RawMessage(`{}`)
			d := a.add(t, c.lines...)
			for i, f := range d.Facts {
				texts, last := events.TextsOf(f), i == len(d.Facts)-1
				require.Equal(t, last, len(texts.Settings) > 0)
				if last {
					require.Equal(t, a.state.Turns[c.turn].ID, events.NamesOf(f).TurnID)
				}
			}
			a.requireAt(t)
		})
	}
}

// Every message stands where the decision said, in the order in which it was added, whatever else is done.
//
//conformance:o35
func TestMessagesStandWhereTheyWereAdded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := newAdds()
		for n := range rapid.IntRange(1, 8).Draw(t, "calls") {
			a.settings = nil
			if rapid.Bool().Draw(t, "settings") {
				a.settings = json.RawMessage(`{}`)
			}
			a.add(t, a.draw(t, n)...)
			if last := a.state.Turns[len(a.state.Turns)-1]; rapid.IntRange(0, 4).Draw(t, "native") == 0 {
				if last.Status == session.Pending {
					a.fold(&events.TurnFinalized{TurnID: last.ID, SessionID: "s",
						Answer: events.Answer{AnswerNeutral: "native"}})
				}
			}
		}
		a.requireAt(t)
	})
}

// draw draws the messages of the call n.
func (a *adds) draw(t *rapid.T, n int) (lines []string) {
	for m := range rapid.IntRange(1, 5).Draw(t, "messages") {
		kind := rapid.SampledFrom([]string{"U", "U", "S", "A", "A", "T"}).Draw(t, "kind")
		switch {
		case kind != "U" && kind != "S" && rapid.Bool().Draw(t, "call"):
			kind += "=" + rapid.SampledFrom([]string{"c", "d"}).Draw(t, "id")
		case kind == "T" && len(a.state.Turns) > 0:
			kind = fmt.Sprint("T>", rapid.IntRange(1, len(a.state.Turns)).Draw(t, "turn"))
		}
		lines = append(lines, fmt.Sprintf("%s m%d-%d", kind, n, m))
	}
	return lines
}

// Calls that one append carries out add what they would add one after the other, each with facts of its own.
func TestCallsOfOneAppend(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := newAdds()
		for n := range rapid.IntRange(0, 6).Draw(t, "calls before") {
			a.add(t, a.draw(t, n)...)
		}
		var lines [][]string
		var commands []decide.AddMessages
		for n := range rapid.IntRange(1, 6).Draw(t, "calls") {
			lines = append(lines, a.draw(t, 10+n))
			commands = append(commands, a.command(lines[n]...))
			if rapid.IntRange(0, 4).Draw(t, "asks a model") == 0 {
				commands[n].Settings = json.RawMessage(`{"model":"m"}`)
			}
		}
		first := a.seq + 1
		for n, d := range decide.Adds(a.state, commands) {
			alone := decide.Adds(a.state, commands[n:n+1])[0]
			require.Equal(t, alone.Facts, d.Facts, "call %d", n)
			require.Equal(t, alone.Bases, d.Bases)
			for i, at := range alone.At {
				if at.Begun == 0 {
					at.Begun = a.seq + 1 + uint64(at.Fact)
				}
				if got := &d.At[i]; got.Begun == 0 {
					got.Begun = first + uint64(got.Fact)
				}
				at.Fact, d.At[i].Fact = 0, 0
				require.Equal(t, at, d.At[i])
			}
			a.put(t, d, lines[n])
		}
		for line, at := range a.at {
			_, text, _ := strings.Cut(line, " ")
			require.Equal(t, text, a.text(at), "%s %+v", line, at)
		}
	})
}

// Who goes on from a certain event does not go on from what came in the same append.
func TestACallOfOneAppendWentOn(t *testing.T) {
	t.Parallel()
	a := newAdds()
	a.add(t, "U q", "A a")
	commands := []decide.AddMessages{a.command("U one"), a.command("U other")}
	for i := range commands {
		commands[i].After = a.state.LastText()
	}
	got := decide.Adds(a.state, commands)
	require.NoError(t, got[0].Err)
	require.ErrorIs(t, got[1].Err, decide.ErrWentOn)
	require.Empty(t, got[1].Facts)
}

// requireAt requires every message to be at its place.
func (a *adds) requireAt(t require.TestingT) {
	for line, at := range a.at {
		_, text, _ := strings.Cut(line, " ")
		require.Equal(t, text, a.text(at), "%s %+v", line, at)
	}
}

// text returns the text of the message at a place.
func (a *adds) text(at decide.AddedAt) string {
	for _, t := range a.state.Turns {
		var messages json.RawMessage
		switch {
		case at.Answer && t.Final == at.Begun:
			messages = t.Answer.AnswerMessages
		case !at.Answer && t.Started == at.Begun:
			messages = t.Question.QuestionMessages
		default:
			continue
		}
		var list []struct{ Content string }
		_ = json.Unmarshal(messages, &list)
		return list[at.Message].Content
	}
	return "in no turn"
}

// What a session that is not there, closed, reset or silent says to messages.
func TestWhereMessagesAreNotAdded(t *testing.T) {
	t.Parallel()
	c := []decide.AddMessages{{SessionID: "s", RequestID: "r"}}
	none := session.New("s", session.Rules{})
	require.ErrorIs(t, decide.Adds(none, c)[0].Err, decide.ErrSessionNotFound)
	a := newAdds()
	first := decide.AddMessages{SessionID: "s", RequestID: "r", Begins: true}
	require.NoError(t, decide.Adds(a.state, []decide.AddMessages{first})[0].Err)
	a.add(t, "U q")
	require.ErrorIs(t, decide.Adds(a.state, []decide.AddMessages{first})[0].Err, decide.ErrWentOn)
	a.fold(&events.SessionReset{SessionID: "s", After: events.Position{Seq: a.seq}})
	a.add(t, "U after the reset")
	require.Len(t, a.state.Turns, 2, "what is hidden does not go on")
	a.time = a.time.Add(2 * time.Hour)
	a.add(t, "U after the silence")
	require.Len(t, a.state.Turns, 3)
	a.fold(&events.TurnRedacted{TurnID: a.state.Turns[2].ID, SessionID: "s"})
	a.add(t, "U again")
	require.Len(t, a.state.Turns, 4)
	a.fold(&events.SessionErased{SessionID: "s", ReceiptID: "r"})
	require.ErrorIs(t, decide.Adds(a.state, c)[0].Err, decide.ErrSessionErased)
	require.Equal(t, uuid.Nil, decide.AddedMessage{}.Answers)
}

// A question does not grow for ever, and an event does not either.
func TestRunsAreBounded(t *testing.T) {
	t.Parallel()
	a := newAdds()
	var lines []string
	for n := range 100 {
		lines = append(lines, fmt.Sprint("U ", n))
	}
	a.add(t, lines...)
	require.Len(t, a.state.Turns, 2)
	require.Len(t, strings.Split(a.shown()[0], "+"), 64)

	long := strings.Repeat("x", 300<<10)
	d := a.add(t, "A "+long+"1", "A "+long+"2", "A "+long+"3")
	require.Len(t, d.Facts, 3, "one that finalizes, and two that extend")
	require.Equal(t, []int{0, 1, 2}, d.Bases)
}

// What asks a model is one question, however long: a branch behind its answer shares no question without one. Only the
// fact that begins it and the last one repeat its text.
func TestWhatAsksAModelIsOneQuestion(t *testing.T) {
	t.Parallel()
	a := newAdds()
	var lines []string
	for n := range 64 {
		lines = append(lines, fmt.Sprint("U ", n))
	}
	a.add(t, lines...)
	long := strings.Repeat("x", 300<<10)
	a.settings = json.RawMessage(`{"model":"m"}`)
	d := a.add(t, "U "+long+"1", "U "+long+"2", "S "+long+"3", "U last")
	require.Len(t, a.state.Turns, 1)
	require.Len(t, strings.Split(a.shown()[0], "+"), 68)
	question := a.state.Turns[0].Question.QuestionNeutral
	require.Equal(t, 66, strings.Count(question, "\n\n"), "a system's message is no text of it")
	require.True(t, strings.HasSuffix(question, "2\n\nlast"))
	for i, f := range d.Facts {
		x := f.(*events.TurnExtended)
		require.Equal(t, i == len(d.Facts)-1, x.QuestionNeutral != "", i)
		require.Equal(t, i == len(d.Facts)-1, x.Settings != nil, i)
	}
	require.Len(t, d.Facts, 3)
	a.settings = nil
	a.add(t, "U next")
	require.Len(t, a.state.Turns, 2, "a model is asked about the turn before")
}

// Items that come with their answer are one fact, unless that would be too large, or a model is asked with the answer.
func TestItemsWithTheirAnswerAreOneFact(t *testing.T) {
	t.Parallel()
	types := func(d decide.Added) (list []string) {
		for _, f := range d.Facts {
			list = append(list, strings.TrimSuffix(strings.TrimPrefix(f.Type(), "turnledger.turn."), ".v1"))
		}
		return list
	}
	a := newAdds()
	d := a.add(t, "U one", "A=c call", "T=c output", "A 1", "S rules", "U two", "A 2", "U three")
	require.Equal(t, []string{"recorded", "recorded", "started"}, types(d))
	require.Equal(t, []int{0, 0, 0, 0, 1, 1, 1, 2}, []int{d.At[0].Fact, d.At[1].Fact, d.At[2].Fact, d.At[3].Fact,
		d.At[4].Fact, d.At[5].Fact, d.At[6].Fact, d.At[7].Fact})
	require.Equal(t, []string{"one (one) | call+output+1 (1)", "rules+two (two) | 2 (2)", "three (three)"}, a.shown())
	require.Equal(t, []string{"finalized", "started"}, types(a.add(t, "A 3", "U four")))
	require.Equal(t, []string{"finalized", "recorded", "started"}, types(a.add(t, "A 4", "U five", "A 5", "U six")))

	a = newAdds()
	long := strings.Repeat("x", 300<<10)
	require.Equal(t, []string{"started", "finalized"}, types(a.add(t, "U "+long, "A "+long)))
	require.Equal(t, []string{"recorded", "extended"}, types(a.add(t, "U short", "A "+long, "A 2 "+long)))

	a = newAdds()
	a.settings = json.RawMessage(`{"model":"m"}`)
	require.Equal(t, []string{"recorded", "started"}, types(a.add(t, "U one", "A 1", "U two")))
	d = a.add(t, "A=d 2", "U three", "A=e call", "T=e output")
	require.Equal(t, []string{"finalized", "started", "finalized"}, types(d))
}
