package message_test

import (
	"encoding/json"
	"testing"

	"github.com/turnledger/turnledger/events/message"
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
		for _, i := range message.Items(raw) {
			back(t, i)
		}
		if i, err := message.ParseItem(raw); err == nil && i.Check() == nil {
			back(t, i)
			i.Shown(nil)
		}
	})
}

// back fails if an item does not come back from its message. Base64 data does not.
func back(t *testing.T, i message.Item) {
	t.Helper()
	i = i.Normal()
	kept := i.Message()
	again := message.Items(kept)
	if len(again) != 1 || !json.Valid(kept) {
		t.Fatalf("%s is %d items", kept, len(again))
	}
	if len(message.Items(again[0].Normal().Message())) != 1 {
		t.Fatalf("%s is not one item", kept)
	}
}
