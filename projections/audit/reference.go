package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

const verifySuffix = "_verify"

// NewReference implements projections.View. The reference is a second set of tables, which PostgreSQL compares with the
// served ones. It takes as much disk space as those, and no memory in this process. No rebuild can begin meanwhile
// (projections.ErrRebuilding).
func (a *Audit) NewReference(ctx context.Context, _ int) (projections.Reference, error) {
	g, err := a.newTables(ctx, verifySuffix)
	if err != nil {
		return nil, err
	}
	return &reference{g}, nil
}

type reference struct{ *generation }

// digests of a session's rows in each table. Refused links and anomalies whose events have left the log are skipped,
// since a second fold can't have them. $2 is false where the terms of searches, and the grams of titles, were made in
// another way.
const digests = `
	select session_id, what, left(md5(string_agg(row, '' order by row)), 16) from (
		select session_id, 'session' what, md5(t::text) row from {s}.sessions t
		union all select session_id, 'link', md5(t::text) from {s}.session_links t
		union all select session_id, 'questions', md5(case when $2 then t::text else (to_jsonb(t) - 'terms')::text end)
			from {s}.questions t
		union all select q.session_id, 'answers',
				md5(case when $2 then t::text else (to_jsonb(t) - 'terms')::text end)
			from {s}.answers t join {s}.questions q using (turn_id)
		union all select coalesce(session_id, ''), 'ledger',
				md5(case when $2 then t::text else (to_jsonb(t) - 'description_terms')::text end)
			from {s}.event_ledger t
		union all select coalesce(session_id, ''), 'security', md5(t::text) from {s}.security_events t
			where exists (select from {s}.event_ledger l where l.partition = t.partition and l.seq = t.seq)
	) rows where $1::text[] is null or session_id = any($1)
	group by session_id, what order by session_id collate "C", what collate "C"`

// Compare implements projections.Reference. It reads the tables in one transaction, at their position when the
// transaction begins.
func (r *reference) Compare(
	ctx context.Context, sample int, fold projections.Fold, report func(projections.Difference) error,
) (sessions int, err error) {
	if sample <= 0 {
		// Fold most of the log first, so that the transaction is short.
		if err := r.reach(ctx, r.served.pool, fold); err != nil {
			return 0, err
		}
	}
	options := pgx.TxOptions{BeginQuery: r.served.sql("begin isolation level repeatable read read only; " +
		"lock table {s}.projection_checkpoints in access share mode")}
	err = pgx.BeginTxFunc(ctx, r.served.pool, options, func(tx pgx.Tx) error {
		var only []string
		if sample > 0 {
			only, err = r.sample(ctx, tx, sample, fold)
		} else {
			err = r.reach(ctx, tx, fold)
		}
		if err != nil {
			return err
		}
		sessions, err = r.merge(ctx, tx, only, report)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("verify the audit: %w", err)
	}
	return sessions, nil
}

type queries interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// reach folds the log into the reference up to the tables' position.
func (r *reference) reach(ctx context.Context, q queries, fold projections.Fold) error {
	found, _ := q.Query(ctx,
		r.served.sql("select partition, seq from {s}.projection_checkpoints where projection = $1"),
		Name)
	at, err := pgx.CollectRows(found, pgx.RowToStructByPos[events.Position])
	for _, p := range at {
		if err == nil {
			err = fold.Reach(ctx, p)
		}
	}
	return err
}

// sample picks linked sessions at random and folds each by itself.
func (r *reference) sample(ctx context.Context, tx pgx.Tx, most int, fold projections.Fold) (ids []string, err error) {
	type drawn struct {
		ID string
		events.Position
	}
	found, _ := tx.Query(ctx, r.served.sql(`select s.session_id, c.partition, c.seq
		from {s}.sessions s join {s}.projection_checkpoints c on c.partition = s.partition and c.projection = $1
		order by random() limit $2`), Name, most)
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[drawn])
	for _, d := range all {
		if err == nil {
			ids, err = append(ids, d.ID), fold.Session(ctx, d.ID, d.Position)
		}
	}
	return ids, err
}

// digest is the digest of a session's rows in one table of one side.
type digest struct{ Session, What, Digest string }

func (a digest) compare(b digest) int {
	return cmp.Or(strings.Compare(a.Session, b.Session), strings.Compare(a.What, b.What))
}

// merge compares both sides' digests, which come in the same order.
func (r *reference) merge(
	ctx context.Context, tx pgx.Tx, only []string, report func(projections.Difference) error,
) (sessions int, err error) {
	err = r.served.searchable(ctx, tx)
	alike := err == nil
	if errors.Is(err, ErrUnavailable) {
		err = nil
	}
	nextOfView, stopView := iter.Pull(side(ctx, tx, r.served.sql(digests), only, alike, &err))
	defer stopView()
	nextOfLog, stopLog := iter.Pull(side(ctx, r.pool, r.sql(digests), only, alike, &err))
	defer stopLog()
	v, inView := nextOfView()
	l, inLog := nextOfLog()
	last := ""
	for err == nil && (inView || inLog) {
		order := v.compare(l)
		switch {
		case !inLog:
			order = -1
		case !inView:
			order = 1
		}
		d := projections.Difference{SessionID: l.Session, What: l.What}
		if order <= 0 {
			d.SessionID, d.What, d.View = v.Session, v.What, v.Digest
			v, inView = nextOfView()
		}
		if order >= 0 {
			d.Log = l.Digest
			l, inLog = nextOfLog()
		}
		if d.SessionID != last {
			last = d.SessionID
			sessions++
		}
		if d.View != d.Log && err == nil {
			err = report(d)
		}
	}
	return sessions, err
}

// side yields the digests of one schema. If the schema can't be read, it ends early and sets failed.
func side(ctx context.Context, q queries, sql string, only []string, terms bool, failed *error) iter.Seq[digest] {
	return func(yield func(digest) bool) {
		found, _ := q.Query(ctx, sql, only, terms)
		defer found.Close()
		for found.Next() {
			var d digest
			if *failed = found.Scan(&d.Session, &d.What, &d.Digest); *failed != nil || !yield(d) {
				return
			}
		}
		if err := found.Err(); err != nil {
			*failed = err
		}
	}
}
