package respond

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// With the outputs of tools some clients send what the history has already: the user's messages, earlier outputs, or
// the calls and what the model said beside them. It stands once. (replay is for a history that is sent as a whole.)

// newest asks for the turns of a session that an input may say again.
func newest(sessionID string, input []items.Item) services.Ask {
	ask := services.Ask{SessionID: sessionID, Shown: 1, Pending: true}
	if maySayAgain(input) {
		ask.Shown = lookedBack
	}
	return ask
}

// maySayAgain reports whether an input has an output, and more.
func maySayAgain(input []items.Item) bool {
	return len(input) > 1 && slices.ContainsFunc(input, items.Item.IsOutput)
}

// freshBehind is fresh for an input that goes on with a step, which ends at a position.
func (s *Service) freshBehind(
	ctx context.Context, input []items.Item, st step, end events.Position,
) ([]items.Item, error) {
	if !maySayAgain(input) {
		return input, nil
	}
	ask := newest(st.session, input)
	reading, err := s.cfg.Sessions.Read(ctx, ask)
	if err == nil && reading.State.Turn(st.TurnID) == nil {
		ask.AllTurns = true
		reading, err = s.cfg.Sessions.Read(ctx, ask)
	}
	if err != nil {
		return nil, err
	}
	return s.fresh(input, reading, end.Seq), nil
}

// fresh returns an input without what the newest turns of a reading have already, as they were at a sequence.
func (s *Service) fresh(input []items.Item, r services.Reading, until uint64) []items.Item {
	if !maySayAgain(input) {
		return input
	}
	var turns [][]items.Item
	for _, t := range slices.Backward(r.State.Turns) {
		session, partition, inherited := r.State.Origin(t, r.Position.Partition)
		if len(turns) == lookedBack || !r.State.Shown(t) || !inherited && t.Started > until {
			continue
		}
		if !inherited {
			t = t.Until(until, t.Final != 0 && t.Final <= until)
		}
		turns = append(turns, s.cfg.IDs.OfTurn(session, partition, t))
	}
	slices.Reverse(turns)
	return withoutHistory(input, turns)
}

// withoutHistory returns an input without what turns have already, oldest first.
func withoutHistory(input []items.Item, turns [][]items.Item) []items.Item {
	a := sentAgain{input: input, turns: turns, drop: make([]bool, len(input)), of: make([]int, len(input))}
	for n := range a.of {
		a.of[n] = -1
	}
	calls := callsOf(input, turns)
	for _, i := range input {
		if c := calls[i.CallID()]; c != nil {
			delete(calls, i.CallID())
			a.dropCall(c)
		}
	}
	a.dropSaid()
	a.dropQuestions()
	return a.left()
}

// sentAgain is an input that is compared with turns. drop marks which of its items they have, and of says to which turn
// an item belongs; -1 is none.
type sentAgain struct {
	input []items.Item
	turns [][]items.Item
	drop  []bool
	of    []int
}

// left returns what is not marked. If nothing is, it returns all calls and outputs.
func (a *sentAgain) left() (left []items.Item) {
	all := !slices.Contains(a.drop, false)
	for n, i := range a.input {
		if !a.drop[n] || all && i.CallID() != "" {
			left = append(left, i)
		}
	}
	return left
}

func (a *sentAgain) mark(n, turn int) { a.drop[n], a.of[n] = true, turn }

// standing is an item of a turn.
type standing struct {
	items.Item

	turn int
}

// calling is what the input and the turns have of a call. Some models use an id again: of two turns that make the call,
// the newer waits for its output.
type calling struct {
	calls, outputs []int // places in the input
	made           []standing
	given          []standing // outputs, with the turns of their calls
	turn           int        // the newest that makes it; -1: none
	waits          int        // for so many outputs
}

// callsOf returns the calls that an input has outputs for, by their ids.
func callsOf(input []items.Item, turns [][]items.Item) map[string]*calling {
	all := map[string]*calling{}
	for _, i := range input {
		if i.IsOutput() {
			all[i.CallID()] = &calling{turn: -1}
		}
	}
	for n, i := range input {
		switch c := all[i.CallID()]; {
		case c == nil:
		case i.IsCall():
			c.calls = append(c.calls, n)
		default:
			c.outputs = append(c.outputs, n)
		}
	}
	for turn, list := range turns {
		for _, i := range list {
			if c := all[i.CallID()]; c != nil {
				c.met(i, turn)
			}
		}
	}
	return all
}

// met notes an item of a turn.
func (c *calling) met(i items.Item, turn int) {
	switch {
	case i.IsCall():
		if c.turn != turn {
			c.turn, c.waits = turn, 0
		}
		c.waits++
		c.made = append(c.made, standing{i, turn})
	case c.turn >= 0:
		c.waits = max(0, c.waits-1)
		c.given = append(c.given, standing{i, c.turn})
	}
}

// dropCall marks the outputs of a call that turns have, but for as many as are waited for, and the call, if that leaves
// no more. A call with its output that stands behind something new is the caller's own, of the same id.
func (a *sentAgain) dropCall(c *calling) {
	if c.waits == 0 && len(c.calls) > 0 && !a.leads(c.calls[0]) {
		return
	}
	left := len(c.outputs)
	for _, n := range c.outputs {
		a.of[n] = c.turn
		known := slices.IndexFunc(c.given, func(s standing) bool { return a.input[n].Repeats(s.Item) })
		if left > c.waits && known >= 0 {
			a.mark(n, c.given[known].turn)
			c.given = slices.Delete(c.given, known, known+1)
			left--
		}
	}
	for k := 1; k <= min(len(c.calls), len(c.made)) && left <= c.waits; k++ {
		if n, made := c.calls[len(c.calls)-k], c.made[len(c.made)-k]; a.input[n].Repeats(made.Item) {
			a.mark(n, made.turn)
		}
	}
}

// leads reports whether nothing new stands before an item of the input.
func (a *sentAgain) leads(before int) bool {
	for n := range before {
		known := func(turn []items.Item) bool {
			return said(a.input[n], turn) ||
				slices.ContainsFunc(turn, func(i items.Item) bool { return i.Asks() && saysTheSame(i, a.input[n]) })
		}
		if !a.drop[n] && !slices.ContainsFunc(a.turns, known) {
			return false
		}
	}
	return true
}

// said reports whether an item is what the model said or thought in a turn.
func said(i items.Item, turn []items.Item) bool {
	return !i.Asks() && i.CallID() == "" && slices.ContainsFunc(turn, i.Repeats)
}

// saysTheSame reports whether an item asks as another one does.
func saysTheSame(q, i items.Item) bool {
	return i.Asks() && i.ByUser() == q.ByUser() && i.Words() == q.Words()
}

// dropSaid marks what the model said beside what is marked.
func (a *sentAgain) dropSaid() {
	also := func(n, beside int) {
		if a.drop[beside] && !a.drop[n] && said(a.input[n], a.turns[a.of[beside]]) {
			a.mark(n, a.of[beside])
		}
	}
	for n := 1; n < len(a.input); n++ {
		also(n, n-1)
	}
	for n := len(a.input) - 1; n > 0; n-- {
		also(n-1, n)
	}
}

// dropQuestions marks the question of each turn whose calls have outputs in the input, if it stands right before what
// belongs to the turn, and nothing new before it.
func (a *sentAgain) dropQuestions() {
	for turn, list := range a.turns {
		question := slices.DeleteFunc(slices.Clone(list), func(i items.Item) bool { return !i.Asks() })
		at := slices.Index(a.of, turn) - len(question)
		if at < 0 || slices.Contains(a.drop[:at], false) ||
			!slices.EqualFunc(question, a.input[at:at+len(question)], saysTheSame) {
			continue
		}
		for n := range question {
			a.mark(at+n, turn)
		}
	}
}
