package read

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// Counts implements services.TurnCounter. It waits for no more than the ask's positions.
func (l *Lists) Counts(ctx context.Context, ask services.CountsAsk) (page services.CountsPage, err error) {
	tables, err := l.cfg.Tables()
	if err != nil {
		return page, err
	}
	waiting, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	heads, err := l.heads(ctx, waiting, ask.MinPosition)
	if err != nil {
		return page, err
	}
	// Tables that have any position answer: others would be asked for as long as the call may take.
	bar := slices.Concat([]events.Position{{}}, ask.MinPosition)
	page.Counts, err = from(ctx, waiting, l, tables, bar, func() (
		counts []projections.Counts, _ []events.Position, err error,
	) {
		counts, page.Positions, err = tables.Counts(ctx, ask.CountsFilter)
		return counts, page.Positions, err
	})
	if err == nil && ask.WithAnomalies {
		page.Anomalies, err = from(ctx, waiting, l, tables, bar, func() (
			[]projections.Anomalies, []events.Position, error,
		) {
			return tables.Anomalies(ctx, ask.CountsFilter)
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
