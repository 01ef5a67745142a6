package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// A turn that was pruned carries what is left of its responses in the event that pruned it: the messages, and the
// settings of the events that have left the log.

// prune returns the event that pruned a turn last, with its fact, or nil if it has left the log itself.
func (s *Service) prune(
	ctx context.Context, t *session.Turn, partition int,
) (e events.Recorded, f *events.TurnPruned, err error) {
	e, _, err = s.cfg.Log.At(ctx, events.Position{Partition: partition, Seq: t.PrunedAt()})
	f, _ = e.Fact.(*events.TurnPruned)
	return e, f, err
}

// broughtBy returns the settings that a prune has left of the event at a sequence.
func broughtBy(f *events.TurnPruned, seq uint64) (b events.Brought, found bool) {
	if f == nil {
		return b, false
	}
	n := slices.IndexFunc(f.Brought, func(b events.Brought) bool { return b.Seq == seq })
	if n < 0 {
		return b, false
	}
	return f.Brought[n], true
}

// prunedStep returns a step of a pruned turn, or false if the prune has left nothing of it.
func (s *Service) prunedStep(ctx context.Context, st step, t *session.Turn) (step, bool, error) {
	_, f, err := s.prune(ctx, t, st.Position.Partition)
	if err != nil {
		return st, false, err
	}
	b, found := broughtBy(f, st.Position.Seq)
	if !found || json.Unmarshal(b.Settings, &st.asked) != nil || st.asked.Request == nil {
		return st, false, nil
	}
	st.createdAt, st.first = b.Time, cmp.Or(b.First, st.Position.Seq)
	for _, x := range t.Extensions() {
		if x.Seq == st.Position.Seq && x.Half == events.HalfAnswer {
			input := events.TurnExtended{TurnID: t.ID, ExtensionID: x.ID}
			st.extension = extensionOf(t.ID, input.EventID())
		}
	}
	return st, true, nil
}

// extensionOf returns the id under which the answer to an event extends its turn.
func extensionOf(turn uuid.UUID, eventID string) string {
	return answerPrefix + uuid.NewSHA1(turn, []byte(eventID)).String()
}

// answerPrefix begins the ids of extensions that are answers.
const answerPrefix = "answer."

// prunedAnswer returns what a prune has left of the answer that an event brought.
func (s *Service) prunedAnswer(
	ctx context.Context, t *session.Turn, at events.Position,
) (a recordedAnswer, err error) {
	e, f, err := s.prune(ctx, t, at.Partition)
	if err == nil && f == nil {
		err = services.ErrNoResponse
	}
	if err != nil {
		return a, err
	}
	for _, m := range session.Messages(t, []events.Recorded{e}) {
		if m.First == at.Seq {
			a.messages = append(a.messages, m.Raw)
		}
	}
	a.at = t.FinalizedAt
	if b, found := broughtBy(f, at.Seq); found {
		a.at, a.settings = b.Time, b.Settings
	}
	return a, nil
}

// askedOf returns the messages that a turn held before the answer at a position, as a prune after it has left them.
func (s *Service) askedOf(
	ctx context.Context, t *session.Turn, at events.Position,
) (messages []json.RawMessage, err error) {
	e, f, err := s.prune(ctx, t, at.Partition)
	if f == nil {
		return nil, err
	}
	for _, m := range session.Messages(t, []events.Recorded{e}) {
		if m.First < at.Seq {
			messages = append(messages, m.Raw)
		}
	}
	return messages, err
}
