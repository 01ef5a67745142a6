package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/turnledger/turnledger/services/client"
)

var (
	errOtherQuestion = errors.New("the log holds this turn with another question: " +
		"give a conversation that was changed an id of its own")
	errOtherAnswer = errors.New("the log holds this turn with another answer: " +
		"give a conversation that was changed an id of its own")
)

// unreachable: no server answers, so that the next lines would not go in either.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

// failed explains the error of a call.
func (im *importer) failed(ctx context.Context, err error) error {
	why := im.Explain(ctx, err)
	if _, refused := errors.AsType[*client.Error](err); refused || errors.Is(err, client.ErrAnswer) {
		return why
	}
	return &unreachable{why}
}

func (im *importer) store() client.SessionStore {
	if im.answered.Load() {
		return im.Later
	}
	return im.First
}

// record writes the turns one after the other, since their order is that of their
// starts.
func (im *importer) record(ctx context.Context, turns []Turn) error {
	for i, t := range turns {
		there, err := im.turn(ctx, t)
		switch {
		case err != nil:
			return fmt.Errorf("turn %d: %w", i+1, err)
		case there:
			im.count(func(s *Summary) { s.There++ })
		default:
			im.count(func(s *Summary) { s.Recorded++ })
		}
	}
	return nil
}

// turn records a turn, and reports whether all of it was there.
func (im *importer) turn(ctx context.Context, t Turn) (there bool, err error) {
	turn, err := im.store().StartTurn(ctx, t.Start)
	if err != nil {
		return false, im.failed(ctx, err)
	}
	im.answered.Store(true)
	asks := half{t.Start.QuestionNeutral, t.Start.QuestionTranslated, t.Start.QuestionMessages}
	stands := half{turn.QuestionNeutral, turn.QuestionTranslated, turn.QuestionMessages}
	if turn.Duplicate && turn.Status != "redacted" && !asks.same(stands) {
		return false, errOtherQuestion
	}
	if t.Answer == nil {
		return turn.Duplicate, nil
	}
	answer := *t.Answer
	answer.TurnID = turn.TurnID
	again, err := im.store().FinalizeTurn(ctx, answer)
	if errors.Is(err, &client.Error{Code: "turn_redacted"}) {
		return turn.Duplicate, nil // it was there, and is to stay away
	}
	if err != nil {
		return false, im.failed(ctx, err)
	}
	says := half{answer.AnswerNeutral, answer.AnswerTranslated, answer.AnswerMessages}
	stands = half{again.AnswerNeutral, again.AnswerTranslated, again.AnswerMessages}
	if again.Duplicate && again.Status != "redacted" && !says.same(stands) {
		return false, errOtherAnswer
	}
	return turn.Duplicate && again.Duplicate, nil
}

// same reports whether the half in the log is the imported one.
func (h half) same(stands half) bool {
	return cmp.Or(h.neutral, h.translated) == stands.neutral && h.translated == stands.translated &&
		slices.EqualFunc(h.messages, stands.messages, func(is, was json.RawMessage) bool {
			v := valueOf(is)
			return v != nil && reflect.DeepEqual(v, valueOf(was))
		})
}

// valueOf reads any JSON, numbers as they are written: some are too large for a float.
func valueOf(raw json.RawMessage) (v any) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}
