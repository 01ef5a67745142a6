package identities

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

var _ services.TurnCounter = (*Reader)(nil)

// Counts implements services.TurnCounter. It waits for no more than the ask's positions.
func (r *Reader) Counts(ctx context.Context, ask services.CountsAsk) (page services.CountsPage, err error) {
	tables, err := r.tables()
	if err != nil {
		return page, err
	}
	waiting, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	heads, err := r.heads(ctx, waiting, ask.MinPosition)
	if err != nil {
		return page, err
	}
	// Tables that have any position answer: others would be asked for as long as the call may take.
	bar := slices.Concat([]events.Position{{}}, ask.MinPosition)
	err = r.from(ctx, waiting, tables, bar, func() ([]events.Position, error) {
		page.Counts, page.Positions, err = tables.Counts(ctx, ask.CountsFilter)
		return page.Positions, err
	})
	if err != nil {
		return page, err
	}
	if ask.WithAnomalies {
		err = r.from(ctx, waiting, tables, bar, func() (at []events.Position, err error) {
			page.Anomalies, at, err = tables.Anomalies(ctx, ask.CountsFilter)
			return at, err
		})
	}
	applied := make([]uint64, len(heads))
	for _, at := range page.Positions {
		if at.Partition < len(applied) {
			applied[at.Partition] = at.Seq
		}
	}
	for k, head := range heads {
		if head.Seq > applied[k] {
			page.LagEvents += head.Seq - applied[k]
		}
	}
	return page, err
}
