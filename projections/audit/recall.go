package audit

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// recallTurns is how many of an identity's newest finalized turns are searched. Their words are taken from their texts each
	// time: an index of words would keep those of redacted turns until a vacuum, and slow the tables down for all who don't search.
	recallTurns = 2000
	// recallLikely is how many of them, those with the most words of the query, are looked at closely.
	recallLikely = 300
	// recallText is how many characters of a question, and of an answer, are searched and given.
	recallText = 8000
)

// Recalled is a turn that a search found.
type Recalled struct {
	TurnID           uuid.UUID
	Question, Answer string
}

// Recall searches an identity's last 2,000 finalized turns, over all its sessions, for words of a query (PostgreSQL's full text,
// English; words of other languages that are divided by spaces are found as they are, those of others by their letters). The best
// come first.
//
// Errors: ErrUnavailable.
func (a *Audit) Recall(ctx context.Context, identity, query string, limit int) ([]Recalled, error) {
	query = cut(query, recallText)
	var out []Recalled
	err := pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{BeginQuery: a.sql.read}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, a.sql.recall, identity, query, recallTurns, limit, recallText, recallLikely, grams(query))
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Recalled])
		return err
	})
	return out, unavailable("search the turns of an identity", err)
}

// cut gives at most n characters of a text, in a form that PostgreSQL takes.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", " "), " ")
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}
