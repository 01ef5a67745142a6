package message

import (
	"strings"
	"testing"
)

// FuzzCleanText: a text is cleaned once, and what is not image data stays.
func FuzzCleanText(f *testing.F) {
	blob := strings.Repeat("Ab1+/", 20)
	for _, s := range []string{
		"plain", "data:image/png;base64," + blob, "iVBORw0KGgo" + blob + "\n" + blob, `\/9j\/` + blob + `\n` + blob,
		"UklGR", "data:image/png;base64,",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		clean := CleanText(s)
		if again := CleanText(clean); again != clean {
			t.Fatalf("%q is cleaned to %q, and that to %q", s, clean, again)
		}
		if !strings.Contains(clean, ImageText) && clean != s {
			t.Fatalf("%q lost something: %q", s, clean)
		}
	})
}
