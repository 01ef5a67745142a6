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
	if slices.ContainsFunc(input, items.Item.IsCall) {
		ask.Shown = lookedBack
	}
	return ask
}

// fresh returns the input without what the turns of a reading have already.
func (s *Service) fresh(input []items.Item, r services.Reading) []items.Item {
	state := r.State
	if len(state.Turns) == 0 {
		return input
	}
	last := state.Turns[len(state.Turns)-1]
	input = withoutRepeated(input, s.cfg.IDs.OfTurn(state.SessionID, r.Position.Partition, last))
	return s.withoutOpenCalls(input, r, ^uint64(0))
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
	if err != nil || !slices.ContainsFunc(input, items.Item.IsCall) {
		return input, err
	}
	reading, err := s.cfg.Sessions.Read(ctx, newest(st.session, input))
	if err != nil {
		return nil, err
	}
	return s.withoutOpenCalls(input, reading, end.Seq), nil
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

// withoutOpenCalls drops the calls of an input that turns of a reading, as they were at a sequence, have made and have
// no output for, if the input has that. What stands right before such a call, and is in its turn, goes with it.
func (s *Service) withoutOpenCalls(input []items.Item, r services.Reading, until uint64) []items.Item {
	drop := make([]bool, len(input))
	for _, t := range r.State.Turns {
		session, partition, inherited := r.State.Origin(t, r.Position.Partition)
		if !r.State.Shown(t) || !inherited && t.Place > until {
			continue
		}
		if !inherited {
			t = t.Until(until, t.Final != 0 && t.Final <= until)
		}
		turn := s.cfg.IDs.OfTurn(session, partition, t)
		for n := range input {
			if !goesOn(input, n, turn) {
				continue
			}
			for k := n; k >= 0 && again(input[k], turn); k-- {
				drop[k] = true
			}
		}
	}
	var left []items.Item
	for n, i := range input {
		if !drop[n] {
			left = append(left, i)
		}
	}
	return left
}

// goesOn reports whether an item of an input is a call of a turn that has no output, and the input brings that.
func goesOn(input []items.Item, n int, turn []items.Item) bool {
	call := input[n]
	answers := func(i items.Item) bool { return i.IsOutput() && i.CallID() == call.CallID() }
	return call.IsCall() && again(call, turn) &&
		slices.ContainsFunc(input, answers) && !slices.ContainsFunc(turn, answers)
}

// again reports whether an item is part of a turn's answer.
func again(i items.Item, turn []items.Item) bool {
	return !i.Asks() && slices.ContainsFunc(turn, i.Repeats)
}
