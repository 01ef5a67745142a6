package history

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

var _ services.TurnLookup = (*Service)(nil)

// FindTurn implements services.TurnLookup.
func (s *Service) FindTurn(ctx context.Context, sessionID string, turn uuid.UUID) (services.FoundTurn, error) {
	if err := conversation.ValidIDs("session_id", sessionID); err != nil {
		return services.FoundTurn{}, err
	}
	d, err := s.writing(sessionID).standing(ctx, 0, func(st *conversation.State) conversation.Decision {
		return conversation.Decision{Turn: st.Turn(turn)}
	})
	switch {
	case err != nil:
		return services.FoundTurn{}, err
	case d.Turn == nil:
		return services.FoundTurn{}, conversation.ErrTurnNotFound
	}
	return services.FoundTurn{Turn: d.Turn, Head: d.head}, nil
}

// looked calls look with the session as the log has it now, or, if known is above 0, as it was at that sequence or
// later.
func (w *writing) looked(ctx context.Context, known uint64, look decider) (decided, error) {
	if err := w.upTo(ctx, known); err != nil {
		return decided{}, err
	}
	for {
		x, err := w.current(ctx)
		if err != nil {
			return decided{}, err
		}
		d := x.decide(look)
		if !w.lacksHalf(d) {
			return d, nil
		}
		if err := w.folded(ctx, d.applied+1); err != nil {
			return decided{}, err
		}
	}
}

// upTo folds what the log holds up to a sequence, or, if that is 0, all that it holds now.
func (w *writing) upTo(ctx context.Context, known uint64) error {
	if known == 0 {
		_, err := w.refresh(ctx)
		return err
	}
	w.known.fresh, w.known.head = true, known
	return w.settle(ctx, known)
}

// standing is looked for readers: it fails with conversation.ErrSessionErased if the session was erased, or the
// identity that it, or the root of the branch that it is, belongs to.
func (w *writing) standing(ctx context.Context, known uint64, look decider) (decided, error) {
	d, err := w.looked(ctx, known, look)
	if err != nil {
		return d, err
	}
	if root := d.head.Fork().Root; root != "" && d.head.Identity == "" {
		nothing := func(*conversation.State) (d conversation.Decision) { return d }
		of, err := w.Service.writing(root).looked(ctx, 0, nothing)
		if err != nil {
			return d, err
		}
		d.head.Identity = of.head.Identity
	}
	gone, err := w.erasedIdentity(ctx, d)
	if err == nil && (gone != nil || d.head.Erased != 0) {
		err = conversation.ErrSessionErased
	}
	return d, err
}

// TurnsBeside implements services.TurnLookup.
func (s *Service) TurnsBeside(ctx context.Context, ask services.BesideAsk) (services.TurnsBeside, bool, error) {
	if err := conversation.ValidIDs("session_id", ask.SessionID); err != nil {
		return services.TurnsBeside{}, false, err
	}
	w := s.writing(ask.SessionID)
	var c chosen
	_, err := w.standing(ctx, ask.Known, func(st *conversation.State) (d conversation.Decision) {
		c = choose(st, w.partition, ask)
		return d
	})
	if err != nil || !c.ok {
		return services.TurnsBeside{}, false, err
	}
	there, err := w.fill(ctx, c)
	if err != nil || !there {
		return services.TurnsBeside{}, false, err
	}
	return services.TurnsBeside{Turns: c.turns, Partition: w.partition, More: c.more}, true, nil
}

// chosen are turns that stand side by side, oldest first, without their texts.
type chosen struct {
	turns []*conversation.Turn
	// next is the place of the turn behind them, or above all places if there is none.
	next uint64
	// more: there are further ones in the direction that was asked for. ok: the state can answer.
	more, ok bool
}

// choose chooses the turns that were asked for.
func choose(st *conversation.State, partition int, ask services.BesideAsk) (c chosen) {
	if !st.Found() || st.Fork().Root != "" {
		return c
	}
	brought := func(t *conversation.Turn) bool {
		return listed(st, t) && slices.Contains([]uint64{t.Started, t.Final, t.PrunedAt()}, ask.At.Seq)
	}
	var from *conversation.Turn
	step, at := 1, 0
	if ask.Back {
		step, at = -1, len(st.Turns)-1
	}
	if ask.At.Seq > 0 {
		if at = slices.IndexFunc(st.Turns, brought); at < 0 || ask.At.Partition != partition {
			return c
		}
		from = st.Turns[at]
	}
	c.ok, c.next = true, math.MaxUint64
	for messages := 0; at >= 0 && at < len(st.Turns) && !c.more; at += step {
		t := st.Turns[at]
		if !listed(st, t) {
			continue
		}
		if c.more = t != from && messages >= ask.Messages; c.more {
			continue
		}
		own := *t
		if c.turns = append(c.turns, &own); t != from {
			messages += t.LeastMessages()
		}
	}
	if ask.Back {
		slices.Reverse(c.turns)
	}
	if n := len(c.turns); n > 0 {
		i, _ := slices.BinarySearchFunc(st.Turns, c.turns[n-1].Place+1, func(t *conversation.Turn, place uint64) int {
			return cmp.Compare(t.Place, place)
		})
		if i < len(st.Turns) {
			c.next = st.Turns[i].Place
		}
	}
	return c
}

// listed reports whether a turn is one that was not taken back since the session's last reset.
func listed(st *conversation.State, t *conversation.Turn) bool {
	return t.Place > st.ResetAt && (t.Status == conversation.Pending || t.Status == conversation.Finalized)
}

// fill reads the texts of turns from the log. It reports whether it found all: an erasure may have come first.
func (w *writing) fill(ctx context.Context, c chosen) (bool, error) {
	if len(c.turns) == 0 {
		return true, nil
	}
	// Mostly all of a turn stands before the next one, so one read brings most of it.
	facts := map[uint64]events.Fact{}
	for e, err := range w.log.Session(ctx, w.id, c.turns[0].Place-1, c.next-1) {
		if err != nil {
			return false, err
		}
		facts[e.Position.Seq] = e.Fact
	}
	for _, t := range c.turns {
		var brought []events.Fact
		for _, seq := range t.Sources() {
			f, read := facts[seq]
			if !read {
				e, found, err := w.log.At(ctx, events.Position{Partition: w.partition, Seq: seq})
				if err != nil || !found {
					return false, err
				}
				f = e.Fact
			}
			brought = append(brought, f)
		}
		t.Question, t.Answer, t.AnswerMetadata = nil, nil, nil
		w.cfg.Rules.Fill(t, brought...)
	}
	return true, nil
}
