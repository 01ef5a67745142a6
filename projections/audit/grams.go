package audit

import (
	"slices"
	"unicode"
)

// mostGrams bounds how many grams of a query are looked for in each turn.
const mostGrams = 64

// scripts that no spaces divide into words, or (Hangul) that put more than a word between two of them, with how
// many letters make a gram: words of syllables and ideographs are short, those of alphabets longer.
var scripts = []struct {
	table *unicode.RangeTable
	gram  int
}{
	{unicode.Han, 2}, {unicode.Hiragana, 2}, {unicode.Katakana, 2}, {unicode.Hangul, 2},
	{unicode.Thai, 3}, {unicode.Lao, 3}, {unicode.Khmer, 3}, {unicode.Myanmar, 3},
}

// grams gives what is looked for in the place of words where a query is written in such a script: overlapping
// pieces of each run of it. A run that is shorter is its own piece, but for a single letter that is no ideograph
// (a particle, most often).
func grams(query string) (out []string) {
	letters := []rune(query)
	for from, to := 0, 0; from < len(letters) && len(out) < mostGrams; from = max(to, from+1) {
		at := scriptOf(letters[from])
		if at < 0 {
			continue
		}
		for to = from + 1; to < len(letters) && (scriptOf(letters[to]) == at || letters[to] == 'ー'); to++ {
		}
		n := min(scripts[at].gram, to-from)
		if n == 1 && scripts[at].table != unicode.Han {
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

// undivided is the same for PostgreSQL, with the marks between sentences, which it may take for words: it divides
// the words of other scripts ("GoのAPI").
const undivided = `'[\u00a1\u00ab\u00bb\u00bf\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2010-\u206f\u3000-\u30ff` +
	`\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f]+'`

// scriptOf gives the script's place in scripts, or -1.
func scriptOf(r rune) int {
	if r < unicode.MaxLatin1 {
		return -1
	}
	for i := range scripts {
		if unicode.Is(scripts[i].table, r) {
			return i
		}
	}
	return -1
}
