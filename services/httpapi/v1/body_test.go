package v1

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// values are what members of a body may hold, and what they may not.
var values = []string{
	`null`, `""`, `"s"`, `"a b"`, `"é😀"`, `"😀"`, `"\ud83d"`, `"\udc00x"`, "\"\xff\"", `true`, `false`, `0`, `1`,
	`2`, `20`, `1.5`, `2e1`, `1e999`, `-1`, `[]`, `{}`, `[{"role":"user","content":"\ud800"}]`, `{"a":1,"a":2}`,
	`{"position":"0:4"}`, `{"time":"2026-01-02T03:04:05Z"}`, `{"position":"0:4","position":"0:5"}`, `{"place":"x"}`,
	`"30m"`, `"8e5bbb3e-1046-5e03-9fc8-02e783e544f1"`, `[1,2`, `{"a":}`, ` 7 `, `"..\u0000"`, `nul`,
}

// drawBody draws an object with members that the call has and that it has not, or something that is no object.
func drawBody(t *rapid.T, known bodyFields) string {
	names := append(slices.Sorted(maps.Keys(known)), "REQUEST_ID", "unknown", `half\ud800`, "")
	var b strings.Builder
	for range rapid.IntRange(0, 6).Draw(t, "members") {
		if b.Len() > 0 {
			b.WriteString(",")
		}
		b.WriteString(`"` + rapid.SampledFrom(names).Draw(t, "name") + `":` +
			rapid.SampledFrom(values).Draw(t, "value"))
	}
	whole := rapid.SampledFrom([]string{"{%}", " {%}\n", "[%]", "{%", "{%}{}", "null", "\"%\""}).Draw(t, "form")
	return strings.ReplaceAll(whole, "%", b.String())
}

// A body that is read in one pass holds what its members hold, each read by itself.
func TestABodyIsReadInOnePassAsMemberByMember(t *testing.T) {
	t.Parallel()
	for _, body := range []any{
		startBody{}, finalizeBody{}, correctBody{}, contextBody{}, linkBody{}, resetBody{}, chatBody{},
	} {
		form := reflect.TypeOf(body)
		t.Run(form.Name(), func(t *testing.T) {
			t.Parallel()
			known := bodyFieldsOf(form)
			rapid.Check(t, func(t *rapid.T) {
				data := []byte(drawBody(t, known))
				once, each := reflect.New(form), reflect.New(form)
				require.Equal(t, decodeEach(data, each.Elem(), known), decode(data, once.Elem(), known), string(data))
				require.Equal(t, each.Interface(), once.Interface(), string(data))
			})
		})
	}
}
