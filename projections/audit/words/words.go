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

// token is a word of a folded text, a sign such as an emoji, or a single letter of a script without spaces. forms are
// empty for a word that is not searched for.
type token struct {
	from, to int
	word     string
	forms    []string
	// plain is the word as it stands in the folded text; begins: words that begin so are searched for.
	plain  string
	begins bool
	// script and gram are those of a single letter; gram is 0 for a word.
	script, gram int
}

// tokens divides a text. The places of its tokens are those in the folded text.
func tokens(text string, lexemes Lexemes) []token { return tokensOf(Fold(text), lexemes) }

// tokensOf divides a folded text.
func tokensOf(text string, lexemes Lexemes) (out []token) {
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
			t := wordAt(text, at, lexemes)
			out = append(out, t)
			if at = t.to; at < len(text) && dividesTime(text, t.from, at) {
				at++
			}
		case isSign(r):
			out = append(out, token{from: at, to: at + size, word: text[at : at+size]})
			at += size
		default:
			at += size
		}
	}
	return out
}

// wordAt returns the word that begins at a place of a folded text.
func wordAt(text string, at int, lexemes Lexemes) token {
	end := at
	for end < len(text) {
		next, n := utf8.DecodeRuneInString(text[end:])
		if _, undivided := Script(next); undivided > 0 || !inWord(next) || end > at && dividesTime(text, at, end) {
			break
		}
		end += n
	}
	t := token{from: at, to: end, word: text[at:end], plain: text[at:end]}
	if lexemes != nil {
		t.forms = lexemes[t.word]
		if t.word = ""; len(t.forms) > 0 {
			t.word, t.forms = t.forms[0], t.forms[1:]
		}
	}
	return t
}

// dividesTime reports whether the letter at a place behind the digits that begin at from is the T or the Z of a time
// such as 2026-11-27T23:40:00Z.
func dividesTime(text string, from, at int) bool {
	if from == 0 || !digits(text[from:at]) {
		return false
	}
	before, next := text[from-1], text[at+1:]
	switch text[at] {
	case 't', 'T':
		return before == '-' && at-from == 2 && next != "" && digits(next[:1])
	case 'z', 'Z':
		r, _ := utf8.DecodeRuneInString(next)
		return (before == ':' || before == '.') && (next == "" || !inWord(r))
	}
	return false
}

func digits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// isSign reports whether a character is a word by itself, as emoji are.
func isSign(r rune) bool { return r > unicode.MaxLatin1 && unicode.Is(unicode.So, r) }

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// Of returns the distinct words of texts, as Lexemes names them.
func Of(texts ...string) []string {
	var out []string
	seen := map[string]bool{}
	for _, text := range texts {
		for _, t := range tokens(text, nil) {
			if t.plain != "" && !seen[t.word] {
				seen[t.word] = true
				out = append(out, t.word)
			}
		}
	}
	return out
}
