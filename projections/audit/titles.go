package audit

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

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

// byGrams is a condition that titles without some gram do not meet.
const byGrams = `s.session_id = any(array(select l.session_id from {s}.event_ledger l
		where l.title_grams @> @grams::int4[]))`

// titles is the statement for the titles of a query's sessions, in the order of the list.
func (q *sessionQuery) titles(condition string) string {
	return `select s.session_id, s.title from {s}.sessions s where s.title is not null and ` + condition + ` and ` +
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
