package align

import (
	"slices"

	"github.com/turnledger/turnledger/events/message"
)

// News returns the places of the items of an input that the turns do not have, where the input is to be added to them:
// some clients send with the outputs of tools, or by their ids, what is there. These come again:
//
//   - An item with the id of one that the turns have, and with its meaning; also one that they had.
//   - An output that a turn has of a call, but for as many as the newest turn that makes the call waits for; and the
//     call, if that leaves no more. A call with its output behind something new is the caller's own, of the same id.
//   - What stands at the place of an item that is gone, as Gone finds it.
//   - What the model said beside what comes again, and a call there that still waits for its output; if the turn lacks
//     something, whatever was said.
//   - The question of a turn right before what belongs to the turn, with nothing new before it.
//   - A history that reaches the last turn, as History finds it, with what stands in it at the place of what is gone,
//     if it holds an output that they have, or something that comes again by the rules above.
//
// All else is new: users say "yes" twice. If nothing is new, the calls and outputs are, or else the last turn; but
// never what is gone.
func News(turns []Turn, in Input) (fresh []int) {
	a := beside(turns, in)
	calls := a.calls()
	for _, i := range in.Items {
		if c := calls[i.CallID()]; c != nil {
			delete(calls, i.CallID())
			a.call(c)
		}
	}
	a.said()
	a.questions()
	a.whole()
	return a.left()
}

// Gone returns the places of the items of an input that turns had and have no more, by their ids, and of what stands
// beside them, unless their turn holds it: all that answers, and the question before. An output that nothing was said
// to is new, if the turn makes its call.
func Gone(turns []Turn, in Input) (out []int) {
	if !slices.ContainsFunc(turns, func(t Turn) bool { return t.Lacks }) {
		return nil
	}
	a := beside(turns, in)
	for n := range in.Items {
		if a.lost(n) {
			out = append(out, n)
		}
	}
	return out
}

// beside compares an input with turns by its ids.
func beside(turns []Turn, in Input) *adding {
	size := len(in.Items)
	a := &adding{
		in: in, of: meanings(in.Items), again: make([]bool, size), gone: make([]bool, size), turn: make([]int, size),
	}
	for n, t := range turns {
		a.turns = append(a.turns, meant{Turn: t, meanings: meanings(t.Items)})
		a.named(n)
	}
	for n := range in.Items {
		if a.lost(n) {
			a.place(n)
		}
	}
	return a
}

// adding is an input beside turns. again marks which of its items they have or had, gone what they have no more, and
// turn is which turn an item belongs to, counted from 1; 0 is none.
type adding struct {
	turns       []meant
	in          Input
	of          []meaning
	again, gone []bool
	turn        []int
}

func (a *adding) mark(n, turn int) { a.again[n], a.turn[n] = true, turn+1 }

// named marks the items that a turn has, or had, by their ids.
func (a *adding) named(turn int) {
	t := a.turns[turn]
	for n, id := range a.in.IDs {
		if id == "" || a.again[n] {
			continue
		}
		at := slices.IndexFunc(t.Items, func(i message.Item) bool { return i.ID() == id })
		if at >= 0 && a.of[n].is(t.meanings[at]) || at < 0 && t.has(id) {
			a.mark(n, turn)
			a.gone[n] = at < 0
		}
	}
}

// lost reports whether an item is gone from a turn that lacks something.
func (a *adding) lost(n int) bool { return a.gone[n] && a.turns[a.turn[n]-1].Lacks }

// place marks what stands at the place of an item that is gone.
func (a *adding) place(n int) {
	turn, all := a.turn[n]-1, a.in.Items
	t := a.turns[turn]
	also := func(m int) bool { // reports whether m may be the turn's
		if a.again[m] {
			return a.turn[m] == turn+1
		}
		if !a.holds(m, t) {
			a.mark(m, turn)
			a.gone[m] = true
		}
		return true
	}
	end := n + 1
	for m := end; m < len(all) && !all[m].Asks(); m++ {
		made := func(i message.Item) bool { return i.IsCall() && i.CallID() == all[m].CallID() }
		if !all[m].IsOutput() || !slices.ContainsFunc(t.Items, made) {
			end = m + 1
		}
	}
	for m := n + 1; m < end && also(m); m++ {
	}
	if all[n].Asks() {
		return
	}
	m := n - 1
	for m >= 0 && !all[m].Asks() && also(m) {
		m--
	}
	for m >= 0 && all[m].Asks() && a.in.IDs[m] == "" && also(m) {
		m--
	}
}

// calling is what the input and the turns have of a call. Some models use an id again.
type calling struct {
	calls, outputs []int // places in the input
	made, given    []standing
	turn           int // the newest that makes it; -1: none
	waits          int // for so many outputs
}

// standing is an item of a turn.
type standing struct {
	meaning
	turn int
}

// calls returns the calls that the input has outputs for, by their ids.
func (a *adding) calls() map[string]*calling {
	all := map[string]*calling{}
	for n, i := range a.in.Items {
		if i.IsOutput() && !a.again[n] {
			all[i.CallID()] = &calling{turn: -1}
		}
	}
	for n, i := range a.in.Items {
		switch c := all[i.CallID()]; {
		case c == nil || a.again[n]:
		case i.IsCall():
			c.calls = append(c.calls, n)
		default:
			c.outputs = append(c.outputs, n)
		}
	}
	for turn, t := range a.turns {
		for n, i := range t.Items {
			switch c := all[i.CallID()]; {
			case c == nil:
			case i.IsCall():
				if c.turn != turn {
					c.turn, c.waits = turn, 0
				}
				c.waits++
				c.made = append(c.made, standing{t.meanings[n], turn})
			default: // the item of its call may have been deleted
				of := c.turn
				if of < 0 {
					of = turn
				}
				c.waits = max(0, c.waits-1)
				c.given = append(c.given, standing{t.meanings[n], of})
			}
		}
	}
	return all
}

// call marks the outputs of a call, and then the call.
func (a *adding) call(c *calling) {
	if c.waits == 0 && len(c.calls) > 0 && !a.leads(c.calls[0]) {
		return
	}
	left := len(c.outputs)
	for _, n := range c.outputs {
		a.turn[n] = c.turn + 1
		known := slices.IndexFunc(c.given, func(s standing) bool { return a.of[n].is(s.meaning) })
		if left > c.waits && known >= 0 {
			a.mark(n, c.given[known].turn)
			c.given = slices.Delete(c.given, known, known+1)
			left--
		}
	}
	for k := 1; k <= min(len(c.calls), len(c.made)) && left <= c.waits; k++ {
		if n, made := c.calls[len(c.calls)-k], c.made[len(c.made)-k]; a.of[n].is(made.meaning) {
			a.mark(n, made.turn)
		}
	}
}

// leads reports whether nothing new stands before an item of the input.
func (a *adding) leads(before int) bool {
	for n := range before {
		known := func(t meant) bool { return a.in.Items[n].CallID() == "" && a.holds(n, t) }
		if !a.again[n] && !slices.ContainsFunc(a.turns, known) {
			return false
		}
	}
	return true
}

// holds reports whether a turn has an item of the input.
func (a *adding) holds(n int, t meant) bool { return slices.ContainsFunc(t.meanings, a.of[n].is) }

// said marks what the model said, thought or called for beside what is marked.
func (a *adding) said() {
	given := map[string]bool{} // the calls that the input has outputs for are judged with these
	for _, i := range a.in.Items {
		given[i.CallID()] = given[i.CallID()] || i.IsOutput()
	}
	also := func(n, beside int) {
		i := a.in.Items[n]
		if !a.again[beside] || a.again[n] || i.Asks() || given[i.CallID()] {
			return
		}
		t := a.turns[a.turn[beside]-1]
		if held := a.holds(n, t); t.Lacks && !i.IsCall() || held {
			a.mark(n, a.turn[beside]-1)
			a.gone[n] = !held
		}
	}
	for n := 1; n < len(a.of); n++ {
		also(n, n-1)
	}
	for n := len(a.of) - 1; n > 0; n-- {
		also(n-1, n)
	}
}

// questions marks the question of each turn right before what belongs to the turn.
func (a *adding) questions() {
	for turn, t := range a.turns {
		var question []meaning
		for n, i := range t.Items {
			if i.Asks() {
				question = append(question, t.meanings[n])
			}
		}
		at := slices.Index(a.turn, turn+1) - len(question)
		if at < 0 || slices.Contains(a.again[:at], false) ||
			!slices.EqualFunc(question, a.of[at:at+len(question)], meaning.is) {
			continue
		}
		for n := range question {
			a.mark(at+n, turn)
		}
	}
}

// whole marks the history that the input begins with.
func (a *adding) whole() {
	known := func(n int) bool {
		held := func(t meant) bool { return a.holds(n, t) }
		return a.again[n] || a.in.Items[n].IsOutput() && slices.ContainsFunc(a.turns, held)
	}
	first := 0 // most inputs hold nothing known, and need no history
	for first < len(a.of) && !known(first) {
		first++
	}
	if first == len(a.of) || len(a.turns) == 0 {
		return
	}
	turns := make([]Turn, len(a.turns))
	for n, t := range a.turns {
		turns[n] = t.Turn
	}
	s := History(turns, a.in)
	if s.Turns < len(turns) || first >= s.Rest {
		return
	}
	for n := range s.Rest {
		a.mark(n, len(turns)-1)
		a.gone[n] = a.gone[n] || slices.Contains(s.Gone, n)
	}
}

// left returns the places of what is new.
func (a *adding) left() (fresh []int) {
	none := !slices.Contains(a.again, false)
	calls := slices.ContainsFunc(a.in.Items, func(i message.Item) bool { return i.CallID() != "" })
	for n, i := range a.in.Items {
		last := none && !calls && a.turn[n] == a.turn[len(a.turn)-1]
		if !a.again[n] || !a.gone[n] && (none && i.CallID() != "" || last) {
			fresh = append(fresh, n)
		}
	}
	return fresh
}
