package items_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/items"
)

// TestTextsAreReadAndWrittenAsJSON holds that what is escaped in JSON, or must be, is the text that it says.
func TestTextsAreReadAndWrittenAsJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", `a"b`, `a\b`, "a\nb", "é", "a<b>&c", "\u2028", "\x7f"} {
		for _, escaped := range []bool{false, true} {
			raw, err := json.Marshal(text)
			require.NoError(t, err)
			if escaped {
				raw = append([]byte(`"\u007a`), raw[1:]...)
				text = "z" + text
			}
			i, err := message.ParseItem(json.RawMessage(`{"type":"x","call_id":` + string(raw) + `}`))
			require.NoError(t, err)
			require.Equal(t, text, i.CallID())
			question := &events.Question{QuestionNeutral: "q" + text}
			turn := &session.Turn{Status: session.Pending, Question: question}
			all := items.Minter{}.OfTurn("s", 0, turn)
			require.Len(t, all, 1)
			require.Equal(t, "q"+text, all[0].Words())
		}
	}
}
