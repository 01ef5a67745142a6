package read

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Walk shows a session as it was at one place in the log after the other, as AsOf does, but reads and folds it once.
// It is a services.SessionReader of that session alone. Not safe for concurrent use.
type Walk struct {
	own, root *track
	// segments are those of a branch, whose sessions stand in origins.
	segments []events.Segment
	origins  []*track
	// today is the session as it is now, with what it shares. gone are its turns that were redacted, and shared says
	// that one of those is shared.
	today    *session.State
	gone     []*session.Turn
	shared   bool
	standing map[uint64]bool

	at moment
}

// Walk begins a walk through a session.
func (r *Reader) Walk(ctx context.Context, sessionID string) (*Walk, error) {
	head, err := r.head(ctx, r.log.Partition(sessionID), nil)
	if err != nil {
		return nil, err
	}
	w := &Walk{standing: map[uint64]bool{}}
	if w.own, err = r.track(ctx, sessionID, &head); err != nil {
		return nil, err
	}
	w.today = w.own.today.Clone()
	if err = w.inherit(ctx, r); err == nil {
		err = r.erasures.Session(ctx, w.today, head)
	}
	for _, m := range w.today.Standing() {
		w.standing[m.At] = true
	}
	for _, t := range w.today.Turns {
		if t.Status == session.Redacted {
			_, _, inherited := w.today.Origin(t, head.Partition)
			w.gone, w.shared = append(w.gone, t), w.shared || inherited
		}
	}
	return w, err
}

// inherit reads what a branch shares.
func (w *Walk) inherit(ctx context.Context, r *Reader) error {
	fork := w.today.Fork()
	if fork.Root == "" {
		return nil
	}
	read := func(id string) (*track, error) {
		head, err := r.log.Head(ctx, r.log.Partition(id))
		if err != nil {
			return nil, err
		}
		return r.track(ctx, id, &head)
	}
	w.segments = fork.Segments()
	today := make([]*session.State, len(w.segments))
	for i, g := range w.segments {
		o, err := read(g.SessionID)
		if err != nil {
			return err
		}
		w.origins, today[i] = append(w.origins, o), o.today
		if g.SessionID == fork.Root {
			w.root = o
		}
	}
	if w.root == nil {
		var err error
		if w.root, err = read(fork.Root); err != nil {
			return err
		}
	}
	w.today.Identity = w.root.today.Identity
	if w.today.Erased == 0 {
		w.today.Inherit(w.segments, today, math.MaxInt)
	}
	return nil
}

// Today returns the session as it is now. Nobody may change it.
func (w *Walk) Today() *session.State { return w.today }

// Gone returns the turns that were redacted.
func (w *Walk) Gone() []*session.Turn { return w.gone }

// Partition returns that of the session.
func (w *Walk) Partition() int { return w.own.partition }

// Events returns the session's own events of some sequences, as far as the log still has them.
func (w *Walk) Events(seqs []uint64) (found []events.Recorded) {
	for _, seq := range seqs {
		if n, has := w.own.index[seq]; has {
			found = append(found, w.own.all[n])
		}
	}
	return found
}

// To goes on to a place of the session's partition. It never goes back.
func (w *Walk) To(seq uint64) {
	w.at = moment{position: &events.Position{Partition: w.own.partition, Seq: seq}}
	w.own.to(w.at)
	if n := w.own.next; n > 0 {
		w.at.time = w.own.all[n-1].Time
	}
	for _, o := range w.origins {
		o.to(w.at)
	}
	if w.root != nil {
		w.root.to(w.at)
	}
}

// Now returns when the session's last event was recorded, as of the place.
func (w *Walk) Now() time.Time { return w.at.time }

// Then returns a turn of the session itself as it was at the place, or nil.
func (w *Walk) Then(id uuid.UUID) *session.Turn { return w.own.then.Turn(id) }

// AsOf is Read with all turns, at the place where the walk is.
func (w *Walk) AsOf(
	ctx context.Context, sessionID string, _ services.AsOf, _ ...events.Position,
) (services.Reading, time.Time, error) {
	reading, err := w.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
	return reading, w.Now(), err
}

// Read returns the session as it was at the place, without the turns that were redacted since. It costs as much as
// the turns that are asked for, and no more for a long session.
func (w *Walk) Read(_ context.Context, ask services.Ask) (services.Reading, error) {
	reading := services.Reading{Position: *w.at.position, Source: services.FromView}
	whole := ask.AllTurns || w.shared || w.own.prunedLater(w.at)
	n := len(w.own.then.Turns)
	if !whole {
		n = w.newest(ask.Shown)
	}
	state := w.own.then.CloneLast(n)
	if whole {
		past{state, w.own.today}.prune(w.at, w.own.partition)
	} else {
		w.uncount(state)
	}
	w.inheritThen(state, ask, whole)
	if state.Whole {
		reading.Source = services.FromLog
	}
	state.Erased = w.today.Erased
	if len(w.gone) > 0 {
		state.Remove(func(t *session.Turn) bool {
			now := w.today.Turn(t.ID)
			return now == nil || now.Status == session.Redacted
		})
	}
	state.KeepSummaries(func(m session.Summary) bool { return w.standing[m.At] })
	for _, t := range w.gone {
		_, partition, _ := w.today.Origin(t, w.own.partition)
		if w.at.holds(events.Recorded{
			Position: events.Position{Partition: partition, Seq: session.PlaceOf(t)}, Time: t.CreatedAt,
		}) {
			reading.RedactedLater = append(reading.RedactedLater, t)
		}
	}
	reading.State = state
	return reading, nil
}

// newest returns how many of the last turns hold so many that prompts may show.
func (w *Walk) newest(shown int) (n int) {
	turns := w.own.then.Turns
	for ; shown > 0 && n < len(turns); n++ {
		t := turns[len(turns)-1-n]
		if t.Status == session.Finalized && w.stands(t) {
			shown--
		}
	}
	return n
}

// stands reports whether a turn of the past was not redacted since.
func (w *Walk) stands(t *session.Turn) bool {
	if len(w.gone) == 0 {
		return true
	}
	now := w.today.Turn(t.ID)
	return now != nil && now.Status != session.Redacted
}

// uncount takes the turns that were redacted since out of the counts.
func (w *Walk) uncount(state *session.State) {
	for _, gone := range w.gone {
		t := w.own.then.Turn(gone.ID)
		if t == nil || !w.own.then.Shown(t) {
			continue
		}
		if t.Status == session.Finalized {
			state.Finalized, state.ShownFinalized = state.Finalized-1, state.ShownFinalized-1
		} else {
			state.Pending, state.ShownPending = state.Pending-1, state.ShownPending-1
		}
	}
}

// inheritThen adds to a branch what it shared at the place.
func (w *Walk) inheritThen(state *session.State, ask services.Ask, whole bool) {
	if w.root == nil || state.Fork().Root == "" {
		return
	}
	then, today := make([]*session.State, len(w.origins)), make([]*session.State, len(w.origins))
	for i, o := range w.origins {
		if then[i], today[i] = o.then, o.today; o.prunedLater(w.at) {
			then[i] = o.then.Clone()
			past{then[i], o.today}.prune(w.at, o.partition)
		}
	}
	most := math.MaxInt
	switch {
	case whole:
	case state.Whole:
		most = missing(state, ask)
	default:
		most = -1
	}
	state.Identity = w.root.then.Identity
	state.InheritThen(then, today, most)
}

// track is a session as it was at a moment, which moves on, and as it is today.
type track struct {
	past

	all       []events.Recorded
	index     map[uint64]int // of all, by their sequences
	next      int            // the first of all that is not folded into then
	partition int
	// prunes are the turns of today that were pruned.
	prunes []*session.Turn
}

func (r *Reader) track(ctx context.Context, id string, head *events.Position) (*track, error) {
	t := &track{
		past:      past{session.New(id, r.cfg.Rules), session.New(id, r.cfg.Rules)},
		partition: head.Partition, index: map[uint64]int{},
	}
	var err error
	if t.all, err = r.tail(ctx, id, 0, head); err != nil {
		return nil, err
	}
	for n, e := range t.all {
		t.today.Fold(e)
		t.index[e.Position.Seq] = n
	}
	for _, turn := range t.today.Turns {
		if turn.PrunedAt() != 0 {
			t.prunes = append(t.prunes, turn)
		}
	}
	return t, nil
}

// to folds what a later moment holds, too.
func (t *track) to(m moment) {
	for ; t.next < len(t.all) && m.holds(t.all[t.next]); t.next++ {
		t.then.Fold(t.all[t.next])
	}
}

// prunedLater reports whether a turn that stood at a moment was pruned since.
func (t *track) prunedLater(m moment) bool {
	upTo := t.then.Applied
	if m.position.Partition == t.partition {
		upTo = m.position.Seq
	}
	for _, turn := range t.prunes {
		if turn.PrunedAt() > upTo && turn.Started <= upTo {
			return true
		}
	}
	return false
}
