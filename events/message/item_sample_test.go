package message_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/events/message"
)

// types are the types of items that a conversation may list.
var types = []string{
	"message", "function_call", "function_call_output", "file_search_call", "web_search_call", "image_generation_call",
	"computer_call", "computer_call_output", "tool_search_call", "tool_search_output", "additional_tools", "reasoning",
	"program", "program_output", "compaction", "code_interpreter_call", "local_shell_call", "local_shell_call_output",
	"shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output", "mcp_list_tools",
	"mcp_approval_request", "mcp_approval_response", "mcp_call", "custom_tool_call", "custom_tool_call_output",
}

// value draws any JSON.
func value(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.IntRange(-9, 1<<40), func(n int) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](nil),
	)
	if depth == 0 {
		return leaf
	}
	below := value(depth - 1)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(below, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z_]{1,8}`), below, 0, 3), func(m map[string]any) any {
			return m
		}))
}

// part draws a part of a content, of a known type or of none, with members that nobody knows.
func part() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		p := map[string]any{"type": rapid.SampledFrom([]string{
			"input_text", "output_text", "text", "refusal", "input_image", "input_file", "input_audio", "summary_text",
			"computer_screenshot", "of_tomorrow",
		}).Draw(t, "part")}
		for _, name := range []string{"text", "refusal", "image_url", "file_id", "filename", "detail", "annotations",
			"logprobs", "more"} {
			switch rapid.IntRange(0, 3).Draw(t, name) {
			case 0:
				p[name] = rapid.String().Draw(t, name)
			case 1:
				p[name] = value(1).Draw(t, name)
			}
		}
		return p
	})
}

// content draws a text, parts, or something else.
func content() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.SliceOfN(part(), 0, 4), func(l []any) any { return l }),
		value(2))
}

// item draws an item of any type, with well-formed and with odd members.
func item() *rapid.Generator[json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		kind := rapid.SampledFrom(append(slices.Clone(types), "of_tomorrow")).Draw(t, "type")
		i := map[string]any{"type": kind}
		for _, name := range []string{"id", "call_id", "name", "arguments", "input", "status", "phase", "namespace"} {
			switch rapid.IntRange(0, 3).Draw(t, name) {
			case 0, 1:
				i[name] = rapid.String().Draw(t, name)
			case 2:
				i[name] = value(1).Draw(t, name)
			}
		}
		if kind == "message" {
			i["role"] = rapid.SampledFrom([]string{
				"user", "assistant", "system", "developer", "tool", "function", "critic",
			}).Draw(t, "role")
		}
		for _, name := range []string{"content", "output", "summary", "result", "action", "more"} {
			if rapid.Bool().Draw(t, name) {
				i[name] = content().Draw(t, name)
			}
		}
		return must.Get(json.Marshal(i))(t)
	})
}

// Items become messages and the same items again.
//
//conformance:o8 o34
func TestItemsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requireBack(t, must.Get(message.ParseItem(item().Draw(t, "item")))(t).Normal())
	})
}

func requireBack(t require.TestingT, want message.Item) {
	kept := want.Message()
	back := message.Items(kept)
	require.Len(t, back, 1, "%s", kept)
	require.JSONEq(t, string(want.JSON()), string(back[0].JSON()), "%s", kept)
	require.True(t, back[0].Normal().Same(back[0]), "%s", kept)
	var stored struct {
		Role   *string `json:"role"`
		CallID string  `json:"tool_call_id"`
	}
	require.NoError(t, json.Unmarshal(kept, &stored))
	require.NotEmpty(t, *stored.Role)
	if *stored.Role == "tool" && want.Type() != "message" {
		require.NotEmpty(t, stored.CallID, "%s", kept)
	}
}

// Every type of the official document, by samples that are made from its schemas.
//
//conformance:o8
func TestItemsOfTheOfficialDocumentComeBack(t *testing.T) {
	t.Parallel()
	path := os.Getenv(openaitest.Variable)
	if path == "" {
		t.Skipf("%s names no document", openaitest.Variable)
	}
	d := readDocument(t, path)
	rapid.Check(t, func(t *rapid.T) {
		for _, schema := range d.variants("ConversationItem") {
			sample := must.Get(json.Marshal(d.draw(t, schema, 0)))(t)
			if strings.Contains(string(sample), "data:") {
				continue // what becomes of images has tests of its own
			}
			i, err := message.ParseItem(sample)
			require.NoError(t, err, "%s", sample)
			requireBack(t, i.Normal())
		}
	})
}
