package words

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A match costs a step for each word of the text and each phrase, also where phrases and texts repeat a word.
func TestMatchIsLinear(t *testing.T) {
	t.Parallel()
	text := tokens("b "+strings.Repeat("a ", 5000), nil)
	q := Parse(`"`+strings.Repeat("a ", 3900)+`b" -"`+strings.Repeat("a ", 60)+`b"`, nil)
	m := newMatcher(append(q.wanted, q.unwanted...))
	require.Len(t, m.match(text), 2)
	require.LessOrEqual(t, m.steps, 2*len(text))
	require.Len(t, q.wanted[0], mostWords)
}

// A matcher finds what the plain comparison at each place finds.
func TestMatcherFindsWhatStands(t *testing.T) {
	t.Parallel()
	lexemes := Lexemes{"a": {"a"}, "b": {"b", "a"}, "c": {"c", "b"}}
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("abcd 学校語に")
		of := func(name string, most int) []token {
			text := rapid.StringOfN(rapid.SampledFrom(letters), 1, most, -1).Draw(t, name)
			return tokens(strings.Join(strings.Split(text, ""), rapid.SampledFrom([]string{"", " "}).Draw(t, "gap")),
				lexemes)
		}
		all, phrase := of("text", 40), of("phrase", 4)
		if len(phrase) == 0 {
			return
		}
		var want found
		for i := 0; i+len(phrase) <= len(all); i++ {
			if !standsAt(all[i:], phrase) {
				continue
			}
			if want.n == 0 {
				want.first = i
			}
			want.n++
		}
		require.Equal(t, want, newMatcher([][]token{phrase}).match(all)[0])
	})
}

func standsAt(all, phrase []token) bool {
	for j, want := range phrase {
		if j > 0 && runsOn(phrase[j-1], want) && !runsOn(all[j-1], all[j]) {
			return false
		}
		same := want.word == ""
		for _, form := range append([]string{want.word}, want.forms...) {
			for _, have := range append([]string{all[j].word}, all[j].forms...) {
				same = same || form == have
			}
		}
		if !same {
			return false
		}
	}
	return true
}

// A term is the lower half of SipHash-2-4 with the key's first 16 bytes. The values are those of the authors' reference
// implementation: the text of n bytes is 0, 1, 2 and so on. Tables hold terms, so that they may not change.
func TestTermsAreSipHash(t *testing.T) {
	t.Parallel()
	var key Key
	var text []byte
	for i := range 16 {
		key[i] = byte(i)
	}
	want := map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462,
		15: 0xa129ca6149be45e5,
	}
	for n := range 16 {
		if h, ok := want[n]; ok {
			require.Equal(t, uint32(h), uint32(key.termOf(text)), n)
		}
		text = append(text, byte(n))
	}
}
