// Package tokens counts tokens exactly as a model's own tokenizer does. The vocabularies are part of the program, so
// nothing is downloaded.
package tokens

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// cached is how many counts are remembered, at about 100 bytes each.
const cached = 50_000

// Counter counts with one encoding, and remembers what it has counted. Safe for
// concurrent use.
type Counter struct {
	encoding *tiktoken.Tiktoken
	seed     maphash.Seed
	counts   *lru.Cache[text, int]
}

// text identifies a counted text by its hash under a secret seed and its length.
type text struct {
	hash uint64
	size int
}

var offline sync.Once

// ForModel returns the counter of a model's encoding. Reading the encoding takes about 0.2 s. The counter is nil if the
// encoding is unknown; then use an Estimate.
func ForModel(model string) (*Counter, error) {
	name := encodingOf(model)
	if name == "" {
		return nil, nil //nolint:nilnil // no encoding is a valid answer
	}
	offline.Do(func() { tiktoken.SetBpeLoader(loader.NewOfflineLoader()) })
	encoding, err := tiktoken.GetEncoding(name)
	if err != nil {
		return nil, fmt.Errorf("read the vocabulary %s: %w", name, err)
	}
	counts, err := lru.New[text, int](cached)
	if err != nil {
		return nil, fmt.Errorf("make the cache of counts: %w", err)
	}
	return &Counter{encoding: encoding, seed: maphash.MakeSeed(), counts: counts}, nil
}

// newer are models that the library's table does not know; all of them share one
// encoding (github.com/openai/tiktoken, model.py).
var newer = []string{"gpt-5", "gpt-4o", "gpt-4.1", "gpt-4.5", "o1", "o3", "o4-mini", "chatgpt-4o"}

// encodingOf returns the name of a model's encoding, or "". A name may begin with its vendor, as gateways write it:
// openai/gpt-4o.
func encodingOf(model string) string {
	model = strings.TrimPrefix(model, "openai/")
	if name := tiktoken.MODEL_TO_ENCODING[model]; name != "" {
		return name
	}
	for _, prefix := range newer {
		if model == prefix || strings.HasPrefix(model, prefix+"-") {
			return tiktoken.MODEL_O200K_BASE
		}
	}
	for prefix, name := range tiktoken.MODEL_PREFIX_TO_ENCODING {
		if strings.HasPrefix(model, prefix) {
			return name
		}
	}
	return ""
}

// Count returns the number of tokens of a text.
func (c *Counter) Count(s string) int {
	key := text{maphash.String(c.seed, s), len(s)}
	if n, ok := c.counts.Get(key); ok {
		return n
	}
	n := 0
	for len(s) > 0 {
		end := cut(s)
		n += len(c.encoding.EncodeOrdinary(s[:end]))
		s = s[end:]
	}
	c.counts.Add(key, n)
	return n
}

const (
	// longWord is the length at which a run of letters is cut, since the time for a word grows with the square of its
	// length. No language has words that long.
	longWord = 128
	// longText is the length after which a text is cut at the next space.
	longText = 8 << 10
)

// cut returns the index at which the next part of a text ends.
func cut(s string) int {
	if len(s) <= longWord {
		return len(s)
	}
	run, kind := 0, word
	for i, r := range s {
		k := kindOf(r)
		begins := k != kind
		if begins {
			run, kind = 0, k
		}
		if run += utf8.RuneLen(r); run > longWord || i > longText && begins && k == space {
			return i
		}
	}
	return len(s)
}

// kinds of runes that the encodings keep together.
const (
	word = iota
	space
	punctuation
)

func kindOf(r rune) int {
	switch {
	case unicode.IsSpace(r):
		return space
	case unicode.IsLetter(r), unicode.IsNumber(r):
		return word
	default:
		return punctuation
	}
}
