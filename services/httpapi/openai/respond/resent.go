package respond

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// With the outputs of tools some clients send what the history has already: the user's message, or the calls and what
// the model said before them. It stands once. (replay is for a history that is sent as a whole.)

// newest asks for the turns of a session that an input may say again.
func newest(sessionID string, input []items.Item) services.Ask {
	ask := services.Ask{SessionID: sessionID, Shown: 1, Pending: true}
	if manyOfTools(input) {
		ask.Shown = lookedBack
	}
	return ask
}

// manyOfTools reports whether an input has a call, or more than one output. One output alone is never there already.
func manyOfTools(input []items.Item) bool {
	outputs := 0
	for _, i := range input {
		if i.IsOutput() {
			outputs++
		}
	}
	return outputs > 1 || slices.ContainsFunc(input, items.Item.IsCall)
}

// fresh returns the input without what the turns of a reading have already.
func (s *Service) fresh(input []items.Item, r services.Reading) []items.Item {
	state := r.State
	if len(state.Turns) == 0 {
		return input
	}
	last := state.Turns[len(state.Turns)-1]
	input = withoutRepeated(input, s.cfg.IDs.OfTurn(state.SessionID, r.Position.Partition, last))
	return s.withoutKnown(input, r, ^uint64(0))
}

// freshBehind is fresh for an input that goes on with a step, which ends at a position.
func (s *Service) freshBehind(
	ctx context.Context, input []items.Item, st step, started uint64, end events.Position,
) ([]items.Item, error) {
	if !slices.ContainsFunc(input, items.Item.IsOutput) {
		return input, nil
	}
	at := events.Position{Partition: st.Position.Partition, Seq: started}
	beside, _, err := s.cfg.Lookup.TurnsBeside(ctx, services.BesideAsk{SessionID: st.session, At: at})
	for _, t := range beside.Turns {
		input = withoutRepeated(input, s.cfg.IDs.OfTurn(t.SessionID, t.Partition, t.Turn))
	}
	if err != nil || !manyOfTools(input) {
		return input, err
	}
	reading, err := s.cfg.Sessions.Read(ctx, newest(st.session, input))
	if err != nil {
		return nil, err
	}
	return s.withoutKnown(input, reading, end.Seq), nil
}

// withoutRepeated drops the run of items at the beginning of an input that are the last turn's question, if the input
// also holds the output of a call of that turn.
func withoutRepeated(input, last []items.Item) []items.Item {
	calls := map[string]bool{}
	var question []items.Item
	for _, i := range last {
		if i.IsCall() {
			calls[i.CallID()] = true
		}
		if i.Asks() {
			question = append(question, i)
		}
	}
	answers := false
	for _, i := range input {
		answers = answers || i.IsOutput() && calls[i.CallID()]
	}
	n := len(question)
	if !answers || n == 0 || len(input) < n {
		return input
	}
	for k, q := range question {
		if i := input[k]; !i.Asks() || i.ByUser() != q.ByUser() || i.Words() != q.Words() {
			return input
		}
	}
	return input[n:]
}

// withoutKnown drops the calls and outputs of an input that turns of a reading have already, as they were at a
// sequence, and what the model said beside them. If nothing else is in the input, it stays as it is.
func (s *Service) withoutKnown(input []items.Item, r services.Reading, until uint64) []items.Item {
	if !manyOfTools(input) {
		return input
	}
	wanted := map[string]bool{} // calls whose turn was not met yet; of two turns that make one, the newer counts
	for _, i := range input {
		wanted[i.CallID()] = true
	}
	delete(wanted, "")
	again := sentAgain{input: input, drop: make([]bool, len(input))}
	for _, t := range slices.Backward(r.State.Turns) {
		session, partition, inherited := r.State.Origin(t, r.Position.Partition)
		if len(wanted) == 0 || !r.State.Shown(t) || !inherited && t.Place > until {
			continue
		}
		if !inherited {
			t = t.Until(until, t.Final != 0 && t.Final <= until)
		}
		again.turn = s.cfg.IDs.OfTurn(session, partition, t)
		for _, i := range again.turn {
			if id := i.CallID(); i.IsCall() && wanted[id] {
				delete(wanted, id)
				again.dropCall(id)
			}
		}
		again.dropSaid()
	}
	return again.left()
}

// sentAgain is an input that is compared with a turn. drop marks what of it is in a turn already.
type sentAgain struct {
	input, turn []items.Item
	drop        []bool
}

// left returns the input without what is marked, unless that is all of it.
func (a *sentAgain) left() []items.Item {
	if !slices.Contains(a.drop, false) {
		return a.input
	}
	var left []items.Item
	for n, i := range a.input {
		if !a.drop[n] {
			left = append(left, i)
		}
	}
	return left
}

// has reports whether an item of the input is part of the turn's answer.
func (a *sentAgain) has(n int) bool {
	return !a.input[n].Asks() && slices.ContainsFunc(a.turn, a.input[n].Repeats)
}

// dropCall marks the outputs of a call that the turn has, as far as it does not wait for another one (some models use
// an id again), and the call itself, if what is left are the outputs that the turn waits for. A call with its output
// that stands behind something new is the caller's own, of the same id.
func (a *sentAgain) dropCall(id string) {
	made, given := ofCall(a.turn, id)
	calls, outputs := ofCall(a.input, id)
	waits, left := max(0, len(made)-len(given)), len(outputs)
	if left == 0 || waits == 0 && len(calls) > 0 && !a.leads(calls[0]) {
		return
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
		if !a.drop[n] && !a.said(n) {
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
