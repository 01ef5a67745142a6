package items_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/services/items"
)

// What is shown of an item repeats it, whatever is shown; an item that says something else, or more, does not.
//
//conformance:o60
func TestRepeats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		i, err := items.Parse(item().Draw(t, "item"))
		if err != nil {
			return
		}
		own := items.Normal(i)
		shown := items.Normal(own.Shown(nil).WithoutID())
		if !shown.Repeats(own) {
			t.Fatalf("%s does not repeat %s", shown.JSON(), own.JSON())
		}
		if shown.With("more", "x").Repeats(own) {
			t.Fatal("it says more")
		}
	})
	read := func(raw string) items.Item {
		i, err := items.Parse(json.RawMessage(raw))
		require.NoError(t, err)
		return items.Normal(i)
	}
	noted := read(`{"role":"assistant","content":[{"type":"output_text","text":"a","logprobs":[{"token":"a"}],"annotations":[{"type":"x"}]}]}`)
	require.True(t, noted.Shown(nil).Repeats(noted))
	require.True(t, read(`{"role":"assistant","content":"a"}`).Repeats(noted))
	require.False(t, noted.Repeats(read(`{"role":"assistant","content":"a"}`)), "it says more")
	own := read(`{"role":"user","id":"msg_1","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://x"}]}`)
	for raw, want := range map[string]bool{
		`{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":null}]}`:      true,
		`{"role":"user","status":"incomplete","content":[{"type":"input_text","text":"a"},{"type":"input_image"}]}`: true,
		`{"role":"user","content":[{"type":"input_text","text":"b"},{"type":"input_image","image_url":null}]}`:      false,
		`{"role":"user","content":[{"type":"input_text","text":"a"}]}`:                                              false,
		`{"role":"user","content":"a"}`: false,
		`{"role":"assistant","content":[{"type":"input_text","text":"a"},{"type":"input_image"}]}`:                    false,
		`{"role":"user","phase":"x","content":[{"type":"input_text","text":"a"},{"type":"input_image"}]}`:             false,
		`{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://y"}]}`: false,
	} {
		require.Equal(t, want, read(raw).Repeats(own), raw)
	}
}
