package audit_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// asked opens a turn with a question, and answers it where there is an answer.
func (j *journal) asked(session, request, question, answer string) {
	j.add(turntest.Started(session, request, question))
	if answer != "" {
		j.add(turntest.Finalized(session, request, answer))
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
		require.ErrorIs(t, must.Err(a.Search(t.Context(), q(query), 1, "")), audit.ErrQuery)
	}
	require.ErrorIs(t, must.Err(a.Search(t.Context(), q("a"), 1, "x")), audit.ErrCursor)
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
		hits, _, next := must.Three(a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 70, cursor))(t)
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
	log.add(decide.Redact{TurnID: id("a", "r")}.On(log.state("a")).Facts...)
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
	hits, at, _ := must.Three(a.Search(t.Context(), f, 5, ""))(t)
	require.Len(t, hits, 1)
	require.Equal(t, "a tap\x00of ␀0", hits[0].Snippet, "the text is as it was said")
	positions := []events.Position{{Seq: log.last}, {Partition: 1, Seq: 7}, {Partition: 2, Seq: 7}}
	require.Equal(t, positions, at)
	_, at = must.Two(a.Counts(t.Context(), projections.CountsFilter{By: projections.ByNone}))(t)
	require.Equal(t, positions, at)
	_, at, _ = must.Three(a.Sessions(t.Context(), projections.SessionFilter{}, 5, ""))(t)
	require.Equal(t, positions, at)
	_, at, _ = must.Three(a.IdentityTurns(t.Context(), "ada", time.Time{}, time.Time{}, 5, ""))(t)
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
	_, _, _, err := a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 5, "")
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
	_, _, search := must.Three(a.Search(t.Context(), projections.SearchFilter{Query: "tap"}, 1, ""))(t)
	_, _, list := must.Three(a.Sessions(t.Context(), projections.SessionFilter{}, 1, ""))(t)
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

//conformance:h5
func TestRecallFindsWhatAnIdentitySaid(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s1", "u"), linked("s2", "u"), linked("s3", "other"))
	log.add(turntest.Turn("s1", "r1", "My favourite colour is teal.", "Noted.")...)
	log.add(turntest.Turn("s1", "r2", "I have two cats, Ada and Bob.", "Lovely cats!")...)
	log.add(turntest.Turn("s2", "r3", "Was für ein Wetter in Gdańsk?", "Regen.")...)
	log.add(turntest.Turn("s2", "r4", "My cats are called Cleo and Dot.", "Noted: the cats.")...)
	log.add(turntest.Turn("s2", "r7", "Am I happier in Łódź, hoping for relational databases?", "Yes, 42-7.")...)
	log.add(turntest.Turn("s3", "r5", "The cat of another.", "Whose cat?")...)
	pending := started("s2", "r6")
	pending.QuestionNeutral = "what do cats eat"
	log.add(pending)
	log.redact("s1", id("s1", "r2"))
	a := filled(t, log, 7)
	for query, want := range map[string][]string{
		"which COLOUR do I like?":    {"My favourite colour is teal."},
		"what is my cat called":      {"My cats are called Cleo and Dot."},
		"a\x00 teal\xff":             {"My favourite colour is teal."},
		"Gdańsk":                     {"Was für ein Wetter in Gdańsk?"},
		"I hope":                     {"Am I happier in Łódź, hoping for relational databases?"},
		"Łódź":                       {"Am I happier in Łódź, hoping for relational databases?"},
		"the relation of a database": {"Am I happier in Łódź, hoping for relational databases?"},
		"42-7":                       {"Am I happier in Łódź, hoping for relational databases?"},
		"who is the":                 nil,
		"":                           nil,
		"':* & ! | <-> \\ \"'\x01":   nil,
	} {
		got, _, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		var questions []string
		for _, r := range got {
			questions = append(questions, r.Question)
		}
		require.Equal(t, want, questions, query)
	}
	found, _ := must.Two(a.Recall(t.Context(), "nobody", "cat", 5))(t)
	require.Empty(t, found)
}

// Not every language puts spaces between its words.
func TestRecallWithoutSpaces(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	for i, turn := range [][2]string{
		{"我最喜欢的颜色是青绿色。", "好的，我记住了。"},
		{"我住在上海，家里有两只猫。", "它们叫什么名字？"},
		{"我的飞机票是几点的？", "明天早上八点。"},
		{"私の猫の名前はミケです。", "かわいい名前ですね。"},
		{"京都で一番好きなラーメン屋は「たかばし」です。", "今度行ってみたいです。"},
		{"会議は木曜日の午後三時です。", "カレンダーに入れました。"},
		{"แมวของฉันชื่อส้มโอ", "น่ารักมากครับ"},
		{"ฉันทำงานที่โรงพยาบาลในเชียงใหม่", "รับทราบครับ"},
		{"우리 고양이는 나비라고 해요.", "귀여운 이름이네요."},
		{"저는 부산에서 태어났어요.", "부산은 아름다운 도시죠."},
		{"仕事ではGoでframeworkなしのAPIを書いています。", "なるほど。"},
		{"My cats are called Cleo and Dot.", "Noted."},
	} {
		log.add(turntest.Turn("s", fmt.Sprint("r", i), turn[0], turn[1])...)
	}
	a := filled(t, log, 7)
	for query, want := range map[string]string{
		"你还记得我喜欢什么颜色吗":            "我最喜欢的颜色是青绿色。",
		"上海的天气怎么样？":               "我住在上海，家里有两只猫。",
		"飞机几点起飞":                  "我的飞机票是几点的？",
		"猫は何という名前でしたか？":           "私の猫の名前はミケです。",
		"おすすめのラーメンは？":             "京都で一番好きなラーメン屋は「たかばし」です。",
		"会議はいつ？":                  "会議は木曜日の午後三時です。",
		"แมวชื่ออะไร":             "แมวของฉันชื่อส้มโอ",
		"โรงพยาบาลอยู่ที่ไหน":     "ฉันทำงานที่โรงพยาบาลในเชียงใหม่",
		"고양이 이름이 뭐였지?":            "우리 고양이는 나비라고 해요.",
		"내가 어디서 태어났지? 부산이었나?":     "저는 부산에서 태어났어요.",
		"what are my cats called": "My cats are called Cleo and Dot.",
		"Cleoは犬ですか":               "My cats are called Cleo and Dot.",
		"which framework?":        "仕事ではGoでframeworkなしのAPIを書いています。",
	} {
		got, _, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		require.NotEmpty(t, got, query)
		require.Equal(t, want, got[0].Question, "%s: %v", query, got)
	}
	for _, query := range []string{"火星", "ไดโนเสาร์", "の", "공룡"} {
		got, _, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		require.Empty(t, got, query)
	}
}

// A search is bounded by what is searched, not by what there is.
func TestRecallOfVeryLongTexts(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	var text strings.Builder
	for i := range 40_000 {
		fmt.Fprint(&text, " word", i)
	}
	long := text.String()
	log.add(turntest.Turn("s", "r", "first things"+long, long)...)
	a := filled(t, log, 7)
	got, _ := must.Two(a.Recall(t.Context(), "u", "first"+long, 5))(t)
	require.Len(t, got, 1)
	require.Len(t, got[0].Question, 8000)
}

// spoken are the texts that are said and asked for.
var spoken = []string{
	"tap", "Tap", "washer", "of the", "école", "学校", "学校に行く", "校", "ไทย", "mother-in-law", "law", "Cafe\u0301", "👍",
}

// TestSearchesAreThoseOfAModel compares searches, through all ways to find turns, with a plain look at each turn.
func TestSearchesAreThoseOfAModel(t *testing.T) {
	t.Parallel()
	read := &current{newJournal()}
	key := words.NewKey("k")
	a := openWith(t, audit.Config{URL: pg.URL(t), Log: read, SearchKey: key})
	rapid.Check(t, func(t *rapid.T) {
		log := said(t)
		read.journal = log
		a.empty()
		claim(t, log, a).all(rapid.IntRange(1, 30).Draw(t, "batch"))
		for range 8 {
			m := searchModel{key: key, window: rapid.IntRange(1, 6).Draw(t, "window"), f: askedOf(t, log)}
			a.Narrow(m.window, rapid.IntRange(1, 4).Draw(t, "first"), rapid.IntRange(4, 12).Draw(t, "all"),
				rapid.IntRange(4, 8).Draw(t, "own"))
			require.Equal(t, m.hits(log), searchAll(t, a.Audit, m.f, rapid.IntRange(1, 7).Draw(t, "limit")), m.f)
		}
	})
}

// said is a log of a few sessions, some of whose turns are at the same microsecond.
func said(t *rapid.T) *journal {
	log := newJournal()
	text := func() string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(spoken), 1, 6).Draw(t, "text"), " ")
	}
	log.add(linked("a", "ada"), linked("b", "ada"), linked("c", "bob"))
	for n := range rapid.IntRange(5, 40).Draw(t, "turns") {
		session, request := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "session"), fmt.Sprint(n)
		if rapid.Bool().Draw(t, "at once") {
			log.pass(-time.Second)
		}
		before := log.state(session)
		if before.Erased != 0 {
			continue
		}
		q := events.Question{QuestionNeutral: text()}
		if rapid.Bool().Draw(t, "translated") {
			q.QuestionTranslated = text()
		}
		log.add(&events.TurnStarted{TurnID: id(session, request), SessionID: session, RequestID: request, Question: q})
		answer := events.Answer{AnswerNeutral: text(), AnswerTranslated: text()}
		switch rapid.IntRange(0, 9).Draw(t, "then") {
		case 0:
			log.redact(session, id(session, request))
		case 1:
			log.add(&events.TurnFinalized{TurnID: id(session, request), SessionID: session, Answer: answer},
				&events.TurnCorrected{TurnID: id(session, "c"+request), SessionID: session, RequestID: "c" + request,
					ReplacesTurnID: id(session, request), Question: q, Answer: events.Answer{AnswerNeutral: text()}})
		case 2, 3:
		case 4:
			if n%7 == 0 {
				log.add(erased(session))
			}
		default:
			log.add(&events.TurnFinalized{TurnID: id(session, request), SessionID: session, Answer: answer})
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "bob goes") == 0 {
		log.add(&events.IdentityErased{IdentityID: "bob", ReceiptID: "x"})
	}
	if rapid.Bool().Draw(t, "d comes") && log.state("d").Erased == 0 {
		log.add(linked("d", "carol"))
	}
	return log
}

// askedOf is any search of a log.
func askedOf(t *rapid.T, log *journal) (f projections.SearchFilter) {
	// The one wanted word makes it a search.
	parts := []string{rapid.SampledFrom(append(slices.Clone(spoken), "wash*", "caf*")).Draw(t, "word")}
	for _, word := range rapid.SliceOfN(rapid.SampledFrom(spoken), 0, 2).Draw(t, "more") {
		parts = append(parts, rapid.SampledFrom([]string{word, `"` + word + ` tap"`, "-" + word}).Draw(t, "part"))
	}
	f.Query = strings.Join(parts, " ")
	one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	f.IdentityID = one("identity", "", "", "ada", "bob", "carol", "nobody")
	f.SessionID = one("in session", "", "", "", "a", "c")
	f.In = projections.Half(one("in", "", "", "question", "answer"))
	f.Language = one("language", "", "", "neutral", "translated")
	f.MinScore = rapid.SampledFrom([]float64{0, 0, 0.3, 0.7}).Draw(t, "score")
	moment := func(label string) time.Time {
		at := log.events[rapid.IntRange(0, len(log.events)-1).Draw(t, label)].Time
		return at.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, label)))
	}
	if one("bounds", "none", "since", "until") == "since" {
		f.Since = moment("since")
	}
	if one("bounds", "none", "since", "until") == "until" {
		f.Until = moment("until")
	}
	return f
}

// searchModel finds what a search must find.
type searchModel struct {
	key    words.Key
	window int
	f      projections.SearchFilter
}

// candidate is a turn whose terms match, with the hit if its text does.
type candidate struct {
	projections.Hit
	found bool
}

// hits ranks the newest candidates together, then those before, and so on.
func (m searchModel) hits(log *journal) (out []projections.Hit) {
	for chunk := range slices.Chunk(m.candidates(log), m.window) {
		chunk = slices.DeleteFunc(chunk, func(c candidate) bool { return !c.found })
		slices.SortStableFunc(chunk, func(x, y candidate) int { return cmp.Compare(y.Score, x.Score) })
		for _, c := range chunk {
			out = append(out, c.Hit)
		}
	}
	return out
}

func (m searchModel) candidates(log *journal) (out []candidate) {
	gone := map[string]bool{}
	for _, e := range log.events {
		if f, ok := e.Fact.(*events.IdentityErased); ok {
			gone[f.IdentityID] = true
		}
	}
	for _, session := range []string{"a", "b", "c", "d"} {
		s := log.state(session)
		if s.Identity == "" || s.Erased != 0 || gone[s.Identity] {
			continue
		}
		for _, turn := range s.Turns {
			if c, ok := m.candidate(s, turn); ok {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(x, y candidate) int {
		return cmp.Or(y.CreatedAt.Truncate(time.Microsecond).Compare(x.CreatedAt.Truncate(time.Microsecond)),
			slices.Compare(y.TurnID[:], x.TurnID[:]))
	})
	return out
}

func (m searchModel) candidate(s *session.State, turn *session.Turn) (c candidate, ok bool) {
	f := m.f
	switch {
	case turn.Status != session.Pending && turn.Status != session.Finalized,
		f.IdentityID != "" && f.IdentityID != s.Identity, f.SessionID != "" && f.SessionID != s.SessionID,
		turn.CreatedAt.Before(f.Since), !f.Until.IsZero() && !turn.CreatedAt.Before(f.Until):
		return c, false
	}
	c.Hit = projections.Hit{SessionID: s.SessionID, IdentityID: s.Identity, TurnID: turn.ID, CreatedAt: turn.CreatedAt,
		Position: events.Position{Seq: turn.Started}}
	halves := map[projections.Half][]string{
		projections.QuestionHalf: {turn.Question.QuestionNeutral, turn.Question.QuestionTranslated}}
	if turn.Answer != nil {
		halves[projections.AnswerHalf] = []string{turn.Answer.AnswerNeutral, turn.Answer.AnswerTranslated}
	}
	query := words.Parse(f.Query, nil)
	for _, half := range []projections.Half{projections.QuestionHalf, projections.AnswerHalf} {
		texts := halves[half]
		if texts == nil || f.In != "" && f.In != half {
			continue
		}
		terms := m.key.Terms(nil, texts...)
		ok = ok || !slices.ContainsFunc(query.Terms(&m.key), func(t int32) bool { return !slices.Contains(terms, t) })
		for i, language := range []string{"neutral", "translated"} {
			found, matches := query.Match(texts[i], nil)
			if matches && (f.Language == "" || f.Language == language) && found.Score > c.Score {
				c.Half, c.Score, c.Snippet = half, found.Score, found.Snippet()
			}
		}
	}
	c.found = c.Score > 0 && c.Score >= f.MinScore
	return c, ok
}
