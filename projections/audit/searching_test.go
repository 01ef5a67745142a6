package audit_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// asked opens a turn with a question, and answers it where there is an answer.
func (j *journal) asked(session, request, question, answer string) {
	j.add(&events.TurnStarted{TurnID: id(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: question}})
	if answer != "" {
		j.add(&events.TurnFinalized{TurnID: id(session, request), SessionID: session,
			Answer: events.Answer{AnswerNeutral: answer}})
	}
}

// searchAll pages through all hits.
func searchAll(t require.TestingT, a *audit.Audit, f projections.SearchFilter, limit int) (all []projections.Hit) {
	for cursor, page := "", 0; ; page++ {
		hits, _, next, err := a.Search(context.Background(), f, limit, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(hits), limit)
		require.Less(t, page, 1000, "no end")
		all = append(all, hits...)
		if cursor = next; next == "" {
			return all
		}
	}
}

func hitsOf(hits []projections.Hit, names map[string]string) (out []string) {
	for _, h := range hits {
		out = append(out, names[h.TurnID.String()]+" "+string(h.Half))
	}
	return out
}

//conformance:h5 s25
func TestSearchOfTurns(t *testing.T) {
	t.Parallel()
	log, names := newJournal(), map[string]string{}
	say := func(session, request, question, answer string) {
		names[id(session, request).String()] = request
		log.asked(session, request, question, answer)
	}
	log.add(linked("a", "ada"), linked("b", "bob"), linked("c", "carol"), linked("d", "dave"))
	say("a", "tap", "My tap drips", "Replace the washer of the tap")
	say("b", "bath", "A bath tub", "Taps are not baths. The washer is new")
	say("a", "pending", "washer?", "")
	say("nobody", "anonymous", "washer", "washer")
	say("c", "gone", "washer", "washer")
	log.add(&events.IdentityErased{IdentityID: "carol", ReceiptID: "x"})
	say("d", "closed", "washer", "washer")
	log.add(erased("d"))
	say("a", "redacted", "washer", "washer")
	log.redact("a", id("a", "redacted"))
	say("a", "old", "washer", "washer")
	names[id("a", "new").String()] = "new"
	log.add(&events.TurnCorrected{TurnID: id("a", "new"), SessionID: "a", RequestID: "new",
		ReplacesTurnID: id("a", "old"), Answer: events.Answer{AnswerNeutral: "Kołnierz 学校に行く"},
		Question: events.Question{QuestionNeutral: "q", QuestionTranslated: "podkładka"}})
	a := filled(t, log, 3)
	find := func(f projections.SearchFilter) []string { return hitsOf(searchAll(t, a.Audit, f, 50), names) }
	q := func(query string) projections.SearchFilter { return projections.SearchFilter{Query: query} }

	require.Equal(t, []string{"pending question", "tap answer", "bath answer"}, find(q("washer")))
	require.Equal(t, []string{"tap question"}, find(q("tap -washer")))
	require.Equal(t, []string{"tap answer"}, find(q(`"washer of the"`)))
	require.Equal(t, []string{"new question"}, find(q("PODKŁADKA")))
	require.Equal(t, []string{"new answer"}, find(q("学校")))
	require.Empty(t, find(q("校学")))
	require.Empty(t, find(projections.SearchFilter{Query: "podkładka", Language: "neutral"}))
	active := log.state("b").LastActive
	for _, c := range []struct {
		f    projections.SearchFilter
		want []string
	}{
		{projections.SearchFilter{In: projections.QuestionHalf}, []string{"pending question"}},
		{projections.SearchFilter{In: projections.AnswerHalf}, []string{"tap answer", "bath answer"}},
		{projections.SearchFilter{IdentityID: "bob"}, []string{"bath answer"}},
		{projections.SearchFilter{SessionID: "a", MinScore: 0.75}, []string{"pending question"}},
		{projections.SearchFilter{Period: projections.Period{Until: active}}, []string{"tap answer", "bath answer"}},
		{projections.SearchFilter{Period: projections.Period{Since: active}}, []string{"pending question"}},
	} {
		c.f.Query = "washer"
		require.Equal(t, c.want, find(c.f), "%+v", c.f)
	}
	require.Len(t, searchAll(t, a.Audit, q("washer"), 1), 3, "a page each")

	hit := searchAll(t, a.Audit, q("drips"), 1)[0]
	require.Equal(t, "My tap drips", hit.Snippet)
	require.Equal(t, []any{"a", "ada", id("a", "tap"), events.Position{Seq: 5}},
		[]any{hit.SessionID, hit.IdentityID, hit.TurnID, hit.Position})
	require.Equal(t, log.state("a").Turn(id("a", "tap")).CreatedAt, hit.CreatedAt)

	for _, query := range []string{"-washer", "?"} {
		_, _, _, err := a.Search(t.Context(), q(query), 1, "")
		require.ErrorIs(t, err, audit.ErrQuery)
	}
	_, _, _, err := a.Search(t.Context(), q("a"), 1, "x")
	require.ErrorIs(t, err, audit.ErrCursor)
}

// Pages stay what they are while turns come and go, and windows follow each other without a gap.
func TestPagesOfASearch(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("a", "ada"))
	const turns = 450
	for n := range turns {
		log.asked("a", fmt.Sprint(n), "tap "+fmt.Sprint(n), "")
	}
	a := filled(t, log, 100)
	var all []projections.Hit
	for cursor, page := "", 0; ; page++ {
		hits, _, next, err := a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 70, cursor)
		require.NoError(t, err)
		all = append(all, hits...)
		if cursor = next; next == "" {
			break
		}
		if page < 3 {
			log.asked("a", fmt.Sprint("later", page), "tap", "")
			log.redact("a", id("a", fmt.Sprint(turns-200+page)))
			claim(t, log, a).all(10)
		}
	}
	seen := map[string]int{}
	for _, h := range all {
		seen[h.TurnID.String()]++
	}
	for n := range turns {
		if n >= turns-200 && n < turns-197 {
			continue // redacted meanwhile
		}
		require.Equal(t, 1, seen[id("a", fmt.Sprint(n)).String()], n)
	}
}

// A configuration of PostgreSQL finds the forms of a word. Tables whose terms were made in another way can't be
// searched.
func TestSearchByAConfiguration(t *testing.T) {
	t.Parallel()
	log, url := newJournal(), pg.URL(t)
	log.add(linked("a", "ada"))
	log.asked("a", "r", "He was running", "The taps are dripping")
	opened := func(config, key string) *tables {
		return openWith(t, audit.Config{URL: url, Log: log, SearchConfig: config, SearchKey: words.NewKey(key)})
	}
	english := opened("english", "k")
	claim(t, log, english).all(2)
	require.Len(t, searchAll(t, english.Audit, projections.SearchFilter{Query: "runs"}, 5), 1)
	require.Len(t, searchAll(t, english.Audit, projections.SearchFilter{Query: `the tap`}, 5), 1)
	_, _, _, err := english.Search(t.Context(), projections.SearchFilter{Query: "the"}, 1, "")
	require.ErrorIs(t, err, audit.ErrQuery)
	for _, other := range []*tables{opened("simple", "k"), opened("english", "other")} {
		_, _, _, err := other.Search(t.Context(), projections.SearchFilter{Query: "run"}, 1, "")
		require.ErrorIs(t, err, audit.ErrUnavailable)
		require.ErrorIs(t, err, projections.ErrOutdated)
	}
	claim(t, log, opened("simple", "k"))
	_, _, _, err = english.Search(t.Context(), projections.SearchFilter{Query: "run"}, 1, "")
	require.ErrorIs(t, err, audit.ErrUnavailable, "some terms may be of the other configuration")
}

// A redaction takes the terms away, and no row or index holds a word.
func TestTermsGoWithTheText(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("a", "ada"))
	log.asked("a", "r", "quark", "lepton")
	a := filled(t, log, 5)
	terms := func() []string {
		return a.column("select coalesce(q.terms::text, '-') || coalesce(a.terms::text, '-') " +
			"from turnledger.questions q join turnledger.answers a using (turn_id)")
	}
	require.NotContains(t, terms()[0], "-{")
	log.add(log.state("a").DecideRedact(conversation.Redact{TurnID: id("a", "r")}).Facts...)
	claim(t, log, a).all(5)
	require.Equal(t, []string{"--"}, terms())
	require.Empty(t, searchAll(t, a.Audit, projections.SearchFilter{Query: "quark"}, 5))
}

// What is at the edge of a filter or a bound is in, and what is behind it is out.
func TestEdgesOfASearch(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("a", "ada"))
	log.asked("a", "r", "a tap\x00of ␀0", "")
	a := filled(t, log, 5)
	// The tables tell of partitions in order, wherever their rows stand.
	for _, partition := range []int{2, 1} {
		a.exec("insert into turnledger.projection_checkpoints (projection, partition, seq, event_id, epoch) "+
			"values ('audit', $1, 7, '', 1)", partition)
	}
	f := projections.SearchFilter{Query: "tap"}
	hits, at, _, err := a.Search(t.Context(), f, 5, "")
	require.NoError(t, err)
	require.Len(t, hits, 1)
	require.Equal(t, "a tap\x00of ␀0", hits[0].Snippet, "the text is as it was said")
	positions := []events.Position{{Seq: log.last}, {Partition: 1, Seq: 7}, {Partition: 2, Seq: 7}}
	require.Equal(t, positions, at)
	_, at = must.Two(a.Counts(t.Context(), projections.CountsFilter{By: projections.ByNone}))(t)
	require.Equal(t, positions, at)
	_, at, _, err = a.Sessions(t.Context(), projections.SessionFilter{}, 5, "")
	require.NoError(t, err)
	require.Equal(t, positions, at)
	_, at, _, err = a.IdentityTurns(t.Context(), "ada", time.Time{}, time.Time{}, 5, "")
	require.NoError(t, err)
	require.Equal(t, positions, at)
	_, at = must.Two(a.TurnsByID(t.Context(), nil))(t)
	require.Equal(t, positions, at)
	_, at = must.Two(a.Recall(t.Context(), "ada", "tap", 5))(t)
	require.Equal(t, positions, at)

	f.MinScore = hits[0].Score
	require.Len(t, searchAll(t, a.Audit, f, 5), 1, "its own score")
	f.MinScore = math.Nextafter(f.MinScore, 1)
	require.Empty(t, searchAll(t, a.Audit, f, 5))

	f = projections.SearchFilter{Query: "tap" + strings.Repeat(" ", 7991) + "lacked"}
	require.Empty(t, searchAll(t, a.Audit, f, 5), "8,000 characters of a query count")
	f.Query = "tap" + strings.Repeat(" ", 7997) + "lacked"
	require.Len(t, searchAll(t, a.Audit, f, 5), 1, "what is behind them is not searched for")

	a.exec("update turnledger.generation set search = 'another'")
	_, _, _, err = a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 5, "")
	require.ErrorIs(t, err, projections.ErrOutdated, "the terms of another key")
}

// A cursor is one that a page gave, letter for letter.
func TestCursorsAreStrict(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("a", "ada"), linked("b", "ada"), linked("c", "ada"))
	for _, session := range []string{"a", "b", "c"} {
		log.asked(session, "r", "tap", "")
	}
	a := filled(t, log, 5)
	_, _, search, err := a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 1, "")
	require.NoError(t, err)
	_, _, list, err := a.Sessions(t.Context(), projections.SessionFilter{}, 1, "")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		cursor string
		read   func(string) error
	}{
		"search": {search, func(cursor string) error {
			_, _, _, err := a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 1, cursor)
			return err
		}},
		"list": {list, func(cursor string) error {
			_, _, _, err := a.Sessions(t.Context(), projections.SessionFilter{}, 1, cursor)
			return err
		}},
	} {
		require.NoError(t, c.read(c.cursor), name)
		raw := must.Get(base64.RawURLEncoding.DecodeString(c.cursor))(t)
		parts := strings.Split(string(raw), ".")
		for i, part := range parts {
			for _, other := range []string{"", "0" + part, "+" + part, part + "x", part + " ",
				strings.ToUpper(part) + "-"} {
				changed := slices.Clone(parts)
				changed[i] = other
				text := strings.Join(changed, ".")
				if name == "list" && i == 3 && events.ValidID(other) == nil {
					continue // another session
				}
				require.ErrorIs(t, c.read(base64.RawURLEncoding.EncodeToString([]byte(text))), audit.ErrCursor, text)
			}
		}
		for _, other := range []string{"x", c.cursor + "A", c.cursor + "=", c.cursor[:len(c.cursor)-1], "A",
			base64.RawURLEncoding.EncodeToString(append(raw, ".x"...))} {
			if name == "list" && strings.HasPrefix(other, c.cursor) && len(other) > len(c.cursor)+1 {
				continue // another session
			}
			require.ErrorIs(t, c.read(other), audit.ErrCursor, "%s %s", name, other)
		}
	}
}
