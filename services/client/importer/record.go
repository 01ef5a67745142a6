package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services/client"
)

var (
	errOtherQuestion = errors.New("the log holds this turn with another question: " +
		"give a conversation that was changed an id of its own")
	errOtherAnswer = errors.New("the log holds this turn with another answer: " +
		"give a conversation that was changed an id of its own")
)

// unreachable: no server answers, so the next lines would fail too.
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

func (im *importer) store() Store {
	if im.answered.Load() {
		return im.Later
	}
	return im.First
}

// imported is a line on its way into the log.
type imported struct {
	*line
	// done is how many of its turns, from the first on, are recorded.
	done int
	// careful: a turn of it stood, or may be refused. The rest goes turn by turn, each only if the one before is taken.
	careful bool
}

// maxTogether bounds the bytes of a turn that goes with others. One that is larger may be refused.
const maxTogether = 768 << 10

// refusable reports whether a server may refuse a turn for what it holds.
func refusable(t client.WholeTurn) bool {
	start := decide.Start{SessionID: t.SessionID, RequestID: t.RequestID, Question: events.Question{
		QuestionNeutral: t.QuestionNeutral, QuestionTranslated: t.QuestionTranslated,
		QuestionMessages: list(t.QuestionMessages),
	}}
	size := len(t.QuestionNeutral) + len(t.QuestionTranslated) + len(start.Question.QuestionMessages)
	if a := t.Answer; a != nil {
		start.Answer = &events.Answer{
			AnswerNeutral: a.AnswerNeutral, AnswerTranslated: a.AnswerTranslated,
			AnswerMessages: list(a.AnswerMessages),
		}
		size += len(a.AnswerNeutral) + len(a.AnswerTranslated) + len(start.Answer.AnswerMessages)
	}
	_, _, err := decide.Policy{}.NormalStart(start)
	return err != nil || size > maxTogether || size > likelySmall && len(encode(t)) > bytesOfTurn
}

func list(messages []json.RawMessage) json.RawMessage {
	if messages == nil {
		return nil
	}
	raw, _ := json.Marshal(messages) // each was read as JSON
	return raw
}

// record records conversations, each with its own error. First all first turns go together. A conversation whose first
// turn is new is new, so the rest of it follows with those of the others. Where a turn stood, what stands is compared.
// It fails if the run must end.
func (im *importer) record(ctx context.Context, all []*imported) error {
	if err := im.open(ctx, all); err != nil {
		return err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c *imported) bool { return c.err != nil })
	for _, most := range []int{1, math.MaxInt} {
		if err := im.together(ctx, all, most); err != nil {
			return err
		}
	}
	return eachOf(all, func(c *imported) error {
		if c.err == nil {
			c.err = im.turnByTurn(ctx, c)
		}
		if c.err == nil {
			c.err = im.correct(ctx, c)
		}
		return c.err
	})
}

// open does what comes before the turns.
func (im *importer) open(ctx context.Context, all []*imported) error {
	return eachOf(all, func(c *imported) error {
		if c.line.open == nil {
			return nil
		}
		if err := c.line.open(ctx, im.store()); err != nil {
			return im.failed(ctx, err)
		}
		im.answered.Store(true)
		return nil
	})
}

// eachOf does something for each conversation, some of them at once, and keeps each one's error. It fails if the run
// must end.
func eachOf(all []*imported, do func(*imported) error) error {
	var g errgroup.Group
	g.SetLimit(carefulAtOnce)
	for _, c := range all {
		g.Go(func() error {
			c.err = do(c)
			if _, lost := errors.AsType[*unreachable](c.err); lost {
				return c.err
			}
			return nil
		})
	}
	return g.Wait()
}

// carefulAtOnce bounds the conversations of one batch that have calls of their own at the same time.
const carefulAtOnce = 16

// together records up to so many turns of each conversation by one call. It leaves turns that stand as they are.
func (im *importer) together(ctx context.Context, all []*imported, most int) error {
	var turns []client.WholeTurn
	var of []*imported
	for _, c := range all {
		rest := c.turns[c.done:]
		for _, t := range rest[:min(most, len(rest))] {
			if c.careful = c.careful || refusable(t); c.careful {
				break
			}
			turns, of = append(turns, t), append(of, c)
		}
	}
	if len(turns) == 0 {
		return nil
	}
	done, err := im.store().RecordNewTurns(ctx, turns)
	if err == nil {
		im.answered.Store(true)
	}
	for i, r := range done { // those that were answered before a request failed, too
		switch c := of[i]; {
		case c.err != nil || c.careful:
		case r.Err != nil:
			c.err = fmt.Errorf("turn %d: %w", c.done+1, im.failed(ctx, r.Err))
		case r.Status != http.StatusCreated:
			c.careful = true
		default:
			im.recorded(c)
			im.drop(r.DroppedMetadata)
		}
	}
	if err != nil {
		return im.refused(of, im.failed(ctx, err))
	}
	return nil
}

// refused notes an error of a whole request at its conversations. It returns an error if the run must end.
func (im *importer) refused(of []*imported, err error) error {
	if _, lost := errors.AsType[*unreachable](err); lost {
		return err
	}
	for _, c := range of {
		c.err = cmp.Or(c.err, err)
	}
	return nil
}

// recorded counts a turn that this import has recorded.
func (im *importer) recorded(c *imported) {
	c.done++
	im.count(func(s *Summary) { s.Recorded++ })
}

// existed counts a turn that the log had already.
func (im *importer) existed(c *imported) {
	c.done++
	im.count(func(s *Summary) { s.Existed++ })
}

// turnByTurn records the rest of a conversation, up to the first turn that is not taken.
func (im *importer) turnByTurn(ctx context.Context, c *imported) error {
	for c.done < len(c.turns) {
		there, err := im.turn(ctx, c.turns[c.done])
		if err != nil {
			return fmt.Errorf("turn %d: %w", c.done+1, err)
		}
		if there {
			im.existed(c)
		} else {
			im.recorded(c)
		}
	}
	return nil
}

// correct makes the corrections of a conversation whose turns are recorded.
func (im *importer) correct(ctx context.Context, c *imported) error {
	for _, r := range c.corrections {
		t, err := im.store().Correct(ctx, r)
		switch {
		case errors.Is(err, &client.Error{Code: "turn_redacted"}):
			im.existed(c) // it stays redacted
		case err != nil:
			return fmt.Errorf("correction of turn %s: %w", r.TurnID, im.failed(ctx, err))
		case t.Duplicate:
			im.existed(c)
		default:
			im.recorded(c)
		}
	}
	return nil
}

// turn records a turn, and reports whether all of it was there. What is new comes as one fact, so that no end of this
// process leaves a question without its answer. Only a turn that is too large for one line of a request has two calls.
func (im *importer) turn(ctx context.Context, t client.WholeTurn) (there bool, err error) {
	done, err := im.store().RecordNewTurns(ctx, []client.WholeTurn{t})
	if err == nil {
		err = done[0].Err
	}
	switch {
	case err == nil && done[0].Status == http.StatusCreated:
		im.answered.Store(true)
		im.drop(done[0].DroppedMetadata)
		return false, nil
	case err != nil && !errors.Is(err, &client.Error{Code: "body_too_large"}):
		return false, im.failed(ctx, err)
	}
	return im.compared(ctx, t)
}

// compared compares a turn with what stands, and records what the log lacks of it.
func (im *importer) compared(ctx context.Context, t client.WholeTurn) (there bool, err error) {
	turn, err := im.store().StartTurn(ctx, t.Start)
	if err != nil {
		return false, im.failed(ctx, err)
	}
	im.answered.Store(true)
	im.drop(turn.DroppedMetadata)
	asks := half{t.QuestionNeutral, t.QuestionTranslated, t.QuestionMessages}
	stands := half{turn.QuestionNeutral, turn.QuestionTranslated, turn.QuestionMessages}
	if turn.Duplicate && turn.Status != "redacted" && !stands.cut() && !asks.same(stands) {
		return false, errOtherQuestion
	}
	if t.Answer == nil {
		return turn.Duplicate, nil
	}
	a := t.Answer
	says := half{a.AnswerNeutral, a.AnswerTranslated, a.AnswerMessages}
	again := turn
	if turn.Status == "pending" {
		again, err = im.store().FinalizeTurn(ctx, client.Finalize{
			SessionID: t.SessionID, TurnID: turn.TurnID, AnswerNeutral: a.AnswerNeutral,
			AnswerTranslated: a.AnswerTranslated, AnswerMessages: a.AnswerMessages,
			AnswerTranslatedIsFallback: a.AnswerTranslatedIsFallback,
		})
	}
	if errors.Is(err, &client.Error{Code: "turn_redacted"}) {
		return turn.Duplicate, nil // the turn was redacted, and stays redacted
	}
	if err != nil {
		return false, im.failed(ctx, err)
	}
	stands = half{again.AnswerNeutral, again.AnswerTranslated, again.AnswerMessages}
	if again.Duplicate && again.Status != "redacted" && !stands.cut() && !says.same(stands) {
		return false, errOtherAnswer
	}
	return turn.Duplicate && again.Duplicate, nil
}

// cut reports whether messages of the turn in the log were deleted: what is left of them names its items, and no half
// is empty otherwise. What a file has in their place is the turn's.
func (h half) cut() bool {
	return h.neutral == "" && len(h.messages) == 0 || slices.ContainsFunc(h.messages, func(m json.RawMessage) bool {
		var left struct {
			IDs []any `json:"item_ids"`
		}
		return json.Unmarshal(m, &left) == nil && left.IDs != nil
	})
}

// same reports whether the half in the log equals the imported half.
func (h half) same(stands half) bool {
	return cmp.Or(h.neutral, h.translated) == stands.neutral && h.translated == stands.translated &&
		slices.EqualFunc(h.messages, stands.messages, func(is, was json.RawMessage) bool {
			v := valueOf(is)
			return v != nil && reflect.DeepEqual(v, valueOf(was))
		})
}

// valueOf decodes any JSON. It keeps numbers as they are written, since some are too large for a float.
func valueOf(raw json.RawMessage) (v any) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}
