package items_test

import (
	"encoding/json"
	"testing"

	"github.com/turnledger/turnledger/services/items"
)

// Whatever a message is, it is items, and these come back as they are.
//
//conformance:o34
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{}`, `7`, `null`, `{"role":7,"content":[7,null,{"type":7},[]],"tool_calls":{},"item":[],"item_ids":[7]}`,
		`{"role":"assistant","content":null,"item":{"type":"message","content":[null]},"item_ids":["a"]}`,
		`{"role":"tool","content":[{"type":"tool_use"}],"item":{"type":"custom_tool_call_output"}}`,
		`{"role":"assistant","tool_calls":[{"custom":{}},{"function":7}],"function_call":{}}`,
		`{"type":"message","role":"user","content":[{"type":"input_image","image_url":{"url":"data:x"}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		for _, i := range items.Of(raw) {
			back(t, i)
		}
		if i, err := items.Parse(raw); err == nil && i.Check() == nil {
			back(t, i)
			i.Shown(nil)
		}
	})
}

// back fails if an item does not come back from its message. Base64 data does not.
func back(t *testing.T, i items.Item) {
	t.Helper()
	i = items.Normal(i)
	message := items.Message(i)
	again := items.Of(message)
	if len(again) != 1 || !json.Valid(message) {
		t.Fatalf("%s is %d items", message, len(again))
	}
	if len(items.Of(items.Message(items.Normal(again[0])))) != 1 {
		t.Fatalf("%s is not one item", message)
	}
}
