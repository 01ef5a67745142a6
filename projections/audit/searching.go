package audit

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
	"github.com/turnledger/turnledger/projections/audit/words"
)

var errTerms = errors.Join(ErrUnavailable, projections.ErrOutdated)

// made reports whether terms with a mark are those that this process makes. Tables without terms have no mark.
func (a *Audit) made(mark string) bool {
	return mark == "" || mark == a.cfg.SearchKey.Mark(a.cfg.SearchConfig)
}

// searchable returns an error for tables whose terms were made in another way than this process makes them.
func (a *Audit) searchable(ctx context.Context, tx pgx.Tx) error {
	var mark string
	err := tx.QueryRow(ctx, a.sql("select search from {s}.generation")).Scan(&mark)
	if err == nil && !a.made(mark) {
		return errTerms
	}
	return err
}

// ErrQuery says that a query asks for no word.
var ErrQuery error = &decide.Invalid{Field: "query", Why: "must have a word to search for"}

// bounds are how far searches go at once.
type bounds struct {
	// window is how many matching turns are ranked together, the newest first.
	window int
	// first is how many turns are looked through, the newest first, to see whether the words are common. Common words
	// fill the window from the newest all turns, or the newest own turns of an identity; others have few turns.
	first, all, own int
	// rounds bounds the windows of one search. One that no term narrows, such as that for the beginning of a word, has
	// as many as hold all turns.
	rounds int
	// titles is how many titles are looked through, the newest first, before the index is asked for those with a part;
	// and of how many sessions the metadata is.
	titles int
}

var usualBounds = bounds{window: 200, first: 1000, all: 20_000, own: 2000, rounds: 3, titles: 1000}

// Search finds turns of linked sessions by their words, and returns at most limit, behind the place of a cursor, with
// the position of each partition at which the tables were read. The newest 200 matching turns are ranked, then the 200
// before them, and so on. Redacted and replaced turns, and those of erased sessions and identities, are left out. A
// page may be short, or empty, and still have a next one.
//
// Errors: ErrQuery, ErrCursor, ErrUnavailable.
func (a *Audit) Search(
	ctx context.Context, f projections.SearchFilter, limit int, cursor string,
) (hits []projections.Hit, at []events.Position, next string, err error) {
	w, err := parseWindow(cursor)
	if err != nil {
		return nil, nil, "", err
	}
	f.Query = cut(f.Query, recallText)
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		if err := a.searchable(ctx, tx); err != nil {
			return err
		}
		s := search{Audit: a, SearchFilter: f, tx: tx}
		lexemes, err := a.lexicon.Of(ctx, tx, f.Query)
		if err != nil {
			return err
		}
		if s.query = words.Parse(f.Query, lexemes); !s.query.Wants() {
			return ErrQuery
		}
		s.terms = append([]int32{}, s.query.Terms(&a.cfg.SearchKey)...) // nil would be SQL's null, which nothing holds
		s.indexed = slices.Clone(s.terms)
		if f.IdentityID != "" {
			s.indexed = append(s.indexed, a.cfg.SearchKey.Owner(f.IdentityID))
		}
		hits, w, err = s.page(ctx, w, limit)
		return err
	})
	switch {
	case errors.Is(err, ErrQuery):
		return nil, nil, "", ErrQuery
	case err != nil:
		return nil, nil, "", unavailable("search the turns", err)
	}
	return hits, at, w.String(), nil
}

// search is one search in its transaction.
type search struct {
	*Audit
	projections.SearchFilter
	tx    pgx.Tx
	query words.Query
	// terms are those of the query, indexed those that the index is asked for.
	terms, indexed []int32
}

// turnPlace orders turns by their start.
type turnPlace struct {
	at   time.Time
	turn uuid.UUID
}

func (p turnPlace) compare(o turnPlace) int {
	return cmp.Or(p.at.Compare(o.at), slices.Compare(p.turn[:], o.turn[:]))
}

// next returns the place right behind.
func (p turnPlace) next() turnPlace {
	for i := len(p.turn) - 1; i >= 0; i-- {
		if p.turn[i]++; p.turn[i] != 0 {
			return p
		}
	}
	p.at = p.at.Add(time.Microsecond)
	return p
}

// window is a run of matching turns that are ranked together: those before top, and from bottom on, behind the hit
// with the score and the place after.
type window struct {
	top, bottom, after turnPlace
	score              float64
	open               bool // there is no bottom yet
}

// page ranks windows until it has limit hits.
func (s *search) page(ctx context.Context, w window, limit int) (hits []projections.Hit, _ window, err error) {
	rounds := s.bounds.rounds
	if len(s.terms) == 0 { // most turns of a window don't match
		rounds = max(rounds, s.bounds.all/s.bounds.window)
	}
	for range rounds {
		turns, err := s.window(ctx, w)
		if err != nil {
			return nil, w, err
		}
		last := w.open && len(turns) < s.bounds.window
		if len(turns) > 0 && w.open {
			w.top, w.bottom = turns[0].place().next(), turns[len(turns)-1].place()
		}
		ranked, err := s.rank(ctx, turns, w)
		if err != nil {
			return nil, w, err
		}
		if room := limit - len(hits); len(ranked) > room {
			hits = append(hits, ranked[:room]...)
			end := hits[len(hits)-1]
			w.open, w.score, w.after = false, end.Score, hitPlace(&end)
			return hits, w, nil
		}
		hits = append(hits, ranked...)
		if last {
			return hits, window{}, nil
		}
		w = window{top: w.bottom, open: true, score: math.Inf(1)}
		if len(hits) == limit {
			return hits, w, nil
		}
	}
	return hits, w, nil
}

// foundTurn is a turn that may match.
type foundTurn struct {
	projections.Hit
	question, answer [2]string // neutral, translated
}

func (t *foundTurn) place() turnPlace { return hitPlace(&t.Hit) }

// hitPlace is the place of a hit by PostgreSQL's clock.
func hitPlace(h *projections.Hit) turnPlace { return turnPlace{micros(h.CreatedAt), h.TurnID} }

// rank matches the texts of turns with the query, and returns the hits of a window, the best first.
func (s *search) rank(ctx context.Context, turns []foundTurn, w window) (hits []projections.Hit, err error) {
	var texts []string
	if !s.lexicon.Simple() {
		for _, t := range turns {
			texts = append(append(texts, t.question[:]...), t.answer[:]...)
		}
	}
	lexemes, err := s.lexicon.Of(ctx, s.tx, texts...)
	if err != nil {
		return nil, err
	}
	for _, t := range turns {
		if err := ctx.Err(); err != nil { // texts may be long, and nobody waits for them any more
			return nil, err
		}
		s.match(&t, projections.QuestionHalf, t.question, lexemes)
		s.match(&t, projections.AnswerHalf, t.answer, lexemes)
		if t.Score > 0 && t.Score >= s.MinScore && w.ranks(&t) {
			hits = append(hits, t.Hit)
		}
	}
	slices.SortFunc(hits, func(x, y projections.Hit) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), hitPlace(&y).compare(hitPlace(&x)))
	})
	return hits, nil
}

// ranks reports whether a turn comes behind what was shown of the window.
func (w window) ranks(t *foundTurn) bool {
	return t.Score < w.score || t.Score == w.score && t.place().compare(w.after) < 0
}

// match keeps the better match of a half.
func (s *search) match(t *foundTurn, half projections.Half, texts [2]string, lexemes words.Lexemes) {
	if s.In != "" && s.In != half {
		return
	}
	for i, language := range []string{"neutral", "translated"} {
		if texts[i] == "" || s.Language != "" && s.Language != language {
			continue
		}
		if m, ok := s.query.Match(texts[i], lexemes); ok && m.Score > t.Score {
			t.Half, t.Score, t.Snippet = half, m.Score, m.Snippet()
		}
	}
}

const foundColumns = `q.session_id, q.identity_id, q.turn_id, q.created_at, q.created_ns, q.partition, q.position,
	q.question_neutral, coalesce(q.question_translated, ''), a.answer_neutral, a.answer_translated`

// inOrder is the newest turn first; that of a session or an identity must be the order of its index, too.
const inOrder = ` order by q.created_at desc, q.turn_id desc`

// window returns the newest turns of a window whose terms match, at most bounds.window if it is open.
func (s *search) window(ctx context.Context, w window) (turns []foundTurn, err error) {
	most, all := 2*s.bounds.window, s.bounds.all
	if w.open {
		most = s.bounds.window
	}
	if s.IdentityID != "" && s.SessionID == "" {
		all = s.bounds.own
	}
	recent := "(select q.* from {s}.questions q where {where}" + inOrder + " limit @scan) q"
	if len(s.terms) == 0 {
		recent = "(select q.* from {s}.questions q where {where}) q"
	}
	horizon := turnPlace{}
	for _, scan := range []int{s.bounds.first, all} {
		turns, err = s.ask(ctx, w, most, scan, `select `+foundColumns+` from `+recent+`
			left join {s}.answers a using (turn_id) where {match} and {lives}`+inOrder+` limit @most`)
		if err != nil || len(turns) == most || len(s.terms) == 0 {
			return turns, err
		}
		err = s.tx.QueryRow(ctx, s.statement(`select q.created_at, q.turn_id from {s}.questions q where {where}`+
			inOrder+` offset @scan - 1 limit 1`), s.args(w, 0, scan)).Scan(&horizon.at, &horizon.turn)
		if errors.Is(err, pgx.ErrNoRows) {
			return turns, nil
		}
		if err != nil {
			return nil, err
		}
		if len(turns)*all < most*scan {
			break // too rare to fill the window with more turns
		}
	}
	w.top = turnPlace{micros(horizon.at), horizon.turn}
	older, err := s.ask(ctx, w, most-len(turns), 0, `with found as materialized ({indexed}),
		page as materialized (select q.turn_id from found join {s}.questions q using (turn_id)
			where {where} and {lives}`+inOrder+` limit @most)
		select `+foundColumns+` from page join {s}.questions q using (turn_id)
		left join {s}.answers a using (turn_id)`+inOrder)
	return append(turns, older...), err
}

func (s *search) ask(ctx context.Context, w window, most, scan int, sql string) ([]foundTurn, error) {
	found, _ := s.tx.Query(ctx, s.statement(sql), s.args(w, most, scan))
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (t foundTurn, err error) {
		var created stamp
		err = row.Scan(&t.SessionID, &t.IdentityID, &t.TurnID, &created.at, &created.ns, &t.Position.Partition,
			&t.Position.Seq, &t.question[0], &t.question[1], (*zeronull.Text)(&t.answer[0]),
			(*zeronull.Text)(&t.answer[1]))
		t.CreatedAt = created.time()
		for _, text := range []*string{&t.question[0], &t.question[1], &t.answer[0], &t.answer[1]} {
			*text = rows.FromText(*text)
		}
		return t, err
	})
}

func (s *search) args(w window, most, scan int) pgx.NamedArgs {
	return pgx.NamedArgs{
		"terms": s.terms, "indexed": s.indexed, "most": most, "scan": scan,
		"identity": s.IdentityID, "session": s.SessionID, "top": w.top.at, "top_turn": w.top.turn,
		"bottom": w.bottom.at, "bottom_turn": w.bottom.turn,
		"since": micros(s.Since), "since_ns": rows.Nanos(s.Since), "until": micros(s.Until),
		"until_ns": rows.Nanos(s.Until),
	}
}

// statement puts the search's conditions into a statement: where of a question, match of its terms or its answer's,
// lives of its identity, and indexed, which finds turns by the index.
func (s *search) statement(sql string) string {
	where := `q.deleted_at is null and q.replaced_by_turn_id is null
		and (q.created_at, q.turn_id) < (@top, @top_turn) and (q.created_at, q.turn_id) >= (@bottom, @bottom_turn)`
	for condition, set := range map[string]bool{
		"q.identity_id = @identity": s.IdentityID != "", "q.session_id = @session": s.SessionID != "",
		"(q.created_at, q.created_ns) >= (@since, @since_ns::smallint)": !s.Since.IsZero(),
		"(q.created_at, q.created_ns) < (@until, @until_ns::smallint)":  !s.Until.IsZero(),
	} {
		if set {
			where += " and " + condition
		}
	}
	match := []string{"q.terms @> @terms::int4[]", "a.terms @> @terms::int4[]"}
	indexed := []string{
		"select turn_id from {s}.questions q where q.terms @> @indexed::int4[]",
		"select turn_id from {s}.answers a where a.terms @> @indexed::int4[]",
	}
	switch s.In {
	case projections.QuestionHalf:
		match, indexed = match[:1], indexed[:1]
	case projections.AnswerHalf:
		match, indexed = match[1:], indexed[1:]
	}
	return s.sql(strings.NewReplacer("{where}", where, "{match}", "("+strings.Join(match, " or ")+")",
		"{indexed}", strings.Join(indexed, " union "),
		"{lives}", `not exists (select from {s}.event_ledger l where l.identity_id = q.identity_id
			and l.type = 'turnledger.identity.erased.v1') and not `+alone).Replace(sql))
}

// String is the cursor at a window, "" at the end. Clients must not read it.
func (w window) String() string {
	if w == (window{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "w.%d.%s.%d.%s.%d.%s.%x.%t",
		w.top.at.UnixMicro(), w.top.turn, w.bottom.at.UnixMicro(), w.bottom.turn, w.after.at.UnixMicro(), w.after.turn,
		math.Float64bits(w.score), w.open))
}

func parseWindow(cursor string) (w window, err error) {
	if cursor == "" {
		return window{top: turnPlace{at: endOfTime}, open: true, score: math.Inf(1)}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.Split(string(raw), ".")
	if err != nil || len(parts) != 9 || parts[0] != "w" {
		return w, ErrCursor
	}
	var bits uint64
	for i, p := range []*turnPlace{&w.top, &w.bottom, &w.after} {
		var at int64
		_, badTime := fmt.Sscan(parts[1+2*i], &at)
		id, badID := uuid.Parse(parts[2+2*i])
		p.at, p.turn = time.UnixMicro(at).UTC(), id
		if badTime != nil || badID != nil || !storable(p.at) {
			return w, ErrCursor
		}
	}
	if _, err := fmt.Sscanf(parts[7], "%x", &bits); err != nil {
		return w, ErrCursor
	}
	w.score, w.open = math.Float64frombits(bits), parts[8] == "true"
	if w.String() != cursor {
		return w, ErrCursor
	}
	return w, nil
}
