package rebuild

import (
	"context"
	"errors"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Verification is one comparison of a view with the log.
type Verification struct {
	log   *jetlog.Log
	view  projections.View
	cfg   Config
	parts []*progress
}

// NewVerification makes a verification; it does no I/O.
func NewVerification(log *jetlog.Log, view projections.View, cfg Config) *Verification {
	// The log is folded from its beginning, even if the view began later.
	cfg.Start = nil
	v := &Verification{log: log, view: view, cfg: withDefaults(cfg, log)}
	for k := range log.Partitions() {
		v.parts = append(v.parts, &progress{partition: k})
	}
	return v
}

// Run folds the log again up to the view's position and passes each difference to report. It returns how many sessions
// it compared: all of them, or sample of the sessions that the view holds. The view may continue meanwhile.
func (v *Verification) Run(ctx context.Context, sample int, report func(projections.Difference) error) (sessions int,
	err error) {
	defer projections.Wrap(&err, "verify %s", v.view.Name())
	ref, err := v.view.NewReference(ctx, v.log.Partitions())
	if err != nil {
		return 0, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropDeadline)
		defer cancel()
		err = errors.Join(err, ref.Drop(ctx))
	}()
	err = each(ctx, v.log, ref, v.cfg, nil, v.parts, func(ctx context.Context, fills []*fill) (err error) {
		sessions, err = ref.Compare(ctx, sample, logFold{v, fills}, report)
		return err
	})
	return sessions, err
}

// Progress returns how many events were folded, and how many there are.
func (v *Verification) Progress() (done, of uint64) {
	for _, p := range v.parts {
		p.mu.Lock()
		done, of = done+p.seq, of+max(p.head, p.seq)
		p.mu.Unlock()
	}
	return done, of
}

// logFold folds the log for a reference.
type logFold struct {
	*Verification
	fills []*fill
}

var _ projections.Fold = logFold{}

// Reach implements projections.Fold.
func (w logFold) Reach(ctx context.Context, at events.Position) error {
	return w.fills[at.Partition].reach(ctx, at.Seq)
}

// State implements projections.Fold.
func (w logFold) State(ctx context.Context, sessionID string, at events.Position) (*session.State, error) {
	rules := w.cfg.Rules
	rules.Slim = false
	return session.Folded(sessionID, rules, w.log.Session(ctx, sessionID, 0, at.Seq))
}

// Session implements projections.Fold.
func (w logFold) Session(ctx context.Context, sessionID string, at events.Position) error {
	f := w.fills[at.Partition]
	judge := projections.NewJudge(w.log, w.cfg.Rules, 1)
	b := projections.Batch{From: f.At, To: f.At}
	b.To.Seq = at.Seq
	for e, err := range w.log.Session(ctx, sessionID, 0, at.Seq) {
		if err != nil {
			return err
		}
		j, err := judge.Judge(ctx, e)
		if err != nil {
			return err
		}
		b.Events = append(b.Events, j)
	}
	return f.Commit(ctx, b)
}
