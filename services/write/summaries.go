package write

import (
	"context"
	"math"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// SummarizeSession records a summary of a session. The same request again is answered with the first summary.
func (s *Service) SummarizeSession(ctx context.Context, c decide.Summarize) (services.Summary, error) {
	c, err := decide.NormalSummarize(c)
	if err != nil {
		return services.Summary{}, err
	}
	w := s.writing(c.Summary.SessionID)
	list, from, err := w.shared(ctx)
	if err != nil {
		return services.Summary{}, err
	}
	defer w.pin()()
	c.Now = time.Now()
	id := events.SummaryID(c.Summary.SessionID, c.Summary.RequestID)
	out := services.Summary{SessionID: c.Summary.SessionID}
	v, err := w.run(ctx, w.deciding, func(st *session.State) decide.Decision {
		if len(list) > 0 {
			st = st.Clone()
			st.Inherit(list, from, math.MaxInt)
		}
		if m := st.Summary(id); m != nil {
			out.Summary = *m
			if w.own.covers(m.At) {
				return decide.Decision{RestsOn: m.At} // what voided it since does not change this answer
			}
		}
		return c.On(st)
	})
	if err != nil {
		return services.Summary{}, err
	}
	if v.summary != nil {
		out.Summary = *v.summary
	}
	out.Position, out.Duplicate = v.position, v.duplicate
	for _, f := range v.facts {
		if own, ok := f.(*events.SessionSummarized); ok && !v.duplicate {
			out.Fact = own
		}
	}
	return out, w.summaryTexts(ctx, &out)
}

// shared returns the sessions of the turns that the session shares as a branch, as they are now.
func (w *writing) shared(ctx context.Context) ([]events.Segment, []*session.State, error) {
	own, err := w.now(ctx, w.id)
	if err != nil {
		return nil, nil, err
	}
	return w.origins(ctx, own.Fork())
}

// summaryTexts reads from the log the texts of a summary that another request made.
func (w *writing) summaryTexts(ctx context.Context, out *services.Summary) error {
	if out.Fact != nil {
		return nil
	}
	var err error
	at := events.Position{Partition: w.partition, Seq: out.At}
	out.Fact, _, err = factAt[*events.SessionSummarized](ctx, w.Service, at, "the summary was voided meanwhile")
	return err
}
