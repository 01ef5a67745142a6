package message_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/events/message"
)

// The official document has a form of items that clients send, and one of items that are shown. What is drawn from the
// first is shown in the second.
func TestItemsThatAreSentAreShownAsTheOfficialDocumentSays(t *testing.T) {
	t.Parallel()
	path := os.Getenv(openaitest.Variable)
	if path == "" {
		t.Skipf("%s names no document", openaitest.Variable)
	}
	d, shown := readDocument(t, path), openaitest.Schema(t, path, "ConversationItem")
	rapid.Check(t, func(t *rapid.T) {
		for _, schema := range append(d.variants("Item"), d.variants("InputItem")...) {
			sample := must.Get(json.Marshal(d.draw(t, schema, 0)))(t)
			i, err := message.ParseItem(sample)
			if errors.Is(err, message.ErrNoType) {
				continue // a reference may leave its type out, and then needs an id
			}
			require.NoError(t, err, "%s", sample)
			if i.Check() != nil || i.Refers() || !i.Listed() || saysTwoThings(i) {
				continue
			}
			i = i.Normal()
			i["id"] = json.RawMessage(`"item_1"`)
			v := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(i.JSON())))(t)
			require.NoError(t, shown.Validate(v), "%s", sample)
		}
	})
}

// saysTwoThings reports whether the document lets a client send an item that it does not let be shown. It wants a call
// of the output of a local shell, and has no property for it. A computer's output may be in progress only where it is
// sent.
func saysTwoThings(i message.Item) bool {
	switch i.Type() {
	case "local_shell_call_output":
		return true
	case "computer_call_output":
		return string(i["status"]) == `"in_progress"`
	}
	return false
}

// Messages of other libraries are items with the roles that OpenAI's clients know.
func TestRolesOfOtherLibraries(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{"human": "user", "User": "user", "ai": "assistant", "critic": "critic"} {
		of := message.Items(json.RawMessage(`{"role":"` + role + `","content":"a"}`))
		require.Len(t, of, 1)
		require.JSONEq(t, `"`+want+`"`, string(of[0]["role"]), role)
	}
}
