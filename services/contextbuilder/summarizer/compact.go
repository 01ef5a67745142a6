package summarizer

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// Through returns the summary of a session's turns from the first visible one through a finalized one. If none stands,
// it is made and recorded, over others that cover parts of the turns.
func (h *Handler) Through(ctx context.Context, sessionID string, turn uuid.UUID) (out services.Written, err error) {
	for replanned := 0; ; {
		reading, err := h.cfg.Sessions.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
		if err != nil {
			return out, err
		}
		p, err := planThrough(reading.State, turn)
		switch {
		case err != nil:
			return out, err
		case p.read == nil:
			out.Summary, out.Text = p.standing.ID, p.standing.Fact.SummaryNeutral
			return out, nil
		}
		made, err := h.make(ctx, p)
		out.Usage = out.Usage.Plus(made.Usage)
		if _, refused := errors.AsType[*decide.Refusal](err); refused && replanned < tries {
			replanned++ // what the model has read has changed meanwhile
			continue
		}
		if err != nil {
			return out, err
		}
	}
}

// planThrough returns what is to be read next for a summary through a turn: nothing, if it stands.
func planThrough(s *session.State, turn uuid.UUID) (*plan, error) {
	var final []*session.Turn
	at := -1
	for _, t := range s.Turns {
		if s.Shown(t) && t.Status == session.Finalized && at < 0 {
			if final = append(final, t); t.ID == turn {
				at = len(final)
			}
		}
	}
	if at < 0 {
		return nil, decide.ErrTurnNotFound
	}
	p := &plan{session: s.SessionID}
	from := p.behind(s, at)
	if from == at {
		return p, nil
	}
	to := contextbuilder.WholeThrough(final, min(at, from+chunk))
	if to <= from {
		to = at
	}
	p.cover(s, final, from, to)
	return p, nil
}

// Condense returns a summary of messages, which is not recorded.
func (h *Handler) Condense(ctx context.Context, messages []message.Message) (out services.Written, err error) {
	for part := range slices.Chunk(messages, 2*chunk) {
		q := quoteAll(part, out.Text)
		if out.Text, err = h.write(ctx, q); err != nil {
			return out, err
		}
		out.Usage = out.Usage.Plus(h.used(q, out.Text))
	}
	return out, nil
}

// used returns what a summary cost, as its texts are counted.
func (h *Handler) used(q quoted, text string) session.Usage {
	return session.Usage{Input: int64(h.cfg.Count(q.text())), Output: int64(h.cfg.Count(text))}
}
