package contextbuilder

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/events/message"
)

// A turn whose tool answered with a file does not end a conversation for a model with a small context: of the results
// stands what fits, in every form that results have.
func TestResultsOfToolsAreShortenedToFit(t *testing.T) {
	t.Parallel()
	long := "begin " + strings.Repeat("żółw ", 20_000) + " end"
	for name, list := range map[string]string{
		"chat": `[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":"LONG"},{"role":"assistant","content":"a"}]`,
		"blocks": `[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"LONG"}]}]},{"role":"assistant","content":"a"}]`,
		"AI SDK": `[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c","toolName":"f","input":{}}]},
			{"role":"tool","content":[{"type":"tool-result","toolCallId":"c","output":{"type":"text","value":"LONG"}}]},{"role":"assistant","content":"a"}]`,
	} {
		history := message.ParseList(json.RawMessage(strings.ReplaceAll(list, "LONG", long)))
		b := budget{tokens: 1000, count: Estimate{}.Count}
		warning := fit(history, b)
		require.Contains(t, warning, "results of tools are shortened", name)
		require.LessOrEqual(t, tokensOf(history, b.count), 1000, name)
		chat := message.Chat(history)
		require.Empty(t, prompttest.Chat(chat), name)
		var result struct{ Content json.RawMessage }
		require.NoError(t, json.Unmarshal(chat[2], &result))
		left := regexp.MustCompile(`\[(\d+) characters are left out\]`).FindAllStringSubmatch(string(result.Content), -1)
		require.Len(t, left, 1, "one mark, which counts all")
		kept := utf8.RuneCountInString(string(result.Content))
		require.InDelta(t, utf8.RuneCountInString(long)-kept, must.Get(strconv.Atoi(left[0][1]))(t), 100)
		require.Regexp(t, `begin żółw(.|\n)*characters are left out(.|\n)*żółw  end`, string(result.Content), name)
		before := rawsOf(history)
		require.Empty(t, fit(history, b), "what fits stays")
		require.Equal(t, before, rawsOf(history))
	}
}
