package answer

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// DeleteResponse implements services.Responder. A response is its input and its answer: what its call appended stands
// side by side, perhaps in several turns. If that is all of a turn, the turn is redacted.
func (s *Service) DeleteResponse(
	ctx context.Context, id string, who services.Caller, call services.Call,
) (receipt events.Position, err error) {
	receipt, err = s.takeOut(ctx, id, who, call.Name())
	if !errors.Is(err, services.ErrNoResponse) || call.Key == "" && !call.Repeats {
		return receipt, err
	}
	st, _, gone := s.stood(ctx, id, who, services.ErrNoResponse)
	if gone != nil {
		return receipt, gone
	}
	done, again := s.repeatedIn(ctx, st.session, call)
	if errors.Is(again, services.ErrNotRepeated) || errors.Is(again, decide.ErrInvalid) {
		return receipt, err
	}
	return done.Position, again
}

// takeOut takes what a response brought out of its turns. The last event that does so has the name of the call.
func (s *Service) takeOut(
	ctx context.Context, id string, who services.Caller, call string,
) (receipt events.Position, err error) {
	st, found, err := s.find(ctx, id, who, services.ErrNoResponse)
	if err != nil {
		return receipt, err
	}
	before := map[uuid.UUID][]uint64{}
	if st.first < st.Position.Seq {
		reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: st.session, AllTurns: true, Own: true})
		if err != nil {
			return receipt, err
		}
		before = st.before(reading.State)
	}
	for turn, brought := range before {
		if turn == st.TurnID {
			continue
		}
		if receipt, err = s.forget(ctx, st, turn, "", brought); err != nil && !outdone(err) {
			return receipt, err
		}
	}
	at, _ := st.answerAt(found.Turn)
	receipt, err = s.forget(ctx, st, st.TurnID, call, append(before[st.TurnID], st.Position.Seq, at.Seq))
	if outdone(err) {
		err = services.ErrNoResponse
	}
	return receipt, err
}

// outdone reports whether another call has taken out first what this one takes out.
func outdone(err error) bool {
	return errors.Is(err, decide.ErrMessageNotFound) || errors.Is(err, decide.ErrTurnRedacted)
}

// before returns the sequences of the events that the call of the step appended before it, by their turns. They stand
// right before it, and nothing between them.
func (st step) before(of *session.State) map[uuid.UUID][]uint64 {
	out := map[uuid.UUID][]uint64{}
	for _, t := range of.Turns {
		seqs := []uint64{t.Started, t.Final}
		for _, x := range t.Extensions() {
			if x.Half != "" {
				seqs = append(seqs, x.Seq)
			}
		}
		for _, seq := range seqs {
			if st.first <= seq && seq < st.Position.Seq {
				out[t.ID] = append(out[t.ID], seq)
			}
		}
	}
	return out
}

// forget takes the messages out of a turn that the events of some sequences brought.
func (s *Service) forget(
	ctx context.Context, st step, turn uuid.UUID, call string, brought []uint64,
) (receipt events.Position, err error) {
	done, err := s.cfg.Turns.PruneTurn(ctx, decide.Prune{
		SessionID: st.session, TurnID: turn, Call: call, Forget: brought,
		Keep: func(m session.Message) json.RawMessage {
			if slices.Contains(brought, m.First) {
				return nil
			}
			return s.cfg.IDs.Kept(st.session, items.Address{
				Position: events.Position{Partition: st.Position.Partition, Seq: m.Begun},
				Answer:   m.Half == events.HalfAnswer, Message: m.Number,
			}, m.Raw, "")
		},
	})
	return done.Position, err
}
