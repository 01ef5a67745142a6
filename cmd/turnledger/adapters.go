package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/services/httpapi"
	"github.com/turnledger/turnledger/services/replay"
)

// identities lists an identity's turns from the audit tables.
type identities struct {
	tables *auditTables
	log    *jetlog.Log
}

func (i identities) IdentityTurns(ctx context.Context, ask httpapi.IdentityAsk) (httpapi.IdentityPage, error) {
	tables, err := i.tables.get()
	if err != nil {
		return httpapi.IdentityPage{}, fmt.Errorf("%w: %w", httpapi.ErrAuditUnavailable, err)
	}
	// The tables are no source of truth: the answer must hold all that was
	// acknowledged before the call.
	if err := i.reached(ctx, tables, ask.MinPosition); err != nil {
		return httpapi.IdentityPage{}, err
	}
	// Each session's own erasure follows in the log, and then in the tables.
	if erased, _, err := i.log.IdentityErasure(ctx, ask.IdentityID, events.Position{}); err != nil || erased != nil {
		return httpapi.IdentityPage{}, err
	}
	turns, next, err := tables.IdentityTurns(ctx, ask.IdentityID, ask.Since, ask.Until, ask.Limit, ask.Cursor)
	if errors.Is(err, audit.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", httpapi.ErrAuditUnavailable, err)
	}
	if errors.Is(err, audit.ErrCursor) {
		err = &conversation.Invalid{Field: "cursor", Why: "is not one of this listing: start again without one"}
	}
	page := httpapi.IdentityPage{NextCursor: next}
	for _, t := range turns {
		page.Turns = append(page.Turns, httpapi.Turn{
			Turn: t.Turn, SessionID: t.SessionID, IdentityID: t.IdentityID, Partition: t.Partition,
			Position: events.Position{Partition: t.Partition, Seq: t.Started},
		})
	}
	return page, err
}

// reached waits until the tables hold all that stands in the log now, and some
// positions.
func (i identities) reached(ctx context.Context, tables *audit.Audit, least []events.Position) error {
	least = slices.Clone(least)
	for k := range i.log.Partitions() {
		head, err := i.log.Head(ctx, k)
		if err != nil {
			return err
		}
		least = append(least, head)
	}
	return caughtUp(ctx, tables, i.log, least)
}

// auditPatience is how long a read waits for the audit tables to reach a position.
const auditPatience = 2 * time.Second

func caughtUp(ctx context.Context, tables *audit.Audit, log *jetlog.Log, least []events.Position) error {
	ctx, cancel := context.WithTimeout(ctx, auditPatience)
	defer cancel()
	for _, p := range least {
		for {
			at, err := tables.Applied(ctx, p.Partition)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("%w: %w", httpapi.ErrAuditUnavailable, err)
			}
			if err == nil && at.Seq >= p.Seq {
				break
			}
			// What is waited for may have been erased, and never comes.
			if still, fault := log.Still(ctx, p.Partition, at.Seq, p.Seq); err == nil && fault == nil && still && at.Seq > 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%w: the audit tables are at %s", httpapi.ErrPositionNotReached, at)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

// eventLog reads the log as CloudEvents.
type eventLog struct{ replay *replay.Replay }

func (l eventLog) OpenEvents(ctx context.Context, q httpapi.EventQuery) (httpapi.EventStream, error) {
	s, err := l.replay.Open(ctx, replay.Query{
		Session: q.SessionID, Identity: q.IdentityID, Types: q.Types, From: q.From, To: q.To, Min: q.Min, Since: q.Since, Until: q.Until, Follow: q.Follow,
	})
	if errors.Is(err, jetlog.ErrNotReached) {
		err = fmt.Errorf("%w: %w", httpapi.ErrPositionNotReached, err)
	}
	if err != nil {
		return nil, err
	}
	return &eventStream{Stream: s}, nil
}

type eventStream struct {
	*replay.Stream
	out []httpapi.Event
}

func (s *eventStream) Next(ctx context.Context) ([]httpapi.Event, error) {
	batch, err := s.Stream.Next(ctx)
	s.out = s.out[:0]
	for _, e := range batch {
		s.out = append(s.out, httpapi.Event(e))
	}
	return s.out, err
}
