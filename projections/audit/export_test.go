package audit

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections"
)

// Narrow lets searches look at few turns at once, so that a small test reaches what a large table does.
func (a *Audit) Narrow(window, first, all, own int) {
	a.bounds.window, a.bounds.first, a.bounds.all, a.bounds.own = window, first, all, own
}

// NarrowTitles lets lists by a part of the title look at so many titles before they ask the index.
func (a *Audit) NarrowTitles(n int) { a.bounds.titles = n }

// ExplainTitles returns PostgreSQL's account of how it reads the titles that a filter may mean, from the index.
func (a *Audit) ExplainTitles(ctx context.Context, f projections.SessionFilter) (plan []byte, err error) {
	q := sessionQuery{SessionFilter: f, args: pgx.NamedArgs{"scan": nil, "grams": a.cfg.SearchKey.GramsOfPart(f.Title)}}
	if err := q.where(""); err != nil {
		return nil, err
	}
	err = pgx.BeginTxFunc(ctx, a.pool, a.reading(), func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "explain (analyze, format json) "+a.sql(q.titles(byGrams)), q.args).Scan(&plan)
	})
	return plan, err
}

// ExplainMetadata returns PostgreSQL's account of how it reads the first page of 100 sessions with some metadata.
func (a *Audit) ExplainMetadata(ctx context.Context, f projections.SessionFilter) (plan []byte, err error) {
	q := sessionQuery{SessionFilter: f, args: pgx.NamedArgs{"limit": 101, "text": 1, "name": Name}}
	if err := q.where(""); err != nil {
		return nil, err
	}
	_, err = a.readAt(ctx, func(tx pgx.Tx) error {
		if err := a.byMetadata(ctx, tx, &q); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "explain (analyze, format json) "+a.sql(q.page()), q.args).Scan(&plan)
	})
	return plan, err
}

// ExplainCounts returns how PostgreSQL would count the turns.
func (a *Audit) ExplainCounts(ctx context.Context, f projections.CountsFilter) (plan string, err error) {
	_, err = a.readAt(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, byScan); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "explain (format json) "+a.sql(countTurns), countArgs(f)).Scan(&plan)
	})
	return plan, err
}

// WithoutTerms leaves out what searches need.
func (a *Audit) WithoutTerms(yes bool) { a.withoutTerms = yes }
