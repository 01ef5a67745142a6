package words

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/minio/highwayhash"
)

// Key makes the terms of an index from words. Who does not have it can't find out words from terms.
type Key [sha256.Size]byte

// NewKey makes a key of a secret.
func NewKey(secret string) Key { return sha256.Sum256([]byte("turnledger.search." + secret)) }

// termsVersion changes when terms are made in another way.
const termsVersion = "2."

// Mark identifies the key without showing it, and with it the configuration of the lexemes.
func (k Key) Mark(config string) string {
	sum := sha256.Sum256(append(k[:], termsVersion+config...))
	return config + " " + hex.EncodeToString(sum[:8])
}

func (k *Key) term(word string) int32 {
	return int32(uint32(highwayhash.Sum64([]byte(word), k[:]))) //nolint:gosec // any 32 bits will do
}

// Owner returns the term of an identity's turns, which is that of no word.
func (k *Key) Owner(identity string) int32 { return k.term("\x00" + identity) }

// Terms returns the terms of texts, in order, each once; nil if there are none.
func (k *Key) Terms(lexemes Lexemes, texts ...string) []int32 {
	var out []int32
	seen := map[string]bool{}
	add := func(word string) {
		if word != "" && !seen[word] {
			seen[word] = true
			out = append(out, k.term(word))
		}
	}
	for _, text := range texts {
		all := tokens(text, lexemes)
		for i, t := range all {
			add(t.word)
			for _, form := range t.forms {
				add(form)
			}
			add(gramAt(all, i))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
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
