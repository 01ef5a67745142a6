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

// fresh returns an input without what turns of a reading have already, as they were at a sequence. Of two turns that
// make a call of the same id, the newer counts.
func (s *Service) fresh(input []items.Item, r services.Reading, until uint64) []items.Item {
	if !maySayAgain(input) {
		return input
	}
	calls := map[string]bool{} // whose turn was not met yet
	for _, i := range input {
		calls[i.CallID()] = true
	}
	delete(calls, "")
	again := sentAgain{input: input, drop: make([]bool, len(input))}
	for _, t := range slices.Backward(r.State.Turns) {
		session, partition, inherited := r.State.Origin(t, r.Position.Partition)
		if len(calls) == 0 || !r.State.Shown(t) {
			continue
		}
		if !inherited { // what came later has no calls then
			t = t.Until(until, t.Final != 0 && t.Final <= until)
		}
		again.compare(s.cfg.IDs.OfTurn(session, partition, t), calls)
	}
	return again.left()
}

// sentAgain is an input that is compared with turns, newest first. drop marks what of it a turn has.
type sentAgain struct {
	input []items.Item
	drop  []bool
	// turn that the input is compared with, and the questions of those whose calls have outputs in the input.
	turn      []items.Item
	questions [][]items.Item
}

// compare marks what a turn has, for those of the calls that it makes, and takes them from the calls.
func (a *sentAgain) compare(turn []items.Item, calls map[string]bool) {
	a.turn = turn
	answered := false
	for _, i := range turn {
		if id := i.CallID(); i.IsCall() && calls[id] {
			delete(calls, id)
			answered = a.dropCall(id) || answered
		}
	}
	a.dropSaid()
	if answered {
		a.questions = append(a.questions, slices.DeleteFunc(slices.Clone(turn), func(i items.Item) bool {
			return !i.Asks()
		}))
	}
}

// left returns what is not marked, without the questions that it begins with. If nothing is, it returns all calls and
// outputs.
func (a *sentAgain) left() (left []items.Item) {
	for _, q := range slices.Backward(a.questions) { // the oldest first
		at := max(0, slices.Index(a.drop, false))
		if slices.EqualFunc(q, a.input[at:min(len(a.input), at+len(q))], saysTheSame) {
			for n := range q {
				a.drop[at+n] = true
			}
		}
	}
	all := !slices.Contains(a.drop, false)
	for n, i := range a.input {
		if !a.drop[n] || all && i.CallID() != "" {
			left = append(left, i)
		}
	}
	return left
}

// saysTheSame reports whether an item that asks says what another one does.
func saysTheSame(q, i items.Item) bool {
	return i.Asks() && i.ByUser() == q.ByUser() && i.Words() == q.Words()
}

// has reports whether an item of the input is part of the turn's answer.
func (a *sentAgain) has(n int) bool {
	return !a.input[n].Asks() && slices.ContainsFunc(a.turn, a.input[n].Repeats)
}

// dropCall marks the outputs of a call that the turn has, as far as it does not wait for another one (some models use
// an id again), and the call itself, if what is left are the outputs that the turn waits for. A call with its output
// that stands behind something new is the caller's own, of the same id. It reports whether there are outputs.
func (a *sentAgain) dropCall(id string) bool {
	made, given := ofCall(a.turn, id)
	calls, outputs := ofCall(a.input, id)
	waits, left := max(0, len(made)-len(given)), len(outputs)
	if left == 0 || waits == 0 && len(calls) > 0 && !a.leads(calls[0]) {
		return false
	}
	for _, n := range outputs {
		if left > waits && a.has(n) {
			a.drop[n] = true
			left--
		}
	}
	for _, n := range calls {
		a.drop[n] = left <= waits && a.has(n)
	}
	return true
}

// ofCall returns where the calls of an id are in a list, and where their outputs.
func ofCall(list []items.Item, id string) (calls, outputs []int) {
	for n, i := range list {
		switch {
		case i.CallID() != id:
		case i.IsCall():
			calls = append(calls, n)
		case i.IsOutput():
			outputs = append(outputs, n)
		}
	}
	return calls, outputs
}

// leads reports whether nothing new stands before an item of the input.
func (a *sentAgain) leads(before int) bool {
	for n := range before {
		same := func(i items.Item) bool { return i.Asks() && saysTheSame(i, a.input[n]) }
		if !a.drop[n] && !a.said(n) && !slices.ContainsFunc(a.turn, same) {
			return false
		}
	}
	return true
}

// said reports whether an item of the input, which is neither call nor output, is part of the turn's answer.
func (a *sentAgain) said(n int) bool { return a.input[n].CallID() == "" && a.has(n) }

// dropSaid marks what the model said beside what is marked.
func (a *sentAgain) dropSaid() {
	for n := 1; n < len(a.drop); n++ {
		a.drop[n] = a.drop[n] || a.drop[n-1] && a.said(n)
	}
	for n := len(a.drop) - 1; n > 0; n-- {
		a.drop[n-1] = a.drop[n-1] || a.drop[n] && a.said(n-1)
	}
}
