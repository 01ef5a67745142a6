package words_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/projections/audit/words"
)

func TestQueries(t *testing.T) {
	t.Parallel()
	english := words.Lexemes{"running": {"run"}, "runs": {"run"}, "the": nil, "in": nil, "house": {"hous"},
		"bank": {"bank", "bench"}, "bench": {"bench"}, "lived": {"live"}, "quickly": {"quick"}}
	for _, c := range []struct {
		lexemes words.Lexemes
		want    bool
		cases   [][2]string // a query and a text
	}{
		{nil, true, [][2]string{
			{"quark", "What is a QUARK?"}, {`"is a"`, "What is a quark"},
			{`“is a” what`, "What is a quark"}, {"quark -lepton", "a quark"},
			{`quark -"a lepton"`, "a quark, lepton"}, {"mother-in-law", "my mother-in-law"},
			{"école", "L'E\u0301COLE est fermée"}, {"学校", "私は学校に行く"}, {"学校", "大学校長会"},
			{"ລາວ", "ພາສາລາວດີ"}, {"API", "die ＡＰＩ"}, {"猫", "この猫はかわいい"}, {"データベース", "新しいデータベースです"},
			{"ﾃﾞｰﾀ", "新しい ﾃﾞｰﾀ です"}, {"ー", "ー"}, {"학교", "나는 학교에서 왔다"},
			{"ภาษาไทย", "ฉันพูดภาษาไทยได้"}, {"API", "GoのAPIです"},
			{"학교", norm.NFD.String("나는 학교에서 왔다")}, {norm.NFD.String("학교"), "나는 학교에서 왔다"},
			{"がっこう", norm.NFD.String("がっこうへ行きます")}, {"データ", "ﾃﾞｰﾀﾍﾞｰｽ"}, {"ﾃﾞｰﾀ", "データベース"},
			{"οδος", "ΟΔΟΣ"}, {"οδοσ", "οδος"}, {"STRASSE", "eine Straße"},
			{"istanbul", "İstanbul"}, {"istanbul", norm.NFD.String("İstanbul")},
			{"น้ำ", norm.NFKD.String("น้ำเย็น")},
			{"2026-11-27", "at 2026-11-27T23:40:00Z it broke"},
			{"2026-11-27", "at 2026-11-27t23:40:00.123z it broke"},
			{"2026-11-27T23:40", "Zürich, 2026-11-27T23:40:00Z."},
			{"23:40:00", "2026-11-27T23:40:00Z"}, {"3t4", "a-3t4"}, {"cafe", "le Café"},
			{"café", "a CAFE"}, {"café", "un cafe\u0301"}, {"lodz", "w Łodzi, Łódź"},
			{"елка", "ёлка"}, {"αθηνα", "Αθήνα"},
			{"Donaudampfschiff", "Donau\u00addampf\u00adschiff"},
			{"Donau\u00addampf", "donaudampf"}, {"quic*", "the Quickest"}, {"cafe*", "des cafés"},
			{"éc*", "école"}, {`"quic* brown"`, "quick brown"}, {"a*b", "a b"},
			{"👍", "well done 👍🏽!"}, {"❤", "I ❤️ it"}, {"❤️", "I ❤ it"}, {"👩‍💻", "she 👩‍💻 works"},
			{"🇵🇱", "from 🇵🇱"},
		}},
		{nil, false, [][2]string{
			{"quark lepton", "a quark"}, {`"a is"`, "What is a quark"},
			{"quark -lepton", "a quark and a lepton"}, {"mother-in-law", "in law, mother"},
			{"校学", "私は学校に行く"}, {"学校", "大学。校長"}, {"b", "デ ーb"}, {"デー", "デ ー"},
			{"2026-11-2", "2026-11-27T23:40:00Z"}, {"мои", "мой"}, {"か", "が"},
			{"quic*", "a quarrel"}, {`"quic* brown"`, "quick red brown"}, {"a -quic*", "a quick"},
			{"👍", "no 👎"},
		}},
		{english, true, [][2]string{
			{"runs", "he was running"}, {"runni*", "he was running"}, {"the*", "the house"},
			{"👍", "running 👍"}, {"bench", "a bank"}, {"bank", "a bench"},
			// As in PostgreSQL, the is any word.
			{`"running the house"`, "runs a house"}, {`"running the house"`, "runs quickly house"},
		}},
		{english, false, [][2]string{{"the", "the house"}, {`"running the house"`, "runs house"}}},
	} {
		for _, pair := range c.cases {
			query, text := pair[0], pair[1]
			q := words.Parse(query, c.lexemes)
			m, ok := q.Match(text, c.lexemes)
			require.Equal(t, c.want, ok && q.Wants(), "%s in %s", query, text)
			if ok && q.Wants() {
				require.Greater(t, m.Score, 0.0)
				require.Less(t, m.Score, 1.0)
				key := words.NewKey("k")
				require.Subset(t, key.Terms(c.lexemes, text), q.Terms(&key), query)
			}
		}
	}
	for _, query := range []string{"", " ", "-a", `"`, "?!", `-"a b"`} {
		require.False(t, words.Parse(query, nil).Wants(), query)
	}
}

// A text that a query matches is never missed by its terms.
func TestTermsMissNothing(t *testing.T) {
	t.Parallel()
	key := words.NewKey("k")
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("abz é学校に데이ภาษー -\"7:*\u00adt👍")
		text := rapid.StringOfN(rapid.SampledFrom(letters), 0, 30, -1).Draw(t, "text")
		query := rapid.StringOfN(rapid.SampledFrom(letters), 0, 6, -1).Draw(t, "query")
		q := words.Parse(query, nil)
		if _, ok := q.Match(text, nil); ok {
			require.Subset(t, key.Terms(nil, text), q.Terms(&key))
		}
	})
}

// A text that holds a part is never missed by its grams.
func TestGramsMissNothing(t *testing.T) {
	t.Parallel()
	key := words.NewKey("k")
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("aAb \u00dfs\ufb01\u0130i\u0307e\u0301\u00c9\u5b66\ub370")
		text := rapid.StringOfN(rapid.SampledFrom(letters), 0, 12, -1).Draw(t, "text")
		part := rapid.StringOfN(rapid.SampledFrom(letters), 0, 4, -1).Draw(t, "part")
		if strings.Contains(words.Fold(text), words.Fold(part)) {
			require.Subset(t, key.Grams(text), key.GramsOfPart(part))
		}
	})
	require.Nil(t, key.Grams(""))
	require.Nil(t, key.GramsOfPart(""))
	require.Len(t, key.Grams("abcab"), 3+3+3, "a b c, ab bc ca, abc bca cab")
	require.Len(t, key.GramsOfPart("abcab"), 3)
	require.Len(t, key.GramsOfPart("ab"), 1)
	require.Subset(t, key.Grams("xab"), key.GramsOfPart("B"))
}

// Texts of ASCII have a way of their own, which must make the same terms.
func TestTermsOfPlainTexts(t *testing.T) {
	t.Parallel()
	key := words.NewKey("k")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("aZT09 -_:\n.é学")), 0, 40, -1).Draw(t, "text")
		own := words.Lexemes{}
		for _, word := range words.Of(text) {
			own[word] = []string{word}
		}
		require.Equal(t, key.Terms(own, text), key.Terms(nil, text))
	})
}

// A text folds in pieces as it folds whole, and a folded text is folded already: snippets, titles and terms rest on it.
func TestFoldingIsEven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("aé ё й ł İ ß\u00ad\ufe0f\u0301\u0306\u0344\u1fb7\u2126が데Ǆ👍")
		text := rapid.StringOfN(rapid.SampledFrom(letters), 0, 12, -1).Draw(t, "text")
		other := rapid.StringOfN(rapid.SampledFrom(letters), 0, 12, -1).Draw(t, "other")
		require.Equal(t, words.Fold(text), words.Fold(words.Fold(text)))
		require.Equal(t, words.Fold(text+" b"+other), words.Fold(text)+words.Fold(" b"+other))
	})
}

// The first 64 words and phrases of a query count, wanted or not.
func TestQueriesAreBounded(t *testing.T) {
	t.Parallel()
	finds := func(query string) bool {
		q := words.Parse(query, nil)
		_, ok := q.Match("a b", nil)
		return ok
	}
	require.False(t, finds(strings.Repeat("a ", 63)+"c"))
	require.True(t, finds(strings.Repeat("a ", 64)+"c"))
	require.False(t, finds(strings.Repeat("a -d ", 31)+"a -b"))
	require.True(t, finds(strings.Repeat("a -d ", 32)+"-b"))
}

func TestTermsDependOnTheKey(t *testing.T) {
	t.Parallel()
	one, other := words.NewKey("1"), words.NewKey("2")
	require.Equal(t, one.Terms(nil, "b a b", "a"), one.Terms(nil, "a b"))
	require.Len(t, one.Terms(nil, "b a b"), 2)
	require.Nil(t, one.Terms(nil, "", "?! … - …"))
	require.NotEqual(t, one.Terms(nil, "a"), other.Terms(nil, "a"))
	require.NotEqual(t, one.Mark("simple"), other.Mark("simple"))
	require.NotEqual(t, one.Mark("simple"), one.Mark("english"))
}

func TestSnippets(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("ü ", 100) + "quark " + strings.Repeat("ö ", 200)
	m, ok := words.Parse("quark", nil).Match(text, nil)
	require.True(t, ok)
	s := m.Snippet()
	require.Contains(t, s, "quark")
	require.Equal(t, 200, utf8.RuneCountInString(s))
	require.True(t, strings.HasPrefix(s, "…") && strings.HasSuffix(s, "…"))
	text = "ﬃ" + norm.NFD.String("é") + strings.Repeat("㈱ｶﾞ ", 100) + norm.NFD.String("École") + " end"
	m, ok = words.Parse("école", nil).Match(text, nil)
	require.True(t, ok)
	require.True(t, strings.HasSuffix(m.Snippet(), norm.NFD.String("École")+" end"))
	require.Equal(t, 1+60+utf8.RuneCountInString("E\u0301cole end"), utf8.RuneCountInString(m.Snippet()))
	m, _ = words.Parse("quark", nil).Match("a quark", nil)
	require.Equal(t, "a quark", m.Snippet())
}

// BenchmarkTerms makes the terms of an answer of 600 bytes, with hardly a word twice.
func BenchmarkTerms(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var text strings.Builder
	for text.Len() < 600 {
		for range 2 + rng.IntN(6) {
			text.WriteByte(byte('a' + rng.IntN(26)))
		}
		text.WriteByte(' ')
	}
	key := words.NewKey("k")
	b.ReportAllocs()
	for b.Loop() {
		key.Terms(nil, text.String())
	}
}
