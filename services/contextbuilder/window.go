package contextbuilder

import (
	"slices"
	"time"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// piece is a turn with the messages that a prompt shows of it.
type piece struct {
	turn     *conversation.Turn
	messages []Message
}

// piecesOf returns every turn with its messages, which stand side by side in memory.
func piecesOf(turns []*conversation.Turn, lang services.Language) []piece {
	all := make([]Message, 0, 2*len(turns))
	pieces := make([]piece, len(turns))
	for i, t := range turns {
		from := len(all)
		all = appendMessages(all, t, lang)
		pieces[i] = piece{turn: t, messages: all[from:len(all):len(all)]}
	}
	return pieces
}

func (p piece) complete() bool { return p.turn.Status == conversation.Finalized }

// budget of a window. Tokens 0 is none; count gives those of a text.
type budget struct {
	messages, tokens int
	count            func(string) int
}

// window takes whole turns from the newest back while the budget lasts. The last complete turn is always among them. So
// is the turn with the call of each tool result that is taken, if a piece has it.
func window(pieces []piece, b budget) []piece {
	from := len(pieces)
	messages, tokens := 0, 0
	for from > 0 {
		p := pieces[from-1]
		if messages += len(p.messages); messages > b.messages {
			break
		}
		if b.tokens > 0 {
			if tokens += tokensOf(p.messages, b.count); tokens > b.tokens {
				break
			}
		}
		from--
	}
	from = callsFirst(pieces, from)
	taken := pieces[from:]
	if !slices.ContainsFunc(taken, piece.complete) {
		if last := lastComplete(pieces[:from]); last >= 0 {
			begin := callsFirst(pieces, last)
			end := resultsToo(pieces, begin, last+1, from)
			taken = append(slices.Clone(pieces[begin:end]), taken...)
		}
	}
	return taken
}

// resultsToo moves the end of pieces[begin:end] on to the turn with the last result
// of a call in it, where that is before a limit.
func resultsToo(pieces []piece, begin, end, limit int) int {
	open := map[string]bool{}
	note := func(p piece) {
		for _, m := range p.messages {
			for _, id := range m.calls() {
				open[id] = true
			}
			for _, id := range m.answers() {
				delete(open, id)
			}
		}
	}
	for _, p := range pieces[begin:end] {
		note(p)
	}
	for i := end; i < limit && len(open) > 0; i++ {
		before := len(open)
		if note(pieces[i]); len(open) < before {
			end = i + 1
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

// callsFirst moves the window's begin back to the turn with the call of every tool
// result in it, where there is one.
func callsFirst(pieces []piece, from int) int {
	open := map[string]bool{}
	need := func(p piece) {
		for _, m := range slices.Backward(p.messages) {
			for _, id := range m.calls() {
				delete(open, id)
			}
			for _, id := range m.answers() {
				open[id] = true
			}
		}
	}
	for _, p := range slices.Backward(pieces[from:]) {
		need(p)
	}
	for i := from - 1; i >= 0 && len(open) > 0; i-- {
		hasCall := func(m Message) bool {
			return slices.ContainsFunc(m.calls(), func(id string) bool { return open[id] })
		}
		if slices.ContainsFunc(pieces[i].messages, hasCall) {
			for _, p := range slices.Backward(pieces[i:from]) {
				need(p)
			}
			from = i
		}
	}
	return from
}

// sinceSilence drops the turns before the last silence that was longer than idle,
// the one before now included.
func sinceSilence(turns []*conversation.Turn, idle time.Duration, now time.Time) []*conversation.Turn {
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

// Estimate of tokens where the model's tokenizer is unknown: a quarter of the bytes, as
// in English; in other scripts it is more than there are.
type Estimate struct{}

// Count implements TokenCounter.
func (Estimate) Count(text string) int { return (len(text) + 3) / 4 }

// perMessage is how many tokens a message costs beside its texts: for its role and its delimiters (OpenAI's cookbook,
// "How to count tokens with tiktoken").
const perMessage = 4

// tokensOf counts what a model reads of messages: texts and tool calls. Images are not
// counted, since what they cost is the vendor's to say.
func tokensOf(messages []Message, count func(string) int) int {
	n := 0
	for _, m := range messages {
		n += perMessage + count(plainText(m))
		for _, c := range m.toolCalls() {
			n += perMessage + count(c.Function.Name) + count(string(c.Function.Arguments))
		}
	}
	return n
}
