package audit

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

const verifySuffix = "_verify"

// NewReference implements projections.View. The reference is a second set of tables, which PostgreSQL compares: it takes the
// room of the tables while it lasts, and no memory here. It keeps rebuilds off meanwhile (projections.ErrRebuilding).
func (a *Audit) NewReference(ctx context.Context, _ int) (projections.Reference, error) {
	g, err := a.beside(ctx, verifySuffix)
	if err != nil {
		return nil, err
	}
	return &reference{g}, nil
}

type reference struct{ *generation }

// digests of what a session has in each table. Rows of refused links and anomalies whose events are no longer in the log are left out,
// since a second fold can't have them.
const digests = `
	select session_id, what, left(md5(string_agg(row, '' order by row)), 16) from (
		select session_id, 'session' what, md5(t::text) row from {s}.sessions t
		union all select session_id, 'link', md5(t::text) from {s}.session_links t
		union all select session_id, 'questions', md5(t::text) from {s}.questions t
		union all select q.session_id, 'answers', md5(t::text) from {s}.answers t join {s}.questions q using (turn_id)
		union all select coalesce(session_id, ''), 'ledger', md5(t::text) from {s}.event_ledger t
		union all select coalesce(session_id, ''), 'security', md5(t::text) from {s}.security_events t
			where exists (select from {s}.event_ledger l where l.partition = t.partition and l.seq = t.seq)
	) rows where $1::text[] is null or session_id = any($1) group by session_id, what order by session_id collate "C", what collate "C"`

// Compare implements projections.Reference. The tables are looked at in one transaction, at the position that they have when it begins.
func (r *reference) Compare(ctx context.Context, sample int, fold projections.Fold, report func(projections.Difference) error) (sessions int, err error) {
	if sample <= 0 {
		// Most of the log first, so that the transaction is short.
		if err := r.reach(ctx, r.served.pool, fold); err != nil {
			return 0, err
		}
	}
	options := pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; " + r.served.sql.share}
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
}

// reach brings the reference to where the tables are.
func (r *reference) reach(ctx context.Context, q queries, fold projections.Fold) error {
	found, err := q.Query(ctx, "select partition, seq from "+r.served.cfg.Schema+".projection_checkpoints where projection = $1", projection)
	if err != nil {
		return err
	}
	at, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (p events.Position, err error) {
		err = row.Scan(&p.Partition, &p.Seq)
		return p, err
	})
	if err != nil {
		return err
	}
	for _, p := range at {
		if err := fold.Reach(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// sample draws linked sessions and folds each by itself.
func (r *reference) sample(ctx context.Context, tx pgx.Tx, most int, fold projections.Fold) ([]string, error) {
	s := r.served.cfg.Schema
	found, err := tx.Query(ctx, "select s.session_id, c.partition, c.seq from "+s+".sessions s join "+s+
		".projection_checkpoints c on c.partition = s.partition and c.projection = $1 order by random() limit $2", projection, most)
	if err != nil {
		return nil, err
	}
	type drawn struct {
		id string
		at events.Position
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (d drawn, err error) {
		err = row.Scan(&d.id, &d.at.Partition, &d.at.Seq)
		return d, err
	})
	ids := make([]string, 0, len(all))
	for _, d := range all {
		if err == nil {
			ids, err = append(ids, d.id), fold.Session(ctx, d.id, d.at)
		}
	}
	return ids, err
}

// held is a digest of one side.
type held struct{ session, what, digest string }

// merge goes over both sides' digests, which come in one order.
func (r *reference) merge(ctx context.Context, tx pgx.Tx, only []string, report func(projections.Difference) error) (sessions int, err error) {
	view, stopView := iter.Pull2(side(ctx, tx, r.served.cfg.Schema, only))
	defer stopView()
	log, stopLog := iter.Pull2(side(ctx, r.pool, r.cfg.Schema, only))
	defer stopLog()
	v, vErr, vOK := view()
	l, lErr, lOK := log()
	last := ""
	for vOK || lOK {
		if vErr != nil {
			return 0, vErr
		}
		if lErr != nil {
			return 0, lErr
		}
		order := 0
		switch {
		case !lOK || vOK && before(v, l):
			order = -1
		case !vOK || before(l, v):
			order = 1
		}
		d := projections.Difference{SessionID: l.session, What: l.what}
		if order <= 0 {
			d.SessionID, d.What, d.View = v.session, v.what, v.digest
		}
		if order >= 0 {
			d.Log = l.digest
		}
		if d.SessionID != last {
			last = d.SessionID
			sessions++
		}
		if d.View != d.Log {
			if err := report(d); err != nil {
				return 0, err
			}
		}
		if order <= 0 {
			v, vErr, vOK = view()
		}
		if order >= 0 {
			l, lErr, lOK = log()
		}
	}
	return sessions, nil
}

func before(a, b held) bool {
	return a.session < b.session || a.session == b.session && a.what < b.what
}

// side gives the digests of one schema.
func side(ctx context.Context, q queries, schema string, only []string) iter.Seq2[held, error] {
	return func(yield func(held, error) bool) {
		found, err := q.Query(ctx, strings.ReplaceAll(digests, "{s}", schema), only)
		if err != nil {
			yield(held{}, err)
			return
		}
		defer found.Close()
		for found.Next() {
			var h held
			if err := found.Scan(&h.session, &h.what, &h.digest); !yield(h, err) {
				return
			}
		}
		if err := found.Err(); err != nil {
			yield(held{}, err)
		}
	}
}
