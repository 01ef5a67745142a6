package contextbuilder

import (
	"slices"
	"time"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// piece is a turn with the messages that a prompt shows for it.
type piece struct {
	turn     *session.Turn
	messages []message.Message
}

// piecesOf returns every turn with its messages, in one slice for all messages.
func piecesOf(turns []*session.Turn, f form) []piece {
	all := make([]message.Message, 0, 2*len(turns))
	pieces := make([]piece, len(turns))
	for i, t := range turns {
		from := len(all)
		all = appendMessages(all, t, f)
		pieces[i] = piece{turn: t, messages: all[from:len(all):len(all)]}
	}
	return pieces
}

func (p piece) complete() bool { return p.turn.Status == session.Finalized }

// budget of a window: so many messages and tokens, as count counts them; 0 tokens means no limit. room is how many
// tokens the model takes of history, which tokens never exceeds; 0 if that is not known.
type budget struct {
	messages, tokens, room int
	count                  func(string) int
	keep                   keep
	// blocks: turns leave a full window several at a time. before is how many turns of the session, filtered ones
	// included, stand before the first piece.
	blocks bool
	before int
}

// keep says which turn a window takes whether its budget has room for it or not: none, the newest one, or the last one
// that is complete.
type keep int

const (
	keepNothing keep = iota
	keepNewest
	keepLastPair
)

// cut is what a window takes. all: the budget has room for all pieces. over: more was taken than it has room for.
type cut struct {
	taken     []piece
	all, over bool
}

// window takes whole turns, from the newest back, while the budget lasts, and the one that it keeps in any case. For
// each tool result that is taken, the turn with its call is taken too, if a piece has it.
func window(pieces []piece, b budget) (w cut) {
	from := len(pieces)
	messages, tokens := 0, 0
	for from > 0 {
		p := pieces[from-1]
		messages += len(p.messages)
		over := messages > b.messages
		if !over && b.tokens > 0 {
			tokens += tokensOf(p.messages, b.count)
			over = tokens > b.tokens
		}
		if over && (from < len(pieces) || b.keep != keepNewest) {
			break
		}
		w.over = w.over || over
		from--
	}
	fits := from
	if w.all = from == 0; b.blocks && !w.all {
		from = blockStart(from, len(pieces), b.before)
	}
	links := linksOf(pieces)
	from = callsFirst(links, from)
	w.taken, w.over = pieces[from:], w.over || from < fits
	if b.keep == keepLastPair && !slices.ContainsFunc(w.taken, piece.complete) {
		if last := lastComplete(pieces[:from]); last >= 0 {
			begin := callsFirst(links, last)
			end := resultsToo(links, begin, last+1, from)
			w.taken, w.over = append(slices.Clone(pieces[begin:end]), w.taken...), true
		}
	}
	return w
}

// blockStart moves the beginning of a full window forward to the next block of turns, so that the window keeps at least
// three quarters of its turns and most prompts begin as the one before: models' caches of prompts are found by how a
// prompt begins. The blocks are counted from the session's first turn: before turns stand before the pieces.
func blockStart(from, end, before int) int {
	block := (end-from)/4 + 1
	return from + (block-(before+from)%block)%block
}

// link joins the piece that calls a tool to the piece with the result, by their indices.
type link struct{ call, result int }

// linksOf returns the links between pieces, in the order of the results. A result belongs to the last call with its id
// before it.
func linksOf(pieces []piece) (links []link) {
	calls := map[string]int{}
	for i, p := range pieces {
		for _, m := range p.messages {
			for _, id := range m.Answers() {
				if call, found := calls[id]; found {
					links = append(links, link{call, i})
				}
			}
			for _, id := range m.Calls() {
				calls[id] = i
			}
		}
	}
	return links
}

// callsFirst moves the window's beginning back until it holds the call of every tool result in it, if a piece has the
// call.
func callsFirst(links []link, from int) int {
	for _, l := range slices.Backward(links) {
		if l.result >= from {
			from = min(from, l.call)
		}
	}
	return from
}

// resultsToo moves the end of pieces[begin:end] forward, up to a limit, until it holds the results of all calls in it.
func resultsToo(links []link, begin, end, limit int) int {
	for _, l := range links {
		if l.call >= begin && l.call < end && l.result < limit {
			end = max(end, l.result+1)
		}
	}
	return end
}

func lastComplete(pieces []piece) int {
	last := len(pieces) - 1
	for last >= 0 && !pieces[last].complete() {
		last--
	}
	return last
}

// sinceSilence drops the turns before the last silence that was longer than idle. The time between the last turn and
// now counts as a silence too.
func sinceSilence(turns []*session.Turn, idle time.Duration, now time.Time) []*session.Turn {
	if idle <= 0 {
		return turns
	}
	next := now
	for i, t := range slices.Backward(turns) {
		last := t.CreatedAt
		if t.FinalizedAt.After(last) {
			last = t.FinalizedAt
		}
		if next.Sub(last) > idle {
			return turns[i+1:]
		}
		next = t.CreatedAt
	}
	return turns
}

// TokenCounter counts the tokens of a text as a model does. Safe for concurrent use.
type TokenCounter interface{ Count(text string) int }

// Estimate counts tokens where the model's tokenizer is unknown: a quarter of the bytes, which is right for English and
// too many for other scripts.
type Estimate struct{}

// Count implements TokenCounter.
func (Estimate) Count(text string) int { return (len(text) + 3) / 4 }

// perMessage is how many tokens a message costs beside its texts: for its role and its delimiters (OpenAI's cookbook,
// "How to count tokens with tiktoken").
const perMessage = 4

// tokensOf counts the tokens that a model reads of messages: texts and tool calls. It leaves out images, since each
// vendor prices them by rules of its own.
func tokensOf(messages []message.Message, count func(string) int) int {
	n := 0
	for _, m := range messages {
		n += perMessage + count(m.Words())
		for _, text := range m.Results() {
			n += perMessage + count(text)
		}
		for _, c := range m.ToolCalls() {
			n += perMessage + count(c.Function.Name) + count(string(c.Function.Arguments))
		}
	}
	return n
}
