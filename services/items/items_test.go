package items_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/items"
)

// An id names a place, and is of no other session, log or place.
//
//conformance:o27
func TestIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := items.Address{
			Position: events.Position{
				Partition: rapid.IntRange(0, 255).Draw(t, "partition"),
				Seq:       rapid.Uint64Range(1, 1<<40-1).Draw(t, "seq"),
			},
			Answer: rapid.Bool().Draw(t, "answer"), Message: rapid.IntRange(0, 1<<16-1).Draw(t, "message"),
			Sub: rapid.IntRange(0, 127).Draw(t, "sub"),
		}
		kinds := []string{"message", "function_call_output", "mcp_call", "dream"}
		m, kind := items.Minter{Key: []byte("key")}, rapid.SampledFrom(kinds).Draw(t, "type")
		id := m.Item(kind, "s", at)
		require.Len(t, id, len(items.Prefix(kind))+48)
		require.LessOrEqual(t, len(id), 64)
		back, looks := items.Locate(id)
		require.True(t, looks)
		require.Equal(t, at, back)
		require.True(t, m.Made(id, "s"))
		require.False(t, m.Made(id, "other"))
		require.False(t, items.Minter{Key: []byte("other")}.Made(id, "s"))
		digit := "0"
		if strings.HasSuffix(id, digit) {
			digit = "1"
		}
		require.False(t, m.Made(id[:len(id)-1]+digit, "s"))

		step := items.Step{Position: at.Position, TurnID: events.TurnID("s", "r")}
		parsed, looks := items.ParseResponseID(items.ResponseID(step))
		require.True(t, looks)
		require.Equal(t, step, parsed)
	})
	for _, id := range []string{"", "msg_1", "msg_" + strings.Repeat("0", 47), "MSG_" + strings.Repeat("0", 48)} {
		_, looks := items.Locate(id)
		require.False(t, looks, id)
		_, looks = items.ParseResponseID(id)
		require.False(t, looks, id)
	}
}

// What the ids of items begin with, by their types. Clients hold such ids.
//
//conformance:o27
func TestPrefixes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_",
		"file_search_call": "fs_", "web_search_call": "ws_", "code_interpreter_call": "ci_",
		"image_generation_call": "ig_", "mcp_call": "mcp_", "mcp_list_tools": "mcpl_", "mcp_approval_request": "mcpr_",
		"custom_tool_call": "ctc_", "custom_tool_call_output": "ctco_", "computer_call": "cu_", "program": "item_",
		"of_tomorrow": "item_",
	} {
		require.Equal(t, want, items.Prefix(kind), kind)
	}
}

// Which ids of clients are kept.
//
//conformance:o17
func TestKeptIDs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		`{"type":"message","id":"msg_1"}`: true, `{"type":"message","id":"fc_1"}`: false,
		`{"type":"function_call","id":"fc_1"}`: true, `{"type":"function_call_output","id":"fco_1"}`: true,
		`{"type":"function_call_output","id":"fc_1"}`: false,
		`{"type":"dream","id":"anything"}`:            true,
		`{"type":"dream","id":"a/b"}`:                 false, `{"type":"dream"}`: false,
		`{"type":"message","id":"msg_` + strings.Repeat("x", 60) + `"}`: true,
		`{"type":"message","id":"msg_` + strings.Repeat("x", 61) + `"}`: false,
	} {
		var i message.Item
		require.NoError(t, json.Unmarshal([]byte(raw), &i))
		require.Equal(t, want, items.KeepsID(i), raw)
	}
}

// The items of a turn keep their ids when another one goes, and when the turn goes on.
func TestItemsOfATurn(t *testing.T) {
	t.Parallel()
	m := items.Minter{Key: []byte("key")}
	turn := &session.Turn{
		ID: uuid.New(), Status: session.Finalized, Started: 5, Final: 6,
		Question: &events.Question{QuestionNeutral: "q"},
		Answer: &events.Answer{AnswerNeutral: "a", AnswerMessages: json.RawMessage(`[
			{"role":"assistant","content":"t","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":"o"},
			{"role":"assistant","content":"a","item":{"id":"msg_own"}}]`)},
	}
	all := m.OfTurn("s", 3, turn)
	require.Len(t, all, 5)
	require.Equal(t, "q", all[0].Words())
	require.Equal(t, "msg_own", all[4].ID())
	at, _ := items.Locate(all[2].ID())
	require.Equal(t, items.Address{Position: events.Position{Partition: 3, Seq: 6}, Answer: true, Sub: 1}, at)

	// One goes after the other, in each order: the others keep their ids.
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		left := slices.Clone(all[1:])
		now := *turn
		var raws []json.RawMessage
		require.NoError(t, json.Unmarshal(turn.Answer.AnswerMessages, &raws))
		for n, which := range order {
			gone := all[1:][which].ID()
			var kept []json.RawMessage
			for k, raw := range raws {
				at := items.Address{Position: events.Position{Partition: 3, Seq: now.Final}, Answer: true, Message: k}
				if raw = m.Kept("s", at, raw, gone); raw != nil {
					kept = append(kept, raw)
				}
			}
			left = slices.DeleteFunc(left, func(i message.Item) bool { return i.ID() == gone })
			raw, err := json.Marshal(kept)
			require.NoError(t, err)
			raws, now.Final = kept, uint64(20+n)
			now.Question, now.Answer = nil, &events.Answer{AnswerMessages: raw}
			got := m.OfTurn("s", 3, &now)
			require.Len(t, got, len(left))
			for k := range got {
				require.JSONEq(t, string(left[k].JSON()), string(got[k].JSON()))
			}
		}
	}
	turn.Status = session.Redacted
	require.Empty(t, m.OfTurn("s", 3, turn))
}
