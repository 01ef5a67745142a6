package recall

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

//conformance:i63 i65
func TestSnippetsAreWholeSentencesAndShort(t *testing.T) {
	t.Parallel()
	require.Equal(t, "- I like teal. Do you? Version 1.5 is out! 猫が好き。 犬も。\n- Yes.",
		summarise([]Found{{Text: "I like teal. Do you?  Version 1.5 is out!\n猫が好き。犬も。"}, {Text: "I like teal."},
			{Text: "Yes.\n\n"}, {Text: ""}}))
	long := strings.Repeat("x", 500) + "."
	require.Empty(t, summarise([]Found{{Text: long}}), "half a sentence is none")
	require.Equal(t, "- Short.", summarise([]Found{{Text: "Short. " + long + " Behind it."}}))
	thai := "ฉันชอบสีฟ้า " + strings.Repeat("แมว", 150)
	require.Equal(t, "- ฉันชอบสีฟ้า", summarise([]Found{{Text: thai}}),
		"a space ends a sentence where there is no full stop")
	rapid.Check(t, func(t *rapid.T) {
		var found []Found
		for _, s := range rapid.SliceOfN(rapid.StringMatching(`([a-zż ]{1,80}[.!?] ?){1,12}`), 0, 30).Draw(t,
			"memories") {
			found = append(found, Found{Text: s})
		}
		snippet := summarise(found)
		if n := utf8.RuneCountInString("Long-term memory:\n" + snippet); n > 2000 {
			t.Fatalf("%d characters", n)
		}
		for line := range strings.Lines(snippet) {
			if s := strings.TrimSpace(line); !strings.ContainsAny(s[len(s)-1:], ".!?") {
				t.Fatalf("half a sentence: %q", s)
			}
		}
	})
}

//conformance:i60
func TestScopesAreOneEach(t *testing.T) {
	t.Parallel()
	require.Equal(t, "user:ada", Scope("ada", "s"))
	require.Equal(t, "thread:s", Scope("", "s"))
	seen := map[string]string{}
	for _, id := range []string{"a", "A", "a b", "a/b", "ü", strings.Repeat("x", 80), strings.Repeat("x", 81),
		strings.TrimPrefix(Scope("a b", ""), "user:")} {
		scope := Scope(id, "")
		require.Regexp(t, `^user:[a-zA-Z0-9_:-]{1,95}$`, scope)
		require.Empty(t, seen[scope], id)
		seen[scope] = id
	}
}
