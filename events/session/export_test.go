package session

import "slices"

// Bare returns a turn as a slim state has it.
func Bare(t Turn) *Turn {
	t.Question, t.Answer, t.AnswerMetadata = nil, nil, nil
	list := slices.Collect(t.extended.back())
	t.extended = nil
	for _, x := range slices.Backward(list) {
		slim := *x
		slim.undone = nil
		t.note(slim)
	}
	return &t
}

// ShareAnswers notes of all extensions that a copy has their answers. Otherwise only the states that were copied would
// say so, and states of the same events would differ.
func (s *State) ShareAnswers() {
	for _, t := range s.Turns {
		for x := range t.extended.back() {
			if x.undone != nil {
				x.undone.shared.Store(true)
			}
		}
	}
}
