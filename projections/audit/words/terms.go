package words

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dchest/siphash"
)

// Key makes the terms of an index from words. Who does not have it can't find out words from terms.
type Key [sha256.Size]byte

// NewKey makes a key of a secret.
func NewKey(secret string) Key { return sha256.Sum256([]byte("turnledger.search." + secret)) }

// termsVersion changes when terms are made in another way.
const termsVersion = "5."

// Mark identifies the key without showing it, and with it the configuration of the lexemes.
func (k Key) Mark(config string) string {
	sum := sha256.Sum256(append(k[:], termsVersion+config...))
	return config + " " + hex.EncodeToString(sum[:8])
}

func (k *Key) term(word string) int32 { return k.termOf([]byte(word)) }

func (k *Key) termOf(word []byte) int32 {
	k0, k1 := binary.LittleEndian.Uint64(k[:]), binary.LittleEndian.Uint64(k[8:])
	return int32(uint32(siphash.Hash(k0, k1, word))) //nolint:gosec // any 32 bits will do
}

// Owner returns the term of an identity's turns, which is that of no word.
func (k *Key) Owner(identity string) int32 { return k.term("\x00" + identity) }

// longestGram is how many characters of a text make a gram of Grams.
const longestGram = 3

// Grams returns numbers of a text that parts of it are found by: one for each run of one to three characters of the
// folded text, in order, each once; nil for no text.
func (k *Key) Grams(text string) []int32 { return k.grams(text, 1) }

// GramsOfPart returns those Grams that every text has whose folded form holds that of the part.
func (k *Key) GramsOfPart(part string) []int32 { return k.grams(part, longestGram) }

// Pairs returns numbers that texts by key are found by: one for each key with its text, in order; nil for no texts.
func (k *Key) Pairs(texts map[string]string) (out []int32) {
	for key, text := range texts {
		out = append(out, k.term("\x00\x00"+strconv.Itoa(len(key))+":"+key+text))
	}
	slices.Sort(out)
	return out
}

// grams returns the numbers of the runs from a length on, or of the whole text if it is shorter.
func (k *Key) grams(text string, shortest int) (out []int32) {
	letters := []rune(Fold(text))
	for n := max(1, min(shortest, len(letters))); n <= longestGram; n++ {
		for i := 0; i+n <= len(letters); i++ {
			out = append(out, k.term(string(letters[i:i+n])))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Terms returns the terms of texts, in order, each once; nil if there are none.
func (k *Key) Terms(lexemes Lexemes, texts ...string) (out []int32) {
	for _, text := range texts {
		out = slices.Grow(out, len(text)/5) // most words are longer
		for text != "" {
			// No word, and no run of letters, goes on behind a space.
			part, plain := untilSpace(text)
			if plain && lexemes == nil {
				out = k.plainTerms(out, part)
			} else {
				out = k.allTerms(out, tokens(part, lexemes))
			}
			text = text[len(part):]
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// untilSpace returns a text up to its first space that is behind something else, and whether all of it is ASCII. Most
// parts of most texts are a word.
func untilSpace(text string) (part string, plain bool) {
	plain = true
	for i := range len(text) {
		switch c := text[i]; {
		case c >= utf8.RuneSelf:
			plain = false
		case c == ' ' && i > 0:
			return text[:i], plain
		}
	}
	return text, plain
}

// plainTerms adds the terms of a text of ASCII, as allTerms does.
func (k *Key) plainTerms(out []int32, text string) []int32 {
	var space [64]byte
	word := space[:0]
	for i := range len(text) {
		c := text[i]
		switch {
		case len(word) > 0 && dividesTime(text, i-len(word), i):
			out = append(out, k.termOf(word))
			word = word[:0]
			continue
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		default:
			if len(word) > 0 {
				out = append(out, k.termOf(word))
			}
			word = word[:0]
			continue
		}
		word = append(word, c)
	}
	if len(word) > 0 {
		out = append(out, k.termOf(word))
	}
	return out
}

// allTerms adds the terms of words.
func (k *Key) allTerms(out []int32, all []token) []int32 {
	for i, t := range all {
		if t.word != "" {
			out = append(out, k.term(t.word))
		}
		for _, form := range t.forms {
			out = append(out, k.term(form))
		}
		if gram := gramAt(all, i); gram != "" {
			out = append(out, k.term(gram))
		}
	}
	return out
}

// gramAt returns the gram that begins with a letter, or "" if its run ends before.
func gramAt(all []token, i int) string {
	n := all[i].gram
	if n == 0 || i+n > len(all) {
		return ""
	}
	var gram strings.Builder
	for j := range n {
		if j > 0 && !runsOn(all[i+j-1], all[i+j]) {
			return ""
		}
		gram.WriteString(all[i+j].word)
	}
	return gram.String()
}

// runsOn reports whether b follows a directly in a run of one script's letters.
func runsOn(a, b token) bool {
	return a.gram > 0 && b.gram > 0 && a.script == b.script && a.to == b.from
}
