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
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// Listed is a view whose sessions can be listed.
type Listed interface {
	Name() string
	Loader
	// Sessions returns the ids of the sessions that are held in a partition, in no order;
	// one may come twice, and those that come or go meanwhile, or not.
	Sessions(ctx context.Context, partition, partitions int, take func(sessionID string) error) error
}

// Reference notes of the log what a view must hold, as digests: per session that was
// active within the TTL about 200 bytes, and 56 for each turn up to the cap; no texts.
// Its clock is the recorded time of the events, so that it holds what a view holds
// that was fed as the events came, which is at most more than others do: a view that
// began later, or caught up late, holds the newest turns of some sessions only, and
// says that it does not hold them whole. For one caller.
type Reference struct {
	view       Listed
	limits     Limits
	now        func() time.Time
	partitions []notes
	buf        buffer
}

var _ projections.Reference = (*Reference)(nil)

// notes of a partition.
type notes struct {
	at       projections.Checkpoint
	sessions map[string]*note
	swept    int
}

type note struct {
	head    conversation.Head
	expires time.Time
	turns   []turnNote
}

type turnNote struct {
	id     uuid.UUID
	digest Digest
	done   bool
}

// NewReference makes an empty reference for a view.
func NewReference(view Listed, limits Limits, now func() time.Time, partitions int) *Reference {
	r := &Reference{view: view, limits: limits.WithDefaults(), now: now, partitions: make([]notes, partitions)}
	for k := range r.partitions {
		r.partitions[k] = notes{at: projections.Checkpoint{Partition: k}, sessions: map[string]*note{}}
	}
	return r
}

// Name of the view.
func (r *Reference) Name() string { return r.view.Name() }

// Claim returns the place where the notes end.
func (r *Reference) Claim(_ context.Context, partition int) (projections.Checkpoint, error) {
	return r.partitions[partition].at, nil
}

// Drop has nothing to remove.
func (r *Reference) Drop(context.Context) error { return nil }

// sweepEvery is after how many events sessions are forgotten whose time was over.
const sweepEvery = 100_000

// Apply notes a batch.
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

func (r *Reference) note(n *notes, e *projections.Judged) {
	c := &e.Change
	if !c.Kind.ChangesSession() {
		return
	}
	s := n.sessions[e.SessionID]
	if s == nil || s.expires.Before(e.Time.Truncate(time.Millisecond)) {
		s = &note{}
		n.sessions[strings.Clone(e.SessionID)] = s
	}
	s.head, s.expires = e.Head, r.limits.Expires(e.Head)
	s.head.Identity = strings.Clone(e.Head.Identity)
	switch c.Kind {
	case conversation.Started:
		s.turns = append(s.turns, turnNote{id: c.Turn.ID, digest: r.buf.question(c.Turn)})
		if over := len(s.turns) - r.limits.MaxTurns; over > 0 {
			s.turns = slices.Delete(s.turns, 0, over)
		}
	case conversation.Answered:
		if t := s.turn(c.Turn.ID); t != nil && !t.done {
			t.digest, t.done = r.buf.answered(t.digest, c.Turn), true
		}
	case conversation.Corrected:
		if t := s.turn(c.Turn.Replaces); t != nil {
			*t = turnNote{c.Turn.ID, r.buf.answered(r.buf.question(c.Turn), c.Turn), true}
		}
	case conversation.TurnGone:
		s.turns = slices.DeleteFunc(s.turns, func(t turnNote) bool {
			return slices.ContainsFunc(c.Turns, func(g *conversation.Turn) bool { return g.ID == t.id })
		})
	case conversation.Erased:
		s.turns = nil
	case conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Linked, conversation.Reset,
		conversation.Refused, conversation.Noted: // the head says it all
	}
}

// turn finds a turn; it is mostly the newest.
func (s *note) turn(id uuid.UUID) *turnNote {
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
		// What the view has applied, the reference has too, before it is asked what there is.
		applied, err := Applied(ctx, r.view, k)
		if err == nil {
			err = fold.Reach(ctx, applied)
		}
		if err != nil {
			return looked, err
		}
		c := comparison{r, k, fold.Reach, report}
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

// sample looks at some sessions, each read from the log by itself.
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
		c := comparison{r, k, func(ctx context.Context, at events.Position) error {
			delete(r.partitions[k].sessions, id)
			return fold.Session(ctx, id, at)
		}, report}
		if err := c.session(ctx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// comparison of the sessions of a partition.
type comparison struct {
	*Reference
	partition int
	reach     func(context.Context, events.Position) error
	report    func(projections.Difference) error
}

// session looks at a session at a position that both have reached.
func (c comparison) session(ctx context.Context, id string) error {
	snap, err := c.view.Load(ctx, id, c.partition, AllTurns)
	if err != nil {
		return err
	}
	if err := c.reach(ctx, snap.Applied); err != nil {
		return err
	}
	if at := c.partitions[c.partition].at.Seq; at > snap.Applied.Seq {
		// A batch in steps had brought another session further than this one.
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
	return c.turns(id, snap.State, n)
}

// turns compares the turns that the view holds with the newest turns of the reference.
func (c comparison) turns(id string, s *conversation.State, n *note) error {
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
func (s *note) digest(r *Reference, newest int) Digest {
	r.buf = r.buf[:0]
	for _, t := range s.turns[max(0, len(s.turns)-newest):] {
		r.buf = append(r.buf, t.digest[:]...)
	}
	return r.buf.sum()
}
