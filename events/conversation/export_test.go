package conversation

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
