package contextbuilder

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

func FuzzTextMessage(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c\n\r\t\x00\x1f\x7f", "żółć 日本 🙂 \u2028<&>", "\xff half \xc3",
		"\ufffd", "\xed\xa0\x80"} {
		f.Add(s)
	}
	for c := range 256 {
		for at := range 17 {
			s := []byte("seventeen letters")
			s[at] = byte(c)
			f.Add(string(s))
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		m := textMessage("user", s)
		want := must.Get(json.Marshal(map[string]string{"role": "user", "content": s}))(t)
		require.JSONEq(t, string(want), string(m.JSON()))
		require.Equal(t, s, m.Text())
	})
}
