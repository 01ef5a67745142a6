package replay

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// Replay reads the log. Safe for concurrent use; Run must run while it is used.
type Replay struct {
	log        *jetlog.Log
	redactions *redactions
}

var _ services.EventReader = (*Replay)(nil)

// New makes a reader of a log; it does no I/O.
func New(log *jetlog.Log, logger *slog.Logger) *Replay {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Replay{log: log, redactions: newRedactions(log, logger)}
}

// Run learns of redactions until ctx ends. It reads the log once from its beginning;
// readings that begin meanwhile wait for it.
func (r *Replay) Run(ctx context.Context) error { return r.redactions.run(ctx) }

// OpenEvents begins a reading, which is to be closed; ctx lives as long as it. It returns when all
// redactions up to the log's end are known. Errors: *conversation.Invalid for a query that makes no
// sense, services.ErrPositionNotReached for a position that the log does not hold yet, and those of
// jetlog.
func (r *Replay) OpenEvents(ctx context.Context, q services.EventQuery) (services.EventStream, error) {
	if err := valid(q, r.log.Partitions()); err != nil {
		return nil, err
	}
	heads, err := headsOf(ctx, r.log)
	if err != nil {
		return nil, err
	}
	for _, p := range q.Min {
		if p.Partition >= len(heads) || p.Seq > heads[p.Partition] {
			return nil, fmt.Errorf("%w: %s", services.ErrPositionNotReached, p)
		}
	}
	s := &stream{replay: r, q: q, at: events.Cursor{}, end: events.Cursor{}}
	for k, head := range heads {
		if err := s.bound(ctx, k, head); err != nil {
			return nil, err
		}
	}
	for k, head := range heads {
		if err := r.redactions.reached(ctx, events.Position{Partition: k, Seq: head}); err != nil {
			return nil, err
		}
	}
	if q.IdentityID != "" {
		if s.linked, err = r.redactions.linkedTo(ctx, q.IdentityID); err != nil {
			return nil, err
		}
	}
	s.from = cloneOf(s.at)
	s.openSources(ctx, heads)
	return s, nil
}

// bound sets where the backlog of a partition begins and ends.
func (s *stream) bound(ctx context.Context, k int, head uint64) error {
	log := s.replay.log
	from, _ := boundOf(s.q.From, k)
	if from > head {
		return fmt.Errorf("%w: from %d:%d, and the log ends at %d:%d", services.ErrPositionNotReached, k, from, k, head)
	}
	if !s.q.Since.IsZero() {
		before, err := log.SeqAt(ctx, k, s.q.Since)
		if err != nil {
			return err
		}
		from = max(from, min(before, head))
	}
	end := head
	if to, ok := boundOf(s.q.To, k); ok {
		end = min(end, to)
	}
	if !s.q.Until.IsZero() {
		before, err := log.SeqAt(ctx, k, s.q.Until)
		if err != nil {
			return err
		}
		end = min(end, before)
	}
	s.at[k], s.end[k] = from, max(from, end)
	return nil
}
