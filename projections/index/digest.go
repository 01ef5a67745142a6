package index

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// half makes a half of an object. The vector is made of the neutral text and, where it says something else, the
// translated one, so that a question finds a turn in either language.
func (c *Config) half(neutral, translated string) Half {
	h := Half{Neutral: neutral, Translated: translated}
	if text := c.embedded(&h); text != "" {
		sum := sha256.Sum256([]byte(c.Embedder.Model() + "\x00" + text))
		h.Digest = hex.EncodeToString(sum[:12])
	}
	return h
}

// embedded returns the text of a half that its vector is made of, cut to MaxChars.
func (c *Config) embedded(h *Half) string {
	text := h.Neutral
	if h.Translated != "" && h.Translated != h.Neutral {
		text = strings.TrimPrefix(text+"\n"+h.Translated, "\n")
	}
	return cut(text, c.MaxChars)
}

// Query returns as much of a text as is embedded of a query.
func (v *View) Query(text string) string { return cut(text, v.cfg.MaxChars) }

// cut returns at most so many characters of a text.
func cut(s string, most int) string {
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i]
		}
	}
	return s
}
