package contextbuilder

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
)

// Log is what reads need of the log; *jetlog.Log is one.
type Log interface {
	Partitions() int
	Partition(sessionID string) int
	Head(ctx context.Context, partition int) (events.Position, error)
	Last(ctx context.Context, sessionID string) (uint64, error)
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
	IdentityErasure(
		ctx context.Context, identityID string, upTo events.Position,
	) (*events.IdentityErased, events.Position, error)
}

// View is a recent-turns view; every recent.View is one.
type View = recent.Loader

// waiter is a view that tells when it has reached a position.
type waiter interface {
	Wait(ctx context.Context, at events.Position) error
}

// Archive gives the last turns of a linked session that has left the recent view;
// the audit tables are one. State is nil for a session that it does not hold.
type Archive interface {
	SessionTurns(ctx context.Context, sessionID string, limit int) (*conversation.State, events.Position, error)
}

// ReaderConfig of a Reader. View and Archive may be nil.
type ReaderConfig struct {
	Rules   conversation.Rules
	View    View
	Archive Archive
	// Deadline until which a read waits for min_position; 2 s by default.
	Deadline time.Duration
	Now      func() time.Time
	Logger   *slog.Logger
}

// Reader reads sessions. Safe for concurrent use.
type Reader struct {
	log Log
	cfg ReaderConfig
}

var _ services.SessionReader = (*Reader)(nil)

// NewReader makes a reader; it does no I/O.
func NewReader(log Log, cfg ReaderConfig) *Reader {
	cfg.Rules.Slim = false
	if cfg.Deadline == 0 {
		cfg.Deadline = 2 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reader{log: log, cfg: cfg}
}

// Read gives a session, at least as new as all that was acknowledged before the
// call, or as what the caller knows.
func (r *Reader) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	reading, err := r.read(ctx, ask)
	if err != nil {
		return services.Reading{}, err
	}
	return reading, r.forget(ctx, reading.State, reading.Position)
}

// forget closes a session whose identity was erased before a position, which holds all
// that was acknowledged before the read: each session's own erasure follows in the log,
// perhaps later than this read.
func (r *Reader) forget(ctx context.Context, state *conversation.State, at events.Position) error {
	if state.Identity == "" || state.Erased != 0 {
		return nil
	}
	erased, _, err := r.log.IdentityErasure(ctx, state.Identity, at)
	if err == nil && erased != nil {
		state.Forget()
	}
	return err
}

func (r *Reader) read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	head := events.Position{Partition: r.log.Partition(ask.SessionID), Seq: ask.Known}
	if ask.Known == 0 {
		var err error
		if head, err = r.head(ctx, head.Partition, ask.MinPosition); err != nil {
			return services.Reading{}, err
		}
	}
	if r.cfg.View == nil || ask.Whole {
		return r.fromLog(ctx, ask, head)
	}
	reading, ok, err := r.fromView(ctx, ask, head)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return services.Reading{}, ctx.Err() // nobody waits any more: that is no fault of the view
	}
	if err != nil {
		r.cfg.Logger.Warn("the recent view does not answer; the log does", "session_id", ask.SessionID, "err", err)
	}
	if ok {
		return reading, nil
	}
	return r.fromArchive(ctx, ask, head)
}

// head takes the barrier. A position beyond the log is waited for until the
// deadline.
func (r *Reader) head(ctx context.Context, partition int, least []events.Position) (events.Position, error) {
	wait, cancel := context.WithTimeout(ctx, r.cfg.Deadline)
	defer cancel()
	for _, p := range least {
		if p.Partition >= r.log.Partitions() {
			return events.Position{}, fmt.Errorf(
				"%w: the log has no partition %d", services.ErrPositionNotReached, p.Partition,
			)
		}
		for {
			head, err := r.log.Head(wait, p.Partition)
			if err == nil && head.Seq >= p.Seq {
				break
			}
			if err != nil && wait.Err() == nil {
				return events.Position{}, err
			}
			select {
			case <-wait.Done():
				return events.Position{}, fmt.Errorf("%w: %s", services.ErrPositionNotReached, p)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return r.log.Head(ctx, partition)
}

// fromView answers from the view and the tail that it has not seen; ok is false
// where the view can't answer for the session.
func (r *Reader) fromView(ctx context.Context, ask services.Ask, head events.Position) (services.Reading, bool, error) {
	snap, err := r.cfg.View.Load(ctx, ask.SessionID, head.Partition, ask.Shown)
	if err != nil || snap.State == nil {
		return services.Reading{}, false, err
	}
	if snap.Applied.Seq >= head.Seq {
		return services.Reading{
			State: snap.State, Position: snap.Applied, Source: services.FromView,
		}, enough(snap.State, ask), nil
	}
	tail, err := r.tail(ctx, ask.SessionID, snap.Applied.Seq, &head)
	switch {
	case err != nil:
		return services.Reading{}, false, err
	case len(tail) == 0:
		return services.Reading{
			State: snap.State, Position: head, Source: services.FromView,
		}, enough(snap.State, ask), nil
	}
	return r.onTop(ctx, ask, head, tail)
}

// onTop folds the unread tail on the view's turns. A state that has lost turns
// can't tell a new turn from one that it no longer holds, so it is given a moment
// to catch up instead.
func (r *Reader) onTop(
	ctx context.Context, ask services.Ask, head events.Position, tail []events.Recorded,
) (services.Reading, bool, error) {
	snap, err := r.cfg.View.Load(ctx, ask.SessionID, head.Partition, recent.AllTurns)
	if err != nil || snap.State == nil {
		return services.Reading{}, false, err
	}
	if snap.State.Whole {
		for _, e := range tail {
			snap.State.Fold(e)
		}
		return services.Reading{State: snap.State, Position: head, Source: services.FromViewLog}, true, nil
	}
	view, ok := r.cfg.View.(waiter)
	if !ok {
		return services.Reading{}, false, nil
	}
	moment, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := view.Wait(moment, head); err != nil {
		return services.Reading{}, false, nil //nolint:nilerr // the log answers instead
	}
	snap, err = r.cfg.View.Load(ctx, ask.SessionID, head.Partition, ask.Shown)
	if err != nil || snap.State == nil || snap.Applied.Seq < head.Seq {
		return services.Reading{}, false, err
	}
	return services.Reading{
		State: snap.State, Position: snap.Applied, Source: services.FromView,
	}, enough(snap.State, ask), nil
}

// catchUp is how long a read waits for a view that holds only part of a session.
const catchUp = 50 * time.Millisecond

// enough tells whether a state holds as many turns as are asked for, or all that there
// are after the boundary: finalized ones, and pending ones where they are wanted. The last
// finalized turn is one of them, however many questions without an answer came after it.
func enough(s *conversation.State, ask services.Ask) bool {
	if s.Whole {
		return true
	}
	finalized, pending, all := 0, 0, s.ShownFinalized
	if ask.Pending {
		all += s.ShownPending
	}
	for _, t := range s.Turns {
		switch {
		case !s.Shown(t):
		case t.Status == conversation.Finalized:
			finalized++
		case ask.Pending && t.Status == conversation.Pending:
			pending++
		}
	}
	return finalized+pending >= min(ask.Shown, all) && finalized >= min(ask.Shown, s.ShownFinalized, 1)
}

// archivePatience is how long the archive may take; it has an index, and the log has all that
// it has.
const archivePatience = time.Second

// fromArchive answers from the audit tables for a linked session that has left the
// recent view, and from the log for all others.
func (r *Reader) fromArchive(ctx context.Context, ask services.Ask, head events.Position) (services.Reading, error) {
	if r.cfg.Archive == nil {
		return r.fromLog(ctx, ask, head)
	}
	last, err := r.log.Last(ctx, ask.SessionID)
	if err != nil {
		return services.Reading{}, err
	}
	if last == 0 {
		return services.Reading{
			State: conversation.New(ask.SessionID, r.cfg.Rules), Position: head, Source: services.FromLog,
		}, nil
	}
	moment, cancel := context.WithTimeout(ctx, archivePatience)
	defer cancel()
	state, applied, err := r.cfg.Archive.SessionTurns(moment, ask.SessionID, ask.Shown)
	if err == nil && state != nil && applied.Seq >= min(last, head.Seq) && enough(state, ask) {
		return services.Reading{State: state, Position: head, Source: services.FromView}, nil
	}
	return r.fromLog(ctx, ask, head)
}

// fromLog folds the session from the log alone.
func (r *Reader) fromLog(ctx context.Context, ask services.Ask, head events.Position) (services.Reading, error) {
	state := conversation.New(ask.SessionID, r.cfg.Rules)
	all, err := r.tail(ctx, ask.SessionID, 0, &head)
	if err != nil {
		return services.Reading{}, err
	}
	for _, e := range all {
		state.Fold(e)
	}
	return services.Reading{State: state, Position: head, Source: services.FromLog}, nil
}

// tail gives a session's events after a sequence to its very end, and moves head there.
// It may not end at the barrier: between that and the read an erasure may have begun to
// take events out, and what says so stands behind all of them. A reading that ended
// before it would be of a session that never was, perhaps with a redaction gone and its
// text still there.
func (r *Reader) tail(
	ctx context.Context, sessionID string, after uint64, head *events.Position,
) ([]events.Recorded, error) {
	var out []events.Recorded
	for e, err := range r.log.Session(ctx, sessionID, after, math.MaxUint64) {
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		head.Seq = max(head.Seq, e.Position.Seq)
	}
	return out, nil
}

// AsOf gives a session as it was at a place in the log, with what was redacted or
// erased since left out.
func (r *Reader) AsOf(
	ctx context.Context, sessionID string, then func(events.Recorded) bool,
) (services.Reading, error) {
	partition := r.log.Partition(sessionID)
	head, err := r.log.Head(ctx, partition)
	if err != nil {
		return services.Reading{}, err
	}
	state, today := conversation.New(sessionID, r.cfg.Rules), conversation.New(sessionID, r.cfg.Rules)
	at := events.Position{Partition: partition}
	all, err := r.tail(ctx, sessionID, 0, &head)
	if err != nil {
		return services.Reading{}, err
	}
	for _, e := range all {
		today.Fold(e)
		if then(e) {
			state.Fold(e)
			at = e.Position
		}
	}
	if err := r.forget(ctx, today, head); err != nil {
		return services.Reading{}, err
	}
	state.Erased = today.Erased
	reading := services.Reading{State: state, Position: at, Source: services.FromLog}
	state.Remove(func(t *conversation.Turn) bool {
		now := today.Turn(t.ID)
		return now == nil || now.Status == conversation.Redacted
	})
	// Of what has left the log already only the tombstone tells, which came later.
	for _, t := range today.Turns {
		if t.Status == conversation.Redacted && then(
			events.Recorded{Position: events.Position{Partition: partition, Seq: t.Place}, Time: t.CreatedAt},
		) {
			reading.Gone = append(reading.Gone, t)
		}
	}
	return reading, nil
}

// turnOf finds a turn of the session, or of those that are gone, or nil.
func turnOf(r services.Reading, id uuid.UUID) *conversation.Turn {
	if t := r.State.Turn(id); t != nil {
		return t
	}
	for _, t := range r.Gone {
		if t.ID == id {
			return t
		}
	}
	return nil
}
