package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/services"
)

// identities lists an identity's turns from the audit tables.
type identities struct {
	tables *auditTables
	log    *jetlog.Log
}

func (i identities) IdentityTurns(ctx context.Context, ask services.IdentityAsk) (services.IdentityPage, error) {
	tables, err := i.tables.get()
	if err != nil {
		return services.IdentityPage{}, err
	}
	// The tables are no source of truth: the answer must hold all that was
	// acknowledged before the call.
	if err := i.reached(ctx, tables, ask.MinPosition); err != nil {
		return services.IdentityPage{}, err
	}
	// Each session's own erasure follows in the log, and then in the tables.
	if erased, err := i.log.IdentityErasedNow(ctx, ask.IdentityID); err != nil || erased != nil {
		return services.IdentityPage{}, err
	}
	turns, next, err := tables.IdentityTurns(ctx, ask.IdentityID, ask.Since, ask.Until, ask.Limit, ask.Cursor)
	page := services.IdentityPage{NextCursor: next}
	for _, t := range turns {
		page.Turns = append(page.Turns, services.Turn{
			Turn: t.Turn, SessionID: t.SessionID, IdentityID: t.IdentityID,
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
				return fmt.Errorf("%w: %w", projections.ErrUnavailable, err)
			}
			if err == nil && at.Seq >= p.Seq {
				break
			}
			// What is waited for may have been erased, and never comes.
			if still, fault := log.Still(
				ctx, p.Partition, at.Seq, p.Seq,
			); err == nil && fault == nil && still && at.Seq > 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%w: the audit tables are at %s", services.ErrPositionNotReached, at)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}
