package read

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
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
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Some(ctx context.Context, partition int, seqs []uint64) ([]events.Recorded, error)
	projections.Erasures
}

// View is what reads need of a recent-turns view; every recent.Reader is one.
type View interface {
	recent.Loader
	// Wait blocks until the view has applied a position, or ends with an error.
	Wait(ctx context.Context, at events.Position) error
}

// Archive returns the last turns of a linked session that has left the recent view; the audit tables implement it.
// State is nil if the archive does not hold the session.
type Archive interface {
	SessionTurns(ctx context.Context, sessionID string, limit int) (*session.State, events.Position, error)
}

// Config of a Reader. View, Archive and Folds may be nil.
type Config struct {
	Rules   session.Rules
	View    View
	Archive Archive
	Folds   Folds
	// Deadline bounds how long a read waits for min_position; 2 s by default.
	Deadline time.Duration
	Logger   *slog.Logger
}

// Reader reads sessions. Safe for concurrent use.
type Reader struct {
	log      Log
	erasures projections.ErasureCheck
	cfg      Config
	// origins are the sessions that were read whole: those that branches share turns of, and those of which a reader
	// asked for all turns.
	origins *held[*origin]
	// lineages are the segments of the branches that were read last, by session.Fork.Lineage.
	lineages *lru.Cache[string, []events.Segment]
	// texts are those of turns that were listed lately.
	texts *held[*texts]
}

var _ services.SessionReader = (*Reader)(nil)

// New makes a reader; it does no I/O.
func New(log Log, cfg Config) *Reader {
	cfg.Rules.Slim = false
	cfg.Deadline = cmp.Or(cfg.Deadline, 2*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	lineages, err := lru.New[string, []events.Segment](heldLineages)
	if err != nil {
		panic(err) // the size is a constant
	}
	r := &Reader{
		log, projections.ErasureCheck{Log: log}, cfg, newHeld[*origin](originBytes), lineages,
		newHeld[*texts](mostTexts),
	}
	if cfg.Folds != nil {
		cfg.Folds.OnWithdrawal(r.withdrawn)
	}
	return r
}

// withdrawn drops what is held of a session of which texts were withdrawn.
func (r *Reader) withdrawn(sessionID string) {
	r.texts.drop(sessionID)
	r.origins.drop(sessionID)
}

// Read returns a session that includes all that was acknowledged before the call, or at least all that the caller says
// it knows.
func (r *Reader) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	return r.complete(ctx, ask, r.fromArchive)
}

// elsewhere reads a session that the view does not hold.
type elsewhere func(ctx context.Context, ask services.Ask, head events.Position) (services.Reading, error)

// complete reads a session with what a branch shares.
func (r *Reader) complete(ctx context.Context, ask services.Ask, lost elsewhere) (services.Reading, error) {
	reading, err := r.read(ctx, ask, lost)
	if err == nil && reading.State.Fork().Root != "" {
		// An erased root lends no identity, but that to which the branch was linked may be erased, too.
		err = r.erasures.Session(ctx, reading.State, reading.Position)
	}
	if err == nil {
		reading, err = r.compose(ctx, ask, reading)
	}
	if err != nil {
		return services.Reading{}, err
	}
	return reading, r.erasures.Session(ctx, reading.State, reading.Position)
}

func (r *Reader) read(ctx context.Context, ask services.Ask, lost elsewhere) (services.Reading, error) {
	head := events.Position{Partition: r.log.Partition(ask.SessionID), Seq: ask.KnownSeq}
	if ask.KnownSeq == 0 {
		var err error
		if head, err = r.head(ctx, head.Partition, ask.MinPosition); err != nil {
			return services.Reading{}, err
		}
	}
	if ask.AllTurns {
		return r.whole(ctx, ask, head)
	}
	if r.cfg.View == nil {
		return lost(ctx, ask, head)
	}
	reading, ok, err := r.fromView(ctx, ask, head)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return services.Reading{}, ctx.Err() // the caller has gone: no fault of the view
	case err != nil:
		r.cfg.Logger.Warn("the recent view does not answer; the log does", "session_id", ask.SessionID, "err", err)
	case ok:
		return reading, nil
	}
	return lost(ctx, ask, head)
}

// head takes the barrier. It waits for positions beyond the log's end until the deadline.
func (r *Reader) head(ctx context.Context, partition int, least []events.Position) (events.Position, error) {
	if len(least) > 0 {
		waiting, cancel := context.WithTimeout(ctx, r.cfg.Deadline)
		defer cancel()
		if err := Reached(ctx, waiting, r.log, least); err != nil {
			return events.Position{}, err
		}
	}
	return r.log.Head(ctx, partition)
}

// fromView answers from the view and the part of the log that the view has not seen. ok is false if the view can't
// answer for the session.
func (r *Reader) fromView(
	ctx context.Context, ask services.Ask, head events.Position,
) (_ services.Reading, ok bool, err error) {
	source := services.FromView
	snap, err := r.cfg.View.Load(ctx, ask.SessionID, head.Partition, ask.Shown)
	if err == nil && snap.State != nil && snap.Applied.Seq < head.Seq {
		snap, source, err = r.withTail(ctx, ask, head, snap)
	}
	if err != nil || snap.State == nil {
		return services.Reading{}, false, err
	}
	reading := services.Reading{State: snap.State, Position: snap.Applied, Source: source}
	return reading, source == services.FromViewLog || enough(snap.State, ask), nil
}

// withTail folds the events that the view has not seen on top of the view's turns, up to the log's end. A state without
// its old turns can't tell a new turn from one that it no longer holds, so the view first gets a moment to catch up. If
// withTail returns no state, the log has to answer.
func (r *Reader) withTail(
	ctx context.Context, ask services.Ask, head events.Position, snap recent.Snapshot,
) (recent.Snapshot, services.Source, error) {
	tail, err := r.tail(ctx, ask.SessionID, snap.Applied.Seq, &head)
	if err != nil || len(tail) == 0 {
		snap.Applied = head
		return snap, services.FromView, err
	}
	seen := snap.Applied.Seq
	snap, err = r.cfg.View.Load(ctx, ask.SessionID, head.Partition, recent.AllTurns)
	// A view can be further behind than a moment ago: its store failed over to a replica. The tail lacks the rest.
	if err != nil || snap.State == nil || snap.Applied.Seq < seen {
		return recent.Snapshot{}, "", err
	}
	if snap.State.Whole && !redescribed(snap.State, tail) {
		for _, e := range tail {
			snap.State.Fold(e)
		}
		snap.Applied = head
		return snap, services.FromViewLog, nil
	}
	moment, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := r.cfg.View.Wait(moment, head); err != nil {
		return recent.Snapshot{}, "", nil //nolint:nilerr // the log answers instead
	}
	snap, err = r.cfg.View.Load(ctx, ask.SessionID, head.Partition, ask.Shown)
	if snap.Applied.Seq < head.Seq {
		snap.State = nil
	}
	return snap, services.FromView, err
}

// redescribed reports whether a tail describes a session again: a view does not hold which requests have described it.
func redescribed(s *session.State, tail []events.Recorded) bool {
	return s.Description().DescribedAt != 0 && slices.ContainsFunc(tail, func(e events.Recorded) bool {
		return e.Type == events.TypeSessionDescribed
	})
}

// catchUp is how long a read waits for a view that holds only part of a session.
const catchUp = 50 * time.Millisecond

// enough reports whether a state holds as many turns as were asked for, or all turns after the boundary. It counts
// finalized turns, and pending ones if the caller wants them. The last finalized turn must be among them, however many
// unanswered questions came after it.
func enough(s *session.State, ask services.Ask) bool {
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
		case t.Status == session.Finalized:
			finalized++
		case ask.Pending && t.Status == session.Pending:
			pending++
		}
	}
	return finalized+pending >= min(ask.Shown, all) && finalized >= min(ask.Shown, s.ShownFinalized, 1)
}

// archivePatience bounds how long the archive may take. The archive has an index; if it is slow all the same, the log
// can answer.
const archivePatience = time.Second

// fromArchive answers from the audit tables if a linked session has left the recent view, and otherwise from the log.
func (r *Reader) fromArchive(ctx context.Context, ask services.Ask, head events.Position) (services.Reading, error) {
	if r.cfg.Archive == nil || r.cfg.View == nil {
		return r.whole(ctx, ask, head)
	}
	last, err := r.log.Last(ctx, ask.SessionID)
	if err != nil {
		return services.Reading{}, err
	}
	state := session.New(ask.SessionID, r.cfg.Rules)
	if last == 0 {
		return services.Reading{State: state, Position: head, Source: services.FromLog}, nil
	}
	moment, cancel := context.WithTimeout(ctx, archivePatience)
	defer cancel()
	state, applied, err := r.cfg.Archive.SessionTurns(moment, ask.SessionID, ask.Shown)
	if err == nil && state != nil && applied.Seq >= min(last, head.Seq) && enough(state, ask) {
		return services.Reading{State: state, Position: head, Source: services.FromView}, nil
	}
	return r.whole(ctx, ask, head)
}

// whole returns a session with all its turns, from the log alone. It folds the events that it has not folded before.
func (r *Reader) whole(ctx context.Context, ask services.Ask, head events.Position) (services.Reading, error) {
	o, at, err := r.origin(ctx, ask.SessionID, func() (events.Position, error) { return head, nil })
	if err != nil {
		return services.Reading{}, err
	}
	return services.Reading{State: o.Clone(), Position: at, Source: services.FromLog}, nil
}

// tail returns a session's events after a sequence up to the stream's end, and moves head there. Ending at the barrier
// would be wrong: an erasure may have removed events between the barrier and the read, while the erasure's own event
// stands after the barrier. A reading without that event would show a session that never existed, perhaps one without a
// redaction but with the redacted text.
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

// newest is how many turns hold all pending ones of most sessions.
const newest = 20

// Session returns a session with all its pending turns; it may leave out all other turns, and leaves out those that a
// branch shares. The session is as it is now, or, if known is above 0, as it was at that sequence or later
// (services.Ask).
func (r *Reader) Session(ctx context.Context, sessionID string, known uint64) (*session.State, error) {
	ask := services.Ask{SessionID: sessionID, Shown: newest, KnownSeq: known, Own: true}
	reading, err := r.Read(ctx, ask)
	if err != nil || reading.State.Whole {
		return reading.State, err
	}
	held := 0
	for _, t := range reading.State.Turns {
		if t.Status == session.Pending {
			held++
		}
	}
	if held < reading.State.Pending {
		ask.AllTurns = true
		reading, err = r.Read(ctx, ask)
	}
	return reading.State, err
}

// Question returns the question of a turn, also of one that a branch shares.
func (r *Reader) Question(ctx context.Context, sessionID string, turn uuid.UUID) (*events.Question, error) {
	reading, err := r.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
	if err != nil {
		return nil, err
	}
	t := reading.State.Turn(turn)
	if t == nil {
		return nil, decide.ErrTurnNotFound
	}
	chain := reading.State.Chain(t)
	if t = chain[len(chain)-1]; t.Question == nil {
		return nil, decide.ErrTurnRedacted
	}
	return t.Question, nil
}
