package words

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mostUnits bounds the words and phrases of a query, mostWords the words of a phrase; later ones are not searched for.
const mostUnits, mostWords = 64, 64

// Query is what to search for: a text has all wanted words and phrases, and none of the unwanted.
type Query struct{ wanted, unwanted [][]token }

// Parse reads a query. Words in quotation marks are a phrase; a minus before a word or a phrase makes it unwanted. What
// stands between two spaces is a phrase, too, if it has several words: mother-in-law. A word before a * stands for all
// that begin so. Words without lexemes stand for any word in a phrase, and are left out elsewhere.
func Parse(query string, lexemes Lexemes) (q Query) {
	for query != "" && len(q.wanted)+len(q.unwanted) < mostUnits {
		query = strings.TrimLeftFunc(query, unicode.IsSpace)
		text, without := strings.CutPrefix(query, "-")
		var unit string
		if first, size := utf8.DecodeRuneInString(text); strings.ContainsRune(quotes, first) {
			text = text[size:]
			end := strings.IndexAny(text, quotes)
			if end < 0 {
				end = len(text)
			}
			unit, query = text[:end], strings.TrimLeft(text[end:], quotes)
		} else {
			end := strings.IndexFunc(text, divides)
			if end < 0 {
				end = len(text)
			}
			unit, query = text[:end], text[end:]
		}
		all := asked(unit, lexemes)
		switch {
		case !anyWord(all):
		case without:
			q.unwanted = append(q.unwanted, all)
		default:
			q.wanted = append(q.wanted, all)
		}
	}
	return q
}

// asked divides a word or a phrase of a query.
func asked(unit string, lexemes Lexemes) []token {
	unit = Fold(unit)
	all := tokensOf(unit, lexemes)
	all = all[:min(len(all), mostWords)]
	for i := range all {
		t := &all[i]
		rest, star := strings.CutPrefix(unit[t.to:], "*")
		if next, _ := utf8.DecodeRuneInString(rest); star && t.plain != "" && (rest == "" || !inWord(next)) {
			t.word, t.forms, t.begins = t.plain, nil, true
		}
	}
	return all
}

func divides(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(quotes, r) }

const quotes = `"“”„«»「」『』`

func anyWord(all []token) bool {
	for _, t := range all {
		if t.word != "" {
			return true
		}
	}
	return false
}

// Wants reports whether the query asks for any word.
func (q Query) Wants() bool { return len(q.wanted) > 0 }

// Terms returns the terms that each text has that the query matches. A word of several forms adds none.
func (q Query) Terms(k *Key) (out []int32) {
	for _, unit := range q.wanted {
		for i, t := range unit {
			gram := gramAt(unit, i)
			switch {
			case gram != "":
				out = append(out, k.term(gram))
			case t.word != "" && len(t.forms) == 0 && !t.begins:
				out = append(out, k.term(t.word))
			}
		}
	}
	return out
}

// Match is where a query matches a text. Score is between 0 and 1, and depends on nothing but the query and the text.
type Match struct {
	Score float64
	from  int
	text  string
}

// Match matches a text. Its score grows with how often each of the query's words occurs, and shrinks with the text's
// length.
func (q Query) Match(text string, lexemes Lexemes) (m Match, ok bool) {
	all := tokens(text, lexemes)
	found := newMatcher(append(slices.Clone(q.wanted), q.unwanted...)).match(all)
	for _, o := range found[len(q.wanted):] {
		if o.n > 0 {
			return m, false
		}
	}
	for _, o := range found[:len(q.wanted)] {
		if o.n == 0 {
			return m, false
		}
		m.Score += float64(o.n) / (float64(o.n) + 1.2*(0.25+0.75*float64(len(all))/usualLength)) /
			float64(len(q.wanted))
	}
	if len(q.wanted) > 0 {
		m.text, m.from = text, unfolded(text, all[found[0].first].from)
	}
	return m, true
}

// usualLength is the number of words of a text whose length changes no score.
const usualLength = 100

// Characters of a snippet without the … at its ends, which make 200, and of what stands in it before the match.
const (
	snippetLength = 198
	snippetBefore = 60
)

// Snippet returns the part of the text around the match.
func (m Match) Snippet() string {
	from := m.from
	for n := 0; from > 0 && n < snippetBefore; n++ {
		_, size := utf8.DecodeLastRuneInString(m.text[:from])
		from -= size
	}
	to := from
	for n := 0; to < len(m.text) && n < snippetLength; n++ {
		_, size := utf8.DecodeRuneInString(m.text[to:])
		to += size
	}
	out := m.text[from:to]
	if from > 0 {
		out = "…" + out
	}
	if to < len(m.text) {
		out += "…"
	}
	return out
}
