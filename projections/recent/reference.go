package recent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Listed is a view whose sessions can be listed.
type Listed interface {
	Name() string
	Loader
	// Sessions returns the ids of the sessions that the view holds in a partition, in no order. An id may come twice.
	// Sessions that come or go meanwhile may be missing.
	Sessions(ctx context.Context, partition, partitions int, take func(sessionID string) error) error
}

// Reference records what a view must hold, as digests without texts: about 200 bytes for each session that was active
// within the TTL, and 56 for each of its turns up to the cap. Its clock is the recorded time of the events. So it
// equals a view that applied each event when it was recorded. Other views may hold less: a view that began later, or
// caught up late, holds only the newest turns of some sessions, and marks these sessions as not whole. For one caller.
type Reference struct {
	view       Listed
	limits     Limits
	now        func() time.Time
	partitions []partitionDigests
	buf        buffer
}

var _ projections.Reference = (*Reference)(nil)

// partitionDigests are the digests of a partition.
type partitionDigests struct {
	at       projections.Checkpoint
	sessions map[string]*sessionDigests
	swept    int
}

type sessionDigests struct {
	head    session.Head
	expires time.Time
	turns   []turnDigest
	// cut: older turns were left out.
	cut bool
}

type turnDigest struct {
	id     uuid.UUID
	place  uint64
	digest Digest
	done   bool
	// extended: the digest is that of the turn before its extensions, which take texts that the reference does not
	// hold. Such a turn is read from the log when it is compared.
	extended bool
}

// NewReference makes an empty reference for a view.
func NewReference(view Listed, limits Limits, now func() time.Time, partitions int) *Reference {
	all := make([]partitionDigests, partitions)
	for k := range all {
		all[k] = partitionDigests{at: projections.Checkpoint{Partition: k}, sessions: map[string]*sessionDigests{}}
	}
	return &Reference{view: view, limits: limits.WithDefaults(), now: now, partitions: all}
}

// Name of the view.
func (r *Reference) Name() string { return r.view.Name() }

// Claim returns the position at which the notes end.
func (r *Reference) Claim(_ context.Context, partition int) (projections.Checkpoint, error) {
	return r.partitions[partition].at, nil
}

// Drop does nothing.
func (r *Reference) Drop(context.Context) error { return nil }

// sweepEvery is the number of events after which expired sessions are removed.
const sweepEvery = 100_000

// Apply adds a batch to the notes.
func (r *Reference) Apply(_ context.Context, b projections.Batch) error {
	n := &r.partitions[b.From.Partition]
	for i := range b.Events {
		if e := &b.Events[i]; e.SessionID != "" {
			r.note(n, e)
		}
	}
	n.at = b.To
	if n.swept += len(b.Events); n.swept >= sweepEvery {
		n.swept = 0
		now := b.Events[len(b.Events)-1].Time
		for id, s := range n.sessions {
			if s.expires.Before(now) {
				delete(n.sessions, id)
			}
		}
	}
	return nil
}

func (r *Reference) note(n *partitionDigests, e *projections.Judged) {
	c := &e.Change
	if !c.Kind.ChangesSession() {
		return
	}
	s := n.sessions[e.SessionID]
	if s == nil || s.expires.Before(e.Time.Truncate(time.Millisecond)) {
		s = &sessionDigests{}
		n.sessions[strings.Clone(e.SessionID)] = s
	}
	s.head, s.expires = e.Head, r.limits.Expires(e.Head)
	s.head.Identity = strings.Clone(e.Head.Identity)
	switch c.Kind.Group() {
	case session.GroupText:
		r.text(s, c, events.TextsOf(e.Fact))
	case session.GroupGone:
		if c.Left() == nil {
			s.turns = slices.DeleteFunc(s.turns, func(t turnDigest) bool {
				return slices.ContainsFunc(c.Turns, func(g *session.Turn) bool { return g.ID == t.id })
			})
			return
		}
		now := r.whole(c.Turn)
		if t := s.turn(c.Turn.ID); t != nil {
			*t = now
		} else if !s.cut || len(s.turns) > 0 && s.turns[0].place < now.place { // its other events have left the log
			s.add(now, r.limits.MaxTurns)
		}
	case session.GroupSessionGone:
		s.turns = nil
	case session.GroupNone, session.GroupHead: // the head says it all
	}
}

// text notes the texts that an event brought to a turn.
func (r *Reference) text(s *sessionDigests, c *session.Change, texts events.Texts) {
	t := s.turn(c.Turn.ID)
	switch {
	case texts.Extension != nil:
		if t != nil {
			t.extended = true
		}
	case texts.Question == nil:
		if t != nil && !t.done {
			t.digest, t.done = r.buf.answered(t.digest, c.Turn), true
		}
	case c.Turn.Corrects():
		if old := s.turn(c.Turn.Replaces); old != nil {
			*old = r.whole(c.Turn)
		}
	default:
		s.add(r.whole(c.Turn), r.limits.MaxTurns)
	}
}

// whole returns the digest of a turn all of whose texts are at hand.
func (r *Reference) whole(t *session.Turn) turnDigest {
	return turnDigest{t.ID, t.Place, r.buf.whole(t), t.Status == session.Finalized, false}
}

// add adds a turn in its place, and leaves out the oldest ones beyond a number.
func (s *sessionDigests) add(t turnDigest, most int) {
	at := len(s.turns)
	for at > 0 && s.turns[at-1].place > t.place {
		at--
	}
	s.turns = slices.Insert(s.turns, at, t)
	if over := len(s.turns) - most; over > 0 {
		s.turns, s.cut = slices.Delete(s.turns, 0, over), true
	}
}

// turn finds a turn; it is mostly the newest.
func (s *sessionDigests) turn(id uuid.UUID) *turnDigest {
	for i := len(s.turns) - 1; i >= 0; i-- {
		if s.turns[i].id == id {
			return &s.turns[i]
		}
	}
	return nil
}

// Compare implements projections.Reference.
func (r *Reference) Compare(ctx context.Context, sample int, fold projections.Fold,
	report func(projections.Difference) error) (int, error) {
	if sample > 0 {
		return r.sample(ctx, sample, fold, report)
	}
	looked := 0
	for k := range r.partitions {
		// The reference applies all that the view has applied before the view's sessions are listed.
		applied, err := Applied(ctx, r.view, k)
		if err == nil {
			err = fold.Reach(ctx, applied)
		}
		if err != nil {
			return looked, err
		}
		c := comparison{r, k, fold, fold.Reach, report}
		seen := make(map[string]struct{}, len(r.partitions[k].sessions))
		err = r.view.Sessions(ctx, k, len(r.partitions), func(id string) error {
			if _, twice := seen[id]; twice {
				return nil
			}
			seen[strings.Clone(id)] = struct{}{}
			return c.session(ctx, id)
		})
		if err != nil {
			return looked, err
		}
		looked += len(seen)
		var rest []string
		for id := range r.partitions[k].sessions {
			if _, ok := seen[id]; !ok {
				rest = append(rest, id)
			}
		}
		for _, id := range rest {
			if err := c.session(ctx, id); err != nil {
				return looked, err
			}
		}
	}
	return looked, nil
}

// sample compares some sessions, each read from the log by itself.
func (r *Reference) sample(ctx context.Context, sample int, fold projections.Fold,
	report func(projections.Difference) error) (int, error) {
	var ids []string
	seen := 0
	for k := range r.partitions {
		err := r.view.Sessions(ctx, k, len(r.partitions), func(id string) error {
			seen++
			if len(ids) < sample {
				ids = append(ids, strings.Clone(id))
			} else if at := rand.IntN(seen); at < sample { //nolint:gosec // a sample, not a secret
				ids[at] = strings.Clone(id)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		k := events.Partition(id, len(r.partitions))
		c := comparison{r, k, fold, func(ctx context.Context, at events.Position) error {
			delete(r.partitions[k].sessions, id)
			return fold.Session(ctx, id, at)
		}, report}
		if err := c.session(ctx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// comparison compares the sessions of a partition.
type comparison struct {
	*Reference
	partition int
	fold      projections.Fold
	reach     func(context.Context, events.Position) error
	report    func(projections.Difference) error
}

// session compares a session at a position that both have reached.
func (c comparison) session(ctx context.Context, id string) error {
	snap, err := c.view.Load(ctx, id, c.partition, AllTurns)
	if err != nil {
		return err
	}
	if err := c.reach(ctx, snap.Applied); err != nil {
		return err
	}
	if at := c.partitions[c.partition].at.Seq; at > snap.Applied.Seq {
		// A batch that is applied in several steps had moved another session further than this one.
		return fmt.Errorf("the view is at %s, behind what it showed before (%d): verify again", snap.Applied, at)
	}
	n, now := c.partitions[c.partition].sessions[id], c.now()
	over := n != nil && n.expires.UnixMilli() < now.Add(time.Second).UnixMilli()
	switch {
	case over, n == nil && snap.State == nil:
		return nil // it goes, or has gone
	case snap.State == nil:
		return c.report(projections.Difference{SessionID: id, What: "missing", Log: n.digest(c.Reference,
			len(n.turns)).String()})
	case n == nil:
		return c.report(projections.Difference{SessionID: id, What: "extra",
			View: HeadDigest(snap.State.Head()).String()})
	}
	if view, log := HeadDigest(snap.State.Head()), c.buf.head(n.head); view != log {
		if err := c.report(projections.Difference{SessionID: id, What: "head", View: view.String(),
			Log: log.String()}); err != nil {
			return err
		}
	}
	if err := c.readExtended(ctx, id, snap.Applied, n); err != nil {
		return err
	}
	return c.turns(id, snap.State, n)
}

// readExtended reads the turns from the log whose digests their events alone don't give.
func (c comparison) readExtended(ctx context.Context, id string, at events.Position, n *sessionDigests) error {
	if !slices.ContainsFunc(n.turns, func(t turnDigest) bool { return t.extended }) {
		return nil
	}
	state, err := c.fold.State(ctx, id, at)
	if err != nil {
		return err
	}
	for i := range n.turns {
		t := &n.turns[i]
		if now := state.Turn(t.id); t.extended && now != nil && now.Question != nil {
			t.digest = TurnDigest(now)
		}
	}
	return nil
}

// turns compares the turns that the view holds with the newest turns of the reference.
func (c comparison) turns(id string, s *session.State, n *sessionDigests) error {
	var all buffer
	for _, t := range s.Turns {
		d := TurnDigest(t)
		all = append(all, d[:]...)
	}
	view, held := all.sum(), len(s.Turns)
	if s.Whole {
		held = len(n.turns)
	}
	if log := n.digest(c.Reference, held); view != log {
		return c.report(projections.Difference{SessionID: id, What: "turns", View: view.String(), Log: log.String()})
	}
	return nil
}

// digest of the newest turns.
func (s *sessionDigests) digest(r *Reference, newest int) Digest {
	r.buf = r.buf[:0]
	for _, t := range s.turns[max(0, len(s.turns)-newest):] {
		r.buf = append(r.buf, t.digest[:]...)
	}
	return r.buf.sum()
}
