package align

import (
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/message"
)

// Chat compares the messages of a chat completion with the turns of a session. It is History for clients that keep
// texts alone, and so looser:
//
//   - System messages are not compared; the input has none.
//   - A turn is shared if its question and its last text agree. Calls, outputs and thoughts may be left out, and the
//     answer may end early.
//   - Of a trimmed front the place counts from which all agrees up to the newest turn, or else the most.
//   - An answer of a last turn that has none, and the outputs of its calls, are new.
func Chat(turns []Turn, in Input) Shared {
	h := comparing(in)
	h.loose, h.said = true, make([]*said, len(in.Items)+1)
	for _, t := range turns {
		t.Items = slices.DeleteFunc(slices.Clone(t.Items), func(i message.Item) bool { return i.Asks() && !i.ByUser() })
		m := meant{Turn: t, meanings: meanings(t.Items)}
		for n, one := range t.Items {
			if one.Asks() {
				m.asked = n + 1
			}
		}
		m.last, _ = lastText(t.Items[m.asked:])
		h.turns = append(h.turns, m)
	}
	best := h.from(0, 0)
	start := max(slices.IndexFunc(in.Items, message.Item.Asks), 0) // a front may be cut within a turn
	for first := 1; first < len(turns) && !h.reaches(best) && h.pairs < mostPairs; first++ {
		t := h.from(first, start)
		if h.exchange(t.Rest) && (h.reaches(t) || t.Rest > best.Rest) {
			best = t
		}
	}
	left := func(t meant) bool { return !t.Open && len(t.Items) > 0 }
	best.Diverges = slices.ContainsFunc(h.turns[best.Turns:], left)
	return best
}

// mostPairs bounds how often turns are compared with a trimmed front: one may fit many places for long.
const mostPairs = 1 << 22

// reaches reports whether all of the input that stands before what is new agrees up to the newest turn.
func (h *history) reaches(s Shared) bool {
	return s.Turns == len(h.turns) || s.Ends && s.At == len(h.turns)-1
}

// loosely returns the end of items that are those of a turn, as Chat compares them.
func (h *history) loosely(k, n int) (int, bool) {
	t := &h.turns[k]
	for _, m := range t.meanings[:t.asked] {
		if n >= len(h.of) || !h.of[n].is(m) {
			return n, false
		}
		n++
	}
	return h.answer(t, k == len(h.turns)-1, n)
}

// answerOf returns where the answer of a turn begins whose question was pruned, as Chat compares them: behind the
// question that the input has at its place.
func (h *history) answerOf(k, n int) int {
	t, at := &h.turns[k], n
	if !h.loose || !t.Lacks || t.asked > 0 || len(t.Items) == 0 {
		return n
	}
	for at < len(h.kinds) && h.kinds[at].asks {
		at++
	}
	if end, is := h.answer(t, k == len(h.turns)-1, at); !is || end == at {
		return n
	}
	return at
}

// said is what an input says from a place up to the next question: its last text, where that begins, and where all of
// it ends.
type said struct {
	last    string
	at, end int
}

func (h *history) saidFrom(n int) *said {
	if h.said[n] == nil {
		s := &said{end: n}
		for s.end < len(h.kinds) && !h.kinds[s.end].asks {
			s.end++
		}
		s.last, s.at = lastText(h.in.Items[n:s.end])
		s.at += n
		h.said[n] = s
	}
	return h.said[n]
}

// answer is loosely for the answer of a turn, which the items of the input up to the next question may be.
func (h *history) answer(t *meant, last bool, from int) (int, bool) {
	left, s := t.meanings[t.asked:], h.saidFrom(from)
	agrees, early := s.last != "" && s.last == t.last, strings.HasPrefix(t.last, s.last)
	end := s.end
	for n := from; n < end; n++ {
		one := h.kinds[n]
		found := slices.IndexFunc(left, h.of[n].is)
		switch {
		case found >= 0:
			left = left[found+1:]
		case !one.assistant && !one.call: // a thought
		case agrees && n < s.at:
		case one.assistant && n >= s.at && early:
		case last && (t.Open || one.output):
			return n, true
		case !last && t.Open:
			return end, true
		default:
			return from, false
		}
	}
	return end, true
}

// lastText returns the last words of the assistant among items: all behind the last call, since some clients join what
// came in parts. They begin at an item.
func lastText(all []message.Item) (words string, at int) {
	for n, i := range all {
		switch {
		case i.CallID() != "":
			words, at = "", n+1
		case i.ByAssistant():
			for _, p := range i.Parts("content") {
				words += p.Text("text") + p.Text("refusal")
			}
		}
	}
	return normal(words), at
}

// Digest names what an item says, whether the addresses of its images are told or not.
func Digest(i message.Item) []byte {
	m := meaningOf(i)
	return m.says[:]
}
