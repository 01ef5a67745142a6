package contextbuilder

import (
	"slices"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// mend turns a tool call or result into text if its other half stands in a turn that the prompt may not show: a
// redacted turn, a pending one, or one before a boundary. The vendors refuse a call without its result. A call or
// result that was recorded without its other half stays as it came. places holds the place of each message's turn.
func mend(list []message.Message, places []uint64, calls, results []message.End, unseen []hidden) {
	for _, c := range calls {
		answered := func(h hidden) bool {
			return h.place > places[c.At] && (h.redacted || slices.Contains(h.answers, c.ID))
		}
		if slices.ContainsFunc(unseen, answered) {
			list[c.At] = list[c.At].CallAsText(c.ID)
		}
	}
	for _, r := range results {
		called := func(h hidden) bool {
			return h.place < places[r.At] && (h.redacted || slices.Contains(h.calls, r.ID))
		}
		if slices.ContainsFunc(unseen, called) {
			list[r.At] = list[r.At].ResultAsText(r.ID)
		}
	}
}

// hidden is a turn that a prompt may not show, with the ids of its calls and results. The ids of an erased turn are
// unknown, so any id may be its own.
type hidden struct {
	place          uint64
	redacted       bool
	calls, answers []string
}

// unseen returns the turns of a reading that may not be shown.
func unseen(r services.Reading, shown []*session.Turn) (out []hidden) {
	seen := make(map[uint64]bool, len(shown))
	for _, t := range shown {
		seen[t.Place] = true
	}
	for _, t := range r.RedactedLater {
		out = append(out, hidden{place: t.Place, redacted: true})
	}
	for _, t := range r.State.Turns {
		if seen[t.Place] {
			continue
		}
		h := hidden{place: t.Place, redacted: t.Status == session.Redacted}
		var list []message.Message
		if t.Question != nil {
			list = message.ParseList(t.Question.QuestionMessages)
		}
		if t.Answer != nil {
			list = append(list, message.ParseList(t.Answer.AnswerMessages)...)
		}
		for _, m := range list {
			h.calls, h.answers = append(h.calls, m.Calls()...), append(h.answers, m.Answers()...)
		}
		out = append(out, h)
	}
	return out
}

// endsWith reports whether the session ends with the answer of the turn at a place, for example because the turn waits
// for a tool's result.
func endsWith(s *session.State, place uint64) bool {
	last := s.Turns[len(s.Turns)-1]
	_, _, inherited := s.Origin(last, 0)
	return !inherited && last.Place == place && last.Last() == s.Applied
}
