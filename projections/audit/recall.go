package audit

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/audit/words"
)

const (
	// recallTurns is how many of an identity's newest finalized turns are searched. Their words are extracted from
	// their texts at each search: an index would keep the words of redacted turns until a vacuum, and slow down every
	// write.
	recallTurns = 2000
	// recallLikely is how many of these turns, those with the most words of the query, are ranked by full text search.
	recallLikely = 300
	// recallText is how many characters of a question, and of an answer, are searched and returned.
	recallText = 8000
)

// Recalled is a turn that a search found.
type Recalled struct {
	TurnID           uuid.UUID
	Question, Answer string
}

// Recall searches an identity's last 2,000 finalized turns, over all its sessions, for the words of a query, and
// returns the best first. It uses PostgreSQL's full text search in English. Words of other languages are matched as
// they are if spaces divide them, else by groups of letters. at is the position of each partition at which the tables
// were read.
//
// Errors: ErrUnavailable.
func (a *Audit) Recall(
	ctx context.Context, identity, query string, limit int,
) (out []Recalled, at []events.Position, err error) {
	query = cut(query, recallText)
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, a.sql(recallStatement), pgx.NamedArgs{
			"identity": identity, "query": query, "turns": recallTurns, "limit": limit, "text": recallText,
			"likely": recallLikely, "grams": grams(query),
		})
		out, err = pgx.CollectRows(found, pgx.RowToStructByPos[Recalled])
		return err
	})
	return out, at, unavailable("search the turns of an identity", err)
}

// cut returns at most n characters of a text, in a form that PostgreSQL accepts.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", " "), " ")
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}

// recallStatement extracts the words of an identity's newest turns at each search. That costs some 0.1 ms for each
// turn, so a plain search chooses the turns first: it counts how many words of the query begin in a turn as their stems
// do. (A stem is the beginning that a word's forms share, but for its last letter: happy and happi.) Grams (see the
// function grams) stand in for words that no spaces divide. Turns with less than half as many grams as the best turn
// are left out, since some grams occur in every sentence.
const recallStatement = `with words as (select string_agg(quote_literal(lexeme), ' | ')::tsquery as asked,
		array_agg(left(lexeme, case when length(lexeme) <= 3 or lexeme ~ '[0-9]' then length(lexeme)
			else length(lexeme) - 1 end)) || @grams::text[] as stems
		from unnest(to_tsvector('english', regexp_replace(@query, ` + undivided + `, ' ', 'g')))),
	recent as (select q.turn_id, q.created_at, left(q.question_neutral, @text) as question,
			left(a.answer_neutral, @text) as answer
		from {s}.questions q join {s}.answers a using (turn_id)
		where q.identity_id = @identity and q.deleted_at is null and q.replaced_by_turn_id is null and not ` + alone + `
		order by q.created_at desc limit @turns),
	likely as materialized (select recent.*,
			(select count(*) from unnest(stems) as stem where strpos(texts.lower, stem) > 0) as hits,
			(select count(*) from unnest(@grams::text[]) as gram where strpos(texts.lower, gram) > 0) as grams
		from words, recent, lateral (select lower(question || ' ' || coalesce(answer, '')) offset 0) as texts
		order by hits desc, created_at desc limit @likely),
	indexed as materialized (select *, to_tsvector('english',
			regexp_replace(question || ' ' || coalesce(answer, ''), ` + undivided + `, ' ', 'g')) as told,
			max(grams) over () as most
		from likely where hits > 0)
	select turn_id, question, coalesce(answer, '') from indexed, words
	where told @@ asked or grams > 0 and 2 * grams >= most
	order by coalesce(ts_rank(told, asked), 0) + 0.1 * grams / greatest(cardinality(@grams::text[]), 1) desc,
		created_at desc limit @limit`

// mostGrams bounds how many grams of a query are searched in each turn.
const mostGrams = 64

// grams returns the pieces to search for if a query is written in such a script: overlapping pieces of each run of its
// letters. A run that is shorter than a gram is its own piece. A single letter that is no ideograph is skipped, since
// it is mostly a particle.
func grams(query string) (out []string) {
	letters := []rune(query)
	for from, to := 0, 0; from < len(letters) && len(out) < mostGrams; from = max(to, from+1) {
		at, gram := words.Script(letters[from])
		if at < 0 {
			continue
		}
		for to = from + 1; to < len(letters) && (inScript(letters[to], at) || letters[to] == 'ー'); to++ {
		}
		n := min(gram, to-from)
		if n == 1 && !unicode.Is(unicode.Han, letters[from]) {
			continue
		}
		for i := from; i+n <= to && len(out) < mostGrams; i++ {
			if gram := string(letters[i : i+n]); !slices.Contains(out, gram) {
				out = append(out, gram)
			}
		}
	}
	return out
}

func inScript(r rune, script int) bool {
	is, _ := words.Script(r)
	return is == script
}

// undivided is the same set of scripts for PostgreSQL, with punctuation, which it may take for words. It divides words
// of other scripts from them ("GoのAPI").
const undivided = `'[\u00a1\u00ab\u00bb\u00bf\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2010-\u206f\u3000-\u30ff` +
	`\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f]+'`
