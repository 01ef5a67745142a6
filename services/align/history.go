package align

import (
	"slices"

	"github.com/turnledger/turnledger/events/message"
)

// Turn is a turn of a session as it stands, with the ids of its items.
type Turn struct {
	Items []message.Item
	// Lacks: a message of it was pruned, a version was replaced, or it is a tombstone. What a history has at its place
	// is the turn's.
	Lacks bool
	// Open: it has no answer, or had none before it was redacted.
	Open bool
	// Has reports whether an id is that of an item which the turn has or had.
	Has func(id string) bool
}

func (t Turn) has(id string) bool { return id != "" && t.Has != nil && t.Has(id) }

// Input are items as a client sent them, each with the id that it came with, or "".
type Input struct {
	Items []message.Item
	IDs   []string
	// At are the places where the items stood before some were left out; nil if none were.
	At []int
}

// Without returns the input without the items at some places.
func (in Input) Without(places []int) (out Input) {
	out.At = []int{}
	for n := range in.Items {
		if !slices.Contains(places, n) {
			out.Items, out.IDs = append(out.Items, in.Items[n]), append(out.IDs, in.IDs[n])
			out.At = append(out.At, in.CameAt(n))
		}
	}
	return out
}

// CameAt returns where an item stood before some were left out.
func (in Input) CameAt(n int) int {
	if in.At == nil {
		return n
	}
	return in.At[n]
}

// Shared is what a history that a client sent shares with a session: the whole turns from First up to Turns. They are
// the items of the input before Rest; what follows is new. First is above 0 if the front of the history was trimmed.
// Diverges: the session went on otherwise after these turns. Gone are the items at the places of what is gone.
type Shared struct {
	First, Turns, Rest int
	Diverges           bool
	Gone               []int
	// Cuts are the places of the input where each of these turns begins, and where the last of them ends.
	Cuts []int
	// Ends, of Chat: the input ends within the turn At, at what asks for its answer, and brings nothing new.
	Ends bool
	At   int
}

// Stands counts the items that the session has and that are not gone from it.
func (s Shared) Stands() int { return s.Rest - len(s.Gone) }

// History compares a whole history with the turns of a session. At least one item is new: the last turn of a history
// that brings nothing new is given again.
func History(turns []Turn, in Input) Shared {
	h := comparing(in)
	for _, t := range turns {
		h.turns = append(h.turns, meant{Turn: t, meanings: meanings(t.Items)})
	}
	s := h.from(0, 0)
	for first := 1; s.Turns == 0 && first < len(turns); first++ {
		// A trimmed front: what is left of it must reach the session's end, and hold two messages in a row.
		if t := h.from(first, 0); t.Turns == len(turns) && h.exchange(t.Rest) {
			return t
		}
	}
	return s
}

type meant struct {
	Turn
	meanings []meaning
	// asked, of Chat, is where the answer begins, and last its last text.
	asked int
	last  string
}

// kind is what an item is.
type kind struct{ asks, assistant, call, output bool }

type history struct {
	turns []meant
	in    Input
	of    []meaning
	gone  []int
	kinds []kind
	// loose: turns are compared as Chat does it. said is then what the input says from each place that was looked at.
	loose bool
	said  []*said
	// pairs are how often a turn was compared.
	pairs int
}

func comparing(in Input) history {
	h := history{in: in, of: meanings(in.Items)}
	for _, i := range in.Items {
		h.kinds = append(h.kinds, kind{i.Asks(), i.ByAssistant(), i.CallID() != "", i.IsOutput()})
	}
	return h
}

// exchange reports whether the input before an item has two messages in a row of which one is the assistant's.
func (h *history) exchange(end int) bool {
	for n := 1; n < end; n++ {
		if h.kinds[n-1].assistant || h.kinds[n].assistant {
			return true
		}
	}
	return false
}

// from follows the turns from one on.
func (h *history) from(first, n int) Shared {
	s := Shared{First: first, Rest: n, Turns: first, Cuts: []int{n}}
	h.gone = nil
	for k := first; k < len(h.turns); k++ {
		end, is := h.turn(k, n)
		if !is {
			break
		}
		s.Cuts = append(s.Cuts, end)
		if n = end; n >= len(h.in.Items) {
			if h.loose {
				s.Ends, s.At = true, k
			}
			break // at least one item is new
		}
		if t := h.turns[k]; h.loose || !t.Open || len(t.Items) == 0 {
			s.Turns, s.Rest = k+1, n
		}
	}
	if s.Cuts = s.Cuts[:s.Turns-first+1]; s.Turns == first {
		s.Turns = 0
	}
	for _, n := range h.gone {
		if n < s.Rest {
			s.Gone = append(s.Gone, n)
		}
	}
	s.Diverges = s.Turns > 0 && s.Turns < len(h.turns) && !h.turns[len(h.turns)-1].Open
	return s
}

// turn returns where the items of a turn end that stand in the input from n on, or false if they don't.
func (h *history) turn(k, n int) (end int, is bool) {
	h.pairs++
	t := h.turns[k]
	if at := h.answerOf(k, n); at > n {
		h.forget(n, at)
		n = at
	}
	end, is = h.same(k, n)
	switch {
	case !t.Lacks:
	case !is || len(t.Items) == 0:
		old := h.place(k, n)
		if _, next := h.next(k, n); is && (next || old == n) {
			return n, true // the client has left it out
		}
		h.forget(n, old)
		return old, old > n || is
	default: // it may have lost its end; an output that nothing was said to is new
		from := end
		for n := from; n < len(h.in.Items) && !h.kinds[n].asks; n++ {
			if !h.kinds[n].output {
				end = n + 1
			}
		}
		h.forget(from, end)
	}
	return end, is
}

// forget notes items at the place of what is gone.
func (h *history) forget(from, end int) {
	for n := from; n < end; n++ {
		h.gone = append(h.gone, n)
	}
}

// next is turn for the one behind a turn, if there is one.
func (h *history) next(k, n int) (end int, is bool) {
	if k+1 == len(h.turns) || len(h.turns[k+1].Items) == 0 {
		return n, false
	}
	return h.same(k+1, n)
}

// same returns the end of items that are those of a turn.
func (h *history) same(k, n int) (int, bool) {
	if h.loose {
		return h.loosely(k, n)
	}
	return h.exact(h.turns[k], n)
}

// exact returns the end of items that are those of a turn. What is neither said nor called may be left out: thoughts,
// and searches of a vendor.
func (h *history) exact(t meant, n int) (int, bool) {
	for i, m := range t.meanings {
		one := t.Items[i]
		switch {
		case n < len(h.of) && h.of[n].is(m):
			n++
		case one.Type() == "message" || one.CallID() != "":
			return n, false
		}
	}
	return n, true
}

// place returns the end of what a client has at the place of a turn: what it names by the turn's ids, or else a
// question and its answer. A question alone is the next one, unless another follows it and the turn was open.
func (h *history) place(k, n int) int {
	t, at := h.turns[k], n
	while := func(is func(n int) bool) {
		for at < len(h.in.Items) && is(at) {
			at++
		}
	}
	asks := func(n int) bool { return h.kinds[n].asks }
	answers := func(n int) bool { return !asks(n) }
	named := func(n int) bool { return t.has(h.in.IDs[n]) }
	while(named)
	if at == n {
		if k == 0 {
			while(answers) // a greeting
		}
		first := at
		while(func(n int) bool { return asks(n) && (!t.Open || n == first) })
		if !t.Open && (at == len(h.in.Items) || asks(at)) || t.Open && (at == len(h.in.Items) || answers(at)) {
			return n
		}
	}
	if while(answers); at == len(h.in.Items) {
		return n
	}
	return at
}
