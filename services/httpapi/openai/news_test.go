package openai_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// What is new of an input is what the table in docs/contract.md#openais-surface says, row by row: own are the items
// that the session of the response holds itself, and same whether it is the conversation's, or the one that went on
// before.
func TestWhatIsNewOfAnInput(t *testing.T) {
	t.Parallel()
	const output = `{"type":"function_call_output","call_id":"c","output":"o"}`
	const a, b, c, d = "user: a", "assistant: b", "user: c", "assistant: d"
	const call, result, fresh, yes = "assistant: <nil>", "tool: o", "user: new", "assistant: yes"
	told, run := []string{a, b, c, d}, []string{user("a"), function("c")}
	type sent struct{ input, want []string }
	cases := map[string]struct {
		waits bool // the conversation's last turn waits for its output, instead of c and d
		sends func(own []string) sent
		same  bool
	}{
		"a conversation: texts that it has, without ids": {false, func([]string) sent {
			return sent{[]string{user("a"), assistant("b"), user("new")}, append(told, a, b, fresh, yes)}
		}, true},
		"a conversation: its items by their ids, with the same meaning": {false, func(own []string) sent {
			return sent{append(own, user("new")), append(told, fresh, yes)}
		}, true},
		"a conversation: an item's id with another meaning": {false, func(own []string) sent {
			return sent{[]string{strings.Replace(own[0], `"a"`, `"x"`, 1), user("new")}, append(told, "user: x", fresh, yes)}
		}, true},
		"a conversation: a run again, with the output that it waits for": {true, func([]string) sent {
			return sent{append(run, output), []string{a, call, result, yes}}
		}, true},
		"a conversation: a run again whose output it has, and a question": {true, func([]string) sent {
			return sent{append(run, output, user("new")), []string{a, call, result, fresh, yes}}
		}, true},
		"a previous response: texts of its history": {false, func([]string) sent {
			return sent{[]string{user("a"), assistant("b"), user("new")}, []string{a, yes, a, b, fresh, yes}}
		}, true},
		"a previous response: items of its history by their ids": {false, func(own []string) sent {
			return sent{append(own, user("new")), []string{a, yes, fresh, yes}}
		}, true},
		"neither: a history from its first turn on, led to by an id": {false, func(own []string) sent {
			return sent{append(own, user("new")), []string{fresh, yes}}
		}, false},
		"neither: the same history, gone on with": {false, func(own []string) sent {
			return sent{append(own, user("before"), assistant("yes"), user("new")),
				[]string{"user: before", yes, fresh, yes}}
		}, true},
		"neither: such a history, edited": {false, func(own []string) sent {
			return sent{append(own[:2:2], user("x"), assistant("d"), user("new")), []string{"user: x", d, fresh, yes}}
		}, false},
		"neither: a history without its front": {false, func(own []string) sent {
			return sent{append(own[2:], user("new")), []string{c, d, fresh, yes}}
		}, false},
		"neither: a history without any id": {false, func([]string) sent {
			return sent{[]string{user("a"), assistant("b"), user("new")}, []string{a, b, fresh, yes}}
		}, false},
		"neither: the same first words again": {false, func([]string) sent {
			return sent{[]string{user("before")}, []string{"user: before", yes}}
		}, false},
	}
	rows := rowsOf(t, "| the call names | and sends | is recorded |")
	require.Len(t, cases, len(rows))
	for _, name := range rows {
		c, has := cases[name]
		require.True(t, has, "no case of %s", name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
			s := start(t, answeredBy(m))
			id := s.begin()
			if c.waits {
				s.post(id, run...)
			} else {
				s.post(id, user("a"), assistant("b"))
				s.post(id, user("c"), assistant("d"))
			}
			own, before, more := agentsHistory(s, id), "", ""
			switch names, _, _ := strings.Cut(name, ":"); names {
			case "a conversation":
				before, more = id, `,"conversation":"`+id+`"`
			case "a previous response":
				first := s.respondTo([]string{user("a")})
				own = nil
				for _, i := range append(s.given(first["id"]), first["output"].([]any)...) {
					own = append(own, string(must.Get(json.Marshal(i))(t)))
				}
				before, more = s.sessionOf(first["id"].(string)), `,"previous_response_id":"`+first["id"].(string)+`"`
			default:
				input := append(own, user("before"))
				if strings.Contains(name, "same first words") {
					input = []string{user("before")}
				}
				before = s.sessionOf(s.respondTo(input)["id"].(string))
			}
			send := c.sends(own)
			in := s.sessionOf(s.respondTo(send.input, more)["id"].(string))
			require.Equal(t, send.want, s.own(in))
			require.Equal(t, c.same, in == before)
			require.LessOrEqual(t, len(s.branches(id)), 2)
			if c.same {
				require.LessOrEqual(t, len(s.branches(id)), 1)
			}
		})
	}
}

// rowsOf returns the first two cells of each row of a table of the contract, by its header.
func rowsOf(t *testing.T, header string) (out []string) {
	t.Helper()
	page := string(must.Get(os.ReadFile("../../../docs/contract.md"))(t))
	_, table, has := strings.Cut(page, header)
	require.True(t, has)
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 {
			return out
		}
		out = append(out, strings.TrimPrefix(cells[0], "| ")+": "+cells[1])
	}
	return out
}
