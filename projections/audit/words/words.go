// Package words finds words in texts: it divides texts into words, also those of scripts that put no spaces between
// them, makes the terms that an index keeps instead of the words, and matches texts with a query. It does no I/O.
package words

import (
	"unicode"
	"unicode/utf8"
)

// scripts are scripts without spaces between words, or, for Hangul, with several words between two spaces. Each has its
// number of letters in a gram: words of syllables and ideographs are short, words of alphabets longer.
var scripts = []struct {
	table *unicode.RangeTable
	gram  int
}{
	{unicode.Han, 2}, {unicode.Hiragana, 2}, {unicode.Katakana, 2}, {unicode.Hangul, 2},
	{unicode.Thai, 3}, {unicode.Lao, 3}, {unicode.Khmer, 3}, {unicode.Myanmar, 3},
}

// Script returns the number of a letter's script, if the script puts no spaces between words, else -1. gram is how many
// of its letters make a gram.
func Script(r rune) (number, gram int) {
	if r < unicode.MaxLatin1 {
		return -1, 0
	}
	for i := range scripts {
		if unicode.Is(scripts[i].table, r) {
			return i, scripts[i].gram
		}
	}
	return -1, 0
}

// Lexemes are the forms under which words are found, by a text search configuration of PostgreSQL. Words of which it
// has none are not searched for. Nil stands for the configuration simple: each word is its own form.
type Lexemes map[string][]string

// token is a word of a folded text, or a single letter of a script without spaces. forms are empty for a word that is
// not searched for.
type token struct {
	from, to int
	word     string
	forms    []string
	// script and gram are those of a single letter; gram is 0 for a word.
	script, gram int
}

// tokens divides a text. The places of its tokens are those in the folded text.
func tokens(text string, lexemes Lexemes) (out []token) {
	text = Fold(text)
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		script, gram := Script(r)
		switch {
		case r == 'ー' && len(out) > 0 && out[len(out)-1].to == at && out[len(out)-1].gram > 0:
			script, gram = out[len(out)-1].script, out[len(out)-1].gram
			fallthrough
		case gram > 0:
			out = append(out, token{from: at, to: at + size, word: text[at : at+size], script: script, gram: gram})
			at += size
		case inWord(r):
			end := at + size
			for end < len(text) {
				next, n := utf8.DecodeRuneInString(text[end:])
				if _, undivided := Script(next); undivided > 0 || !inWord(next) {
					break
				}
				end += n
			}
			t := token{from: at, to: end, word: text[at:end]}
			if lexemes != nil {
				t.forms = lexemes[t.word]
				if t.word = ""; len(t.forms) > 0 {
					t.word, t.forms = t.forms[0], t.forms[1:]
				}
			}
			out = append(out, t)
			at = end
		default:
			at += size
		}
	}
	return out
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// Of returns the distinct words of texts, as Lexemes names them.
func Of(texts ...string) []string {
	var out []string
	seen := map[string]bool{}
	for _, text := range texts {
		for _, t := range tokens(text, nil) {
			if t.gram == 0 && !seen[t.word] {
				seen[t.word] = true
				out = append(out, t.word)
			}
		}
	}
	return out
}
