package quote_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/quote"
)

func same(t *testing.T, s string) {
	t.Helper()
	want, _ := jsontext.AppendQuote([]byte("x"), s) // an error says that bad UTF-8 was replaced
	require.Equal(t, string(want), string(quote.Append([]byte("x"), s)), "%q", s)
}

// Each byte stands at each place of a text of two words.
func TestEveryByteIsQuotedAsJSONTextDoes(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			same(t, strings.Repeat("a", at)+string([]byte{byte(c)})+strings.Repeat("~", 19-at))
		}
	}
	for _, s := range []string{"", "plain", "データ", "é\u2028<&>", "\xe3\x83", "\xed\xa0\x80", "a\xffb", "😀\"\\\n",
		"\xf4\x90\x80\x80", "x\xc3"} {
		same(t, s)
		same(t, strings.Repeat(s, 5))
	}
}

func FuzzAppend(f *testing.F) {
	f.Add("a \"text\" with\n\x00 é \xff")
	f.Fuzz(same)
}

func BenchmarkAppend(b *testing.B) {
	prose := strings.Repeat("A sentence with some words, as an answer has.\n", 8)
	for name, append := range map[string]func([]byte, string) []byte{
		"here": quote.Append,
		"jsontext": func(to []byte, s string) []byte {
			to, _ = jsontext.AppendQuote(to, s)
			return to
		},
	} {
		for kind, text := range map[string]string{"ascii": prose, "japanese": strings.Repeat("会話の履歴。", 20)} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				var buf []byte
				for b.Loop() {
					buf = append(buf[:0], text)
				}
			})
		}
	}
}
