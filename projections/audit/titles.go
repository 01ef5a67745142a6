package audit

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections/audit/rows"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// byTitle restricts a query to those sessions of a page whose title has the part that is asked for. PostgreSQL's own
// lower depends on the locale of the database, and knows ASCII only in the locale C; so titles are compared here, as
// the words of a search are. A common part fills a page from the newest titles; for another, the index of grams says
// which titles may have it.
func (a *Audit) byTitle(ctx context.Context, tx pgx.Tx, q *sessionQuery) error {
	part := words.Fold(q.Title)
	if part == "" {
		return nil
	}
	err := a.searchable(ctx, tx)
	indexed := err == nil
	if err != nil && !errors.Is(err, errTerms) {
		return err
	}
	q.args["grams"], q.args["scan"] = a.cfg.SearchKey.GramsOfPart(q.Title), a.bounds.titles
	if !indexed {
		q.args["scan"] = nil
	}
	ids, read, err := titled(ctx, tx, a.sql(q.titles("true")), part, q.args)
	if err == nil && indexed && len(ids) < q.args["limit"].(int) && read == a.bounds.titles {
		q.args["scan"] = nil
		ids, _, err = titled(ctx, tx, a.sql(q.titles(byGrams)), part, q.args)
	}
	q.and("s.session_id = any(@ids)", pgx.NamedArgs{"ids": ids})
	return err
}

// byMetadata restricts a query to the sessions with the metadata that is asked for. What is common fills a page from
// the newest sessions; for what is rare, the index says which sessions may have it.
func (a *Audit) byMetadata(ctx context.Context, tx pgx.Tx, q *sessionQuery) error {
	if len(q.Metadata) == 0 {
		return nil
	}
	maps.Copy(q.args, pgx.NamedArgs{"metadata": rows.ToTexts(q.Metadata), "scan": a.bounds.titles,
		"pairs": a.cfg.SearchKey.Pairs(q.Metadata)})
	err := a.searchable(ctx, tx)
	indexed := err == nil
	if err != nil && !errors.Is(err, errTerms) {
		return err
	}
	var having, read int
	err = tx.QueryRow(ctx, a.sql(`select count(*) filter (where metadata @> @metadata), count(*) from (`+
		q.newest("s.metadata", "true")+`) s`), q.args).Scan(&having, &read)
	if indexed && having < q.args["limit"].(int) && read == a.bounds.titles {
		q.and(byPairs, nil)
	}
	q.and("s.metadata @> @metadata", nil)
	return err
}

// byPairs is a condition that sessions without some metadata do not meet.
const byPairs = `s.session_id = any(array(select l.session_id from {s}.event_ledger l
		where l.description_terms @> @pairs::int4[]))`

// byGrams is a condition that titles without some gram do not meet.
const byGrams = `s.session_id = any(array(select l.session_id from {s}.event_ledger l
		where l.description_terms @> @grams::int4[]))`

// titles is the statement for the titles of a query's sessions, in the order of the list.
func (q *sessionQuery) titles(condition string) string {
	return q.newest("s.session_id, s.title", "s.title is not null and "+condition)
}

// newest is the statement for the newest of a query's sessions that meet another condition, in the order of the list.
func (q *sessionQuery) newest(columns, condition string) string {
	return `select ` + columns + ` from {s}.sessions s where ` + condition + ` and ` +
		strings.Join(q.conditions, " and ") + ` order by s.listed_at desc, s.listed_ns desc, s.session_id limit @scan`
}

// titled returns the first sessions whose title has the part, at most a page, and how many titles were read for them.
func titled(
	ctx context.Context, tx pgx.Tx, sql, part string, args pgx.NamedArgs,
) (ids []string, read int, err error) {
	found, _ := tx.Query(ctx, sql, args)
	ids = []string{}
	var id, title string
	_, err = pgx.ForEachRow(found, []any{&id, &title}, func() error {
		if read++; len(ids) < args["limit"].(int) && strings.Contains(words.Fold(title), part) {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, read, err
}
