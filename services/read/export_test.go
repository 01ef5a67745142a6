package read

import "github.com/turnledger/turnledger/events"

// Listed returns the texts of a session that are kept since they were listed.
func (r *Reader) Listed(id string) (all []string) {
	t, _ := r.texts.get(id)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.of {
		x := events.TextsOf(one.Fact)
		if x.Question != nil {
			all = append(all, x.Question.QuestionNeutral)
		}
		if x.Answer != nil {
			all = append(all, x.Answer.AnswerNeutral)
		}
	}
	return all
}

// ListedBytes returns the weight of all such texts, and what it may be.
func (r *Reader) ListedBytes() (weight, most int) {
	r.texts.mu.Lock()
	defer r.texts.mu.Unlock()
	return r.texts.bytes, r.texts.most
}
