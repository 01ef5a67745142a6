package contextbuilder

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// drawPieces makes a session of turns, some pending, some with tool calls whose
// results may stand in a later turn.
func drawPieces(t *rapid.T) []piece {
	n := rapid.IntRange(0, 12).Draw(t, "turns")
	var out []piece
	open := ""
	for i := range n {
		turn := &session.Turn{Place: uint64(i + 1), Status: session.Finalized,
			Question: &events.Question{QuestionNeutral: fmt.Sprint("q",
				i)}, Answer: &events.Answer{AnswerNeutral: fmt.Sprint("a", i)}}
		if open != "" {
			turn.Question.QuestionMessages = json.RawMessage(fmt.Sprintf(`[{"role":"tool","tool_call_id":%q,"content":"r"},{"role":"user","content":"q"}]`, open))
			open = ""
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			turn.Status, turn.Answer = session.Pending, nil
		case 1:
			open = fmt.Sprint("call", i)
			turn.Answer.AnswerMessages = json.RawMessage(fmt.Sprintf(`[{"role":"assistant","content":null,"tool_calls":[{"id":%q,"type":"function","function":{"name":"f","arguments":"{}"}}]}]`, open))
		}
		out = append(out, piece{turn: turn, messages: appendMessages(nil, turn, form{lang: services.Neutral})})
	}
	return out
}

//conformance:i30 i33 i34 f11 s16
func TestWindowProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pieces := drawPieces(t)
		most := rapid.IntRange(2, 30).Draw(t, "max_messages")
		w := window(pieces, budget{messages: most, keep: keepLastPair})
		taken, all := w.taken, w.all
		var shown []message.Message
		for _, p := range taken {
			shown = append(shown, p.messages...)
		}
		if _, results := message.LooseEnds(shown); len(results) > 0 {
			t.Fatal("a call is missed that the session has")
		}
		for i := 1; i < len(taken); i++ {
			if taken[i].turn.Place <= taken[i-1].turn.Place {
				t.Fatal("the order is broken")
			}
		}
		if last := lastComplete(pieces); last >= 0 && (len(taken) == 0 || lastComplete(taken) < 0 ||
			taken[lastComplete(taken)].turn != pieces[last].turn) {
			t.Fatal("the last complete pair is missing")
		}
		if len(pieces) > 0 && len(pieces[len(pieces)-1].messages) <= most &&
			taken[len(taken)-1].turn != pieces[len(pieces)-1].turn {
			t.Fatal("the newest turn is missing")
		}
		known := map[string]bool{}
		for _, p := range taken {
			for _, m := range p.messages {
				for _, id := range m.Answers() {
					if known[id] {
						continue
					}
					t.Fatal("a tool result was cut from its call")
				}
				for _, id := range m.Calls() {
					known[id] = true
				}
			}
		}
		messages := 0
		for _, p := range pieces {
			messages += len(p.messages)
		}
		kept := 0
		for _, p := range taken {
			kept += len(p.messages)
		}
		if w.over != (kept > most) {
			t.Fatal("more is taken than the budget has room for, and nobody is told")
		}
		if all != (messages <= most) || all && len(taken) != len(pieces) {
			t.Fatal("left out what the budget had room for")
		}
	})
}

//conformance:f7
func TestSinceSilence(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return time.Unix(0, 0).Add(time.Duration(minutes) * time.Minute) }
	turns := []*session.Turn{
		{Place: 1, CreatedAt: at(0), FinalizedAt: at(1)},
		{Place: 2, CreatedAt: at(40), FinalizedAt: at(65)},
		{Place: 3, CreatedAt: at(90), FinalizedAt: at(91)},
	}
	half := 30 * time.Minute
	require.Len(t, sinceSilence(turns, 0, at(1000)), 3)
	require.Equal(t, turns[1:], sinceSilence(turns, half, at(100)))
	require.Empty(t, sinceSilence(turns, half, at(122)))
	require.Equal(t, turns, sinceSilence(turns, time.Hour, at(100)))
}

//conformance:s7 s10 s28 s30
func TestCleanHistory(t *testing.T) {
	t.Parallel()
	raw := func(s ...string) (out []json.RawMessage) {
		for _, x := range s {
			out = append(out, json.RawMessage(x))
		}
		return out
	}
	out, warnings := cleanHistory(raw(`{"role":"user","content":"a","timestamp":1}`, `null`, `7`, `{"role":"user"}`, `{"role":"robot","content":"x"}`,
		`{"role":"assistant","content":["x"]}`, `{"role":"assistant","content":"b"}`), budget{messages: 20})
	require.Empty(t, warnings)
	require.Len(t, out, 2)
	require.JSONEq(t, `{"role":"user","content":"a"}`, string(out[0].JSON()))
	var many []json.RawMessage
	for i := range 25 {
		many = append(many, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"m%d"}`, i)))
	}
	out, warnings = cleanHistory(many, budget{messages: 100})
	require.Len(t, out, 20)
	require.Equal(t, "m5", out[0].Text())
	require.Len(t, warnings, 1)
	out, _ = cleanHistory(many, budget{messages: 2})
	require.Len(t, out, 2)
	large := raw(`{"role":"user","content":"`+strings.Repeat("x", 60<<10)+`"}`, `{"role":"assistant","content":"`+
		strings.Repeat("y", 60<<10)+`"}`)
	out, warnings = cleanHistory(large, budget{messages: 20})
	require.Len(t, out, 1)
	require.Equal(t, []string{"conversation_history is larger than 100 KB; its oldest 1 of the last 2 messages are " +
		"dropped"}, warnings)
}

//conformance:h58 s18 s29
func TestAnthropicForm(t *testing.T) {
	t.Parallel()
	list := message.ParseList(json.RawMessage(`[
		{"role":"system","content":"be kind"},
		{"role":"assistant","content":"hello"},{"role":"assistant","content":" \n"},
		{"role":"user","content":"one"},{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.org/x.png"}}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"42"},
		{"role":"assistant","content":"so 42"},
		{"role":"tool","content":"orphan"},
		{"role":"user","content":"bye"}]`))
	system, out := message.Anthropic(list)
	require.Equal(t, "be kind", system)
	got := must.Get(json.Marshal(out))(t)
	require.JSONEq(t, `[
		{"role":"user","content":"(The assistant spoke first.)"},
		{"role":"assistant","content":"hello"},
		{"role":"user","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"url","url":"https://example.org/x.png"}}]},
		{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"a":1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"42"}]},
		{"role":"assistant","content":"so 42"},
		{"role":"user","content":[{"type":"text","text":"[Tool result: orphan]"},{"type":"text","text":"bye"}]}]`, string(got))
}

// An answer whose words stand elsewhere than in its content is no missing half.
func TestNoAnswerVanishesFromTheAnthropicForm(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`[{"role":"assistant","content":[{"type":"refusal","refusal":"I can't"}]}]`: "I can't",
		`[{"role":"assistant","content":null,"refusal":"I won't"}]`:                 "I won't",
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"sql","input":"select 1"}}]},{"role":"tool","tool_call_id":"c1","content":"1"}]`: "select 1",
		`[{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{}"}}]`:                                                                                     "weather",
		`[{"role":"assistant","content":null,"audio":{"id":"a","transcript":"spoken words"}}]`:                                                                                          "spoken words",
		`[{"role":"assistant","content":[{"type":"thinking","thinking":"hm"}]}]`:                                                                                                        "(no text)",
		`[{"role":"assistant","content":"  "}]`:                                                            "(no text)",
		`[{"role":"assistant","content":null}]`:                                                            "(no text)",
		`[{"role":"assistant","content":[]},{"role":"assistant","content":"words after all"}]`:             "words after all",
		`[{"role":"assistant","content":[]},{"role":"system","content":"s"},{"role":"user","content":""}]`: "(no text)",
	} {
		turn := &session.Turn{Status: session.Finalized, Question: &events.Question{QuestionNeutral: "hi"},
			Answer: &events.Answer{AnswerMessages: []byte(answer)}}
		list := append(appendMessages(nil, turn, form{lang: services.Neutral}), message.New("user", "m"))
		_, out := message.Anthropic(list)
		require.Equal(t, "assistant", out[1].Role(), answer)
		require.Contains(t, string(out[1].JSON()), want)
	}
}

// Of what a client sends as its own history, a budget takes whole exchanges too.
func TestAClientsOwnHistoryIsCutBetweenExchanges(t *testing.T) {
	t.Parallel()
	list := func(roles string) (out []json.RawMessage) {
		for i, r := range roles {
			role := map[rune]string{'u': "user", 'a': "assistant"}[r]
			out = append(out, json.RawMessage(fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":"%c%d"}]}`, role, r, i)))
		}
		return out
	}
	for _, c := range []struct {
		roles    string
		messages int
		want     string
	}{
		{"uaua", 3, "u2 a3"},
		{"uaua", 4, "u0 a1 u2 a3"},
		{"uauau", 2, "u2 a3 u4"},
		{"uaaua", 4, "u3 a4"},
		{"uuaua", 4, "u1 a2 u3 a4"},
		{"uaaaa", 2, "u0 a1 a2 a3 a4"},
		{"auauu", 2, "u1 a2 u3 u4"},
		{"uuuu", 2, "u2 u3"},
		{"ua", 2, "u0 a1"},
		{"", 2, ""},
	} {
		for _, b := range []budget{{messages: c.messages}, {messages: 20, tokens: 5 * c.messages,
			count: func(string) int { return 1 }}} {
			out, _ := cleanHistory(list(c.roles), b)
			var got []string
			for _, m := range out {
				got = append(got, m.Text())
			}
			require.Equal(t, c.want, strings.Join(got, " "), "%s within %d", c.roles, c.messages)
		}
	}
}

// Calls that were made together stand in one message, right before their results, whatever stood between them. What
// only items say is left out, or stands before them.
func TestCallsOfItemsStandTogether(t *testing.T) {
	t.Parallel()
	answer := `[
		{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}}],"item":{"type":"function_call"},"item_ids":["fc_1"]},
		{"role":"assistant","content":null,"item":{"type":"reasoning"}},
		{"role":"assistant","content":null,"tool_calls":[{"id":"b","function":{"name":"f"}}],"item":{"type":"function_call"}},
		{"role":"tool","tool_call_id":"a","content":"1","item":{"type":"custom_tool_call_output"}},
		{"role":"tool","tool_call_id":"b","content":"2"},
		{"role":"assistant","content":"done","item_ids":["msg_1"]}]`
	turn := &session.Turn{Status: session.Finalized, Answer: &events.Answer{AnswerMessages: []byte(answer)}}
	for items, want := range map[bool]string{
		false: `[
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]},
			{"role":"tool","tool_call_id":"a","content":"1"},
			{"role":"tool","tool_call_id":"b","content":"2"},
			{"role":"assistant","content":"done"}]`,
		true: `[
			{"role":"assistant","content":null,"item":{"type":"reasoning"}},
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}],"item":{"type":"function_call"}},
			{"role":"tool","tool_call_id":"a","content":"1","item":{"type":"custom_tool_call_output"}},
			{"role":"tool","tool_call_id":"b","content":"2"},
			{"role":"assistant","content":"done"}]`,
	} {
		list := appendMessages(nil, turn, form{lang: services.Neutral, items: items})
		require.JSONEq(t, want, string(must.Get(json.Marshal(rawsOf(list)))(t)))
		calls, results := message.LooseEnds(list)
		require.Empty(t, calls)
		require.Empty(t, results)
	}
}

// A thought between a call and its result does not tear them.
func TestAThoughtTearsNothing(t *testing.T) {
	t.Parallel()
	calls, results := message.LooseEnds(message.ParseList(json.RawMessage(`[
		{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}}]},
		{"role":"assistant","content":null,"item":{"type":"reasoning"}},
		{"role":"tool","tool_call_id":"a","content":"1"}]`)))
	require.Empty(t, calls)
	require.Empty(t, results)
}

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
		require.Contains(t, fit(history, b), "results of tools are shortened", name)
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
