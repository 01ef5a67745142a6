package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
)

// Replay reads the log. Safe for concurrent use; Run must run while it is used.
type Replay struct {
	log        *jetlog.Log
	redactions *redactions
}

var _ services.EventReader = (*Replay)(nil)

// New makes a reader of a log; it does no I/O.
func New(log *jetlog.Log, index *owners.Index) *Replay {
	return &Replay{log: log, redactions: newRedactions(log, index)}
}

// Run runs the index of owners until ctx ends, and learns of redactions from it. It reads the log once from its
// beginning. Readings that begin before that is done wait for it.
func (r *Replay) Run(ctx context.Context) error {
	return r.redactions.owners.Run(ctx, r.redactions.note)
}

// OpenEvents begins a reading, which the caller must close; ctx must live as long as the reading. It returns once all
// redactions up to the log's end are known. Its errors are *decide.Invalid for an impossible query,
// services.ErrPositionNotReached for a position that the log does not hold yet, and those of jetlog.
func (r *Replay) OpenEvents(ctx context.Context, q services.EventQuery) (services.EventStream, error) {
	if err := valid(q, r.log.Partitions()); err != nil {
		return nil, err
	}
	heads := make([]events.Position, r.log.Partitions())
	for k := range heads {
		var err error
		if heads[k], err = r.log.Head(ctx, k); err != nil {
			return nil, err
		}
	}
	for _, p := range q.Min {
		if p.Partition >= len(heads) || p.Seq > heads[p.Partition].Seq {
			return nil, fmt.Errorf("%w: %s", services.ErrPositionNotReached, p)
		}
	}
	s := &stream{log: r.log, redactions: r.redactions, q: q, at: events.Cursor{}, end: events.Cursor{}}
	for _, head := range heads {
		if err := s.bound(ctx, head); err != nil {
			return nil, err
		}
	}
	for _, head := range heads {
		if err := r.redactions.owners.Reached(ctx, head); err != nil {
			return nil, err
		}
	}
	if q.IdentityID != "" {
		var err error
		if s.linked, err = r.redactions.linkedTo(ctx, q.IdentityID); err != nil {
			return nil, err
		}
	}
	s.from = maps.Clone(s.at)
	s.openPartitions(ctx)
	return s, nil
}

// bound sets where the backlog of a partition begins and ends.
func (s *stream) bound(ctx context.Context, head events.Position) error {
	k := head.Partition
	from, _ := boundOf(s.q.From, k)
	if from > head.Seq {
		return fmt.Errorf("%w: from %d:%d, and the log ends at %s", services.ErrPositionNotReached, k, from, head)
	}
	since, err := s.before(ctx, s.q.Since, head, 0)
	if err != nil {
		return err
	}
	end, err := s.before(ctx, s.q.Until, head, head.Seq)
	if err != nil {
		return err
	}
	if to, ok := boundOf(s.q.To, k); ok {
		end = min(end, to)
	}
	from = max(from, since)
	s.at[k], s.end[k] = from, max(from, end)
	return nil
}

// before returns the last sequence up to head that was recorded before a time. For a zero time it returns or.
func (s *stream) before(ctx context.Context, at time.Time, head events.Position, or uint64) (uint64, error) {
	if at.IsZero() {
		return or, nil
	}
	seq, err := s.log.SeqAt(ctx, head.Partition, at)
	return min(seq, head.Seq), err
}

// openPartitions makes the readers of the partitions. They read only when Next needs their events.
func (s *stream) openPartitions(ctx context.Context) {
	// Without such filters every event is printed, so it pays to decode ahead.
	ahead := jetlog.TailOptions{Decode: len(s.q.Types) == 0 && s.q.IdentityID == ""}
	for k := range s.log.Partitions() {
		b := &backlog{log: s.log, gaps: s.log, partition: k, after: s.at[k], end: s.end[k], options: ahead}
		if s.q.SessionID != "" {
			if k != s.log.Partition(s.q.SessionID) {
				continue
			}
			b.ofSession(ctx, s.q.SessionID)
		}
		s.partitions = append(s.partitions, b)
	}
}

// valid returns a *decide.Invalid if the query makes no sense on a log with this number of partitions.
func valid(q services.EventQuery, partitions int) error {
	invalid := func(field, why string) error { return &decide.Invalid{Field: field, Why: why} }
	outside := func(p events.Position) bool { return p.Partition >= partitions }
	beyond := fmt.Sprintf("names a partition that this log does not have: it has %d", partitions)
	known := events.Types()
	switch {
	case q.SessionID != "" && events.ValidID(q.SessionID) != nil:
		return invalid("session_id", events.ErrID.Error())
	case q.IdentityID != "" && events.ValidID(q.IdentityID) != nil:
		return invalid("identity_id", events.ErrID.Error())
	case q.SessionID != "" && q.IdentityID != "":
		return invalid("identity_id", "can't be asked for together with session_id: ask for one of them")
	case slices.ContainsFunc(q.Types, func(t string) bool { return !slices.Contains(known, t) }):
		return invalid("type", "must be one of "+strings.Join(known, ", "))
	case slices.ContainsFunc(q.From, outside):
		return invalid("from", beyond)
	case slices.ContainsFunc(q.To, outside):
		return invalid("to", beyond)
	}
	return nil
}

// boundOf returns the sequence that a list of positions names for a partition, and reports whether it names one.
func boundOf(list []events.Position, partition int) (uint64, bool) {
	i := slices.IndexFunc(list, func(p events.Position) bool { return p.Partition == partition })
	if i < 0 {
		return 0, false
	}
	return list[i].Seq, true
}
