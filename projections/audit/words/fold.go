package words

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold returns the form in which texts are compared: NFKC with full case folding, so that letters that are put together
// of several characters, wide and narrow letters, and capital and small ones are the same. The Turkish İ is an i.
// Accents of Latin and Greek letters, and what is not seen (soft hyphens, variants of emoji), are left out.
func Fold(text string) string {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			text = strings.ReplaceAll(norm.NFKC.String(text), "İ", "i")
			return norm.NFKC.String(withoutAccents(cases.Fold().String(text)))
		}
	}
	return strings.ToLower(text)
}

// withoutAccents returns a folded text without accents and what is not seen, in any form if it had some.
func withoutAccents(text string) string {
	if strings.IndexFunc(text, mayGo) < 0 {
		return text // most texts of other scripts
	}
	var letter rune // the one that marks stand on
	return strings.Map(func(r rune) rune {
		switch {
		case unseen(r), isAccent(r, letter):
			return -1
		case !unicode.IsMark(r):
			letter = r
		}
		if plain, is := strokes[r]; is {
			return plain
		}
		return r
	}, norm.NFD.String(text))
}

// isAccent reports whether a mark on a letter does not count: any on a Latin or a Greek one, and the dots of ё.
func isAccent(mark, letter rune) bool {
	return '\u0300' <= mark && mark <= '\u036f' &&
		(unicode.In(letter, unicode.Latin, unicode.Greek) || letter == 'е' && mark == '\u0308')
}

// mayGo reports whether a character may hold an accent, or be one, or not be seen.
func mayGo(r rune) bool {
	return '\u00c0' <= r && r <= '\u03ff' || '\u1e00' <= r && r <= '\u1fff' || r == 'ё' || unseen(r)
}

// strokes are letters whose accent is a part of them, and the letters without it.
var strokes = map[rune]rune{'ł': 'l', 'ø': 'o', 'đ': 'd', 'ħ': 'h', 'ŧ': 't', 'ı': 'i'}

// unseen reports whether a character only says how others are shown: where a word may be divided, and which variant of
// a sign is meant.
func unseen(r rune) bool {
	return r == '\u00ad' || r == '\u2060' || r == '\ufeff' || '\ufe00' <= r && r <= '\ufe0f'
}

// unfolded returns the place in a text of a place in the folded text: the beginning of what was folded to it.
func unfolded(text string, at int) (place int) {
	for next := untilSpaceOf; place < len(text); {
		size := next(text[place:])
		folded := len(Fold(text[place : place+size]))
		switch {
		case folded <= at:
			at -= folded
			place += size
		case size == boundary(text[place:]):
			return place
		default:
			next = boundary
		}
	}
	return place
}

func untilSpaceOf(text string) int {
	part, _ := untilSpace(text)
	return len(part)
}

// boundary returns how many bytes of a text are normalised together.
func boundary(text string) int { return norm.NFKC.NextBoundaryInString(text, true) }
