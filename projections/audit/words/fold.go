package words

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold returns the form in which texts are compared: NFKC with full case folding, so that letters that are put together
// of several characters, wide and narrow letters, and capital and small ones are the same. The Turkish İ is an i.
func Fold(text string) string {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			text = strings.ReplaceAll(norm.NFKC.String(text), "İ", "i")
			return norm.NFKC.String(cases.Fold().String(text))
		}
	}
	return strings.ToLower(text)
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
