package contextbuilder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// madeTurn is a turn of a session that bytes describe: each answers the calls that the
// one before left open.
type madeTurn struct {
	turn            *session.Turn
	pending, hidden bool
}

// makeSession makes a session in which every call has its result, all in one of the three
// forms that calls have; the bits of a byte say what a turn is. Ids are used again, as some
// models do, unless a bit says otherwise.
func makeSession(plan []byte) (out []madeTurn) {
	var open []string // of the last answer
	form := byte(0)
	for i, b := range plan {
		last := i == len(plan)-1
		t := &session.Turn{Place: uint64(i + 1), Status: session.Finalized,
			Question: &events.Question{QuestionNeutral: fmt.Sprint("q", i)}}
		if len(open) > 0 {
			question := append(resultsOf(form, open), fmt.Sprintf(`{"role":"user","content":"q%d"}`, i))
			t.Question.QuestionMessages = listOf(question)
			open = nil
		}
		m := madeTurn{turn: t, pending: b&1 != 0, hidden: b&2 != 0}
		if m.pending {
			t.Status = session.Pending
			out = append(out, m)
			continue
		}
		t.Answer = &events.Answer{AnswerNeutral: fmt.Sprint("a", i)}
		if calls := int(b >> 2 & 3); calls > 0 {
			form = plan[0] >> 4 & 3
			ids := make([]string, calls)
			for k := range ids {
				ids[k] = fmt.Sprintf("c%d", k)
				if b&0x80 != 0 {
					ids[k] = fmt.Sprintf("c%d-%d", i, k)
				}
			}
			if form%3 == 2 {
				ids = ids[:1] // a function_call is one
			}
			answer := callsOf(form, ids)
			if b&0x40 != 0 && !last {
				open = ids
			} else {
				answer = append(append(answer, resultsOf(form, ids)...),
					fmt.Sprintf(`{"role":"assistant","content":"a%d"}`, i))
			}
			t.Answer.AnswerMessages = listOf(answer)
		}
		out = append(out, m)
	}
	return out
}

func listOf(messages []string) json.RawMessage {
	return json.RawMessage("[" + strings.Join(messages, ",") + "]")
}

func callsOf(form byte, ids []string) []string {
	var calls []string
	for _, id := range ids {
		switch form % 3 {
		case 0:
			calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":"{}"}}`, id))
		case 1:
			calls = append(calls, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"f","input":{}}`, id))
		default:
			return []string{fmt.Sprintf(`{"role":"assistant","content":null,"function_call":{"name":%q,"arguments":"{}"}}`, id)}
		}
	}
	members := `"content":"on it","tool_calls":`
	if form%3 == 1 {
		members = `"content":`
	}
	return []string{`{"role":"assistant",` + members + `[` + strings.Join(calls, ",") + `]}`}
}

func resultsOf(form byte, ids []string) (out []string) {
	for _, id := range ids {
		switch form % 3 {
		case 0:
			out = append(out, fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"r"}`, id))
		case 1:
			out = append(out, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"r"}`, id))
		default:
			out = append(out, fmt.Sprintf(`{"role":"function","name":%q,"content":"r"}`, id))
		}
	}
	if form%3 == 1 {
		return []string{`{"role":"user","content":[` + strings.Join(out, ",") + `]}`}
	}
	return out
}

// FuzzWindow holds that no window over a session in which every call has its result makes
// a prompt that either API refuses, whatever turns are pending or may not be shown.
func FuzzWindow(f *testing.F) {
	f.Add([]byte{}, uint8(2), false)
	f.Add([]byte{0x04, 0x44, 0x01, 0x00}, uint8(2), true)
	f.Add([]byte{0x4c, 0x02, 0x00}, uint8(20), false)
	f.Add([]byte{0xdc, 0x46, 0x18, 0x00}, uint8(3), true)
	f.Add([]byte{0x44, 0x02, 0x00, 0x46, 0x00}, uint8(20), false)
	f.Add([]byte{0x64, 0x03, 0x01, 0x64, 0x00}, uint8(5), false)
	f.Fuzz(func(t *testing.T, plan []byte, most uint8, pending bool) {
		if len(plan) > 40 {
			return
		}
		sessionID := makeSession(plan)
		var shown []*session.Turn
		var unseen []hidden
		for _, m := range sessionID {
			if m.hidden || m.pending && !pending {
				unseen = append(unseen, hidden{place: m.turn.Place, redacted: true})
				continue
			}
			shown = append(shown, m.turn)
		}
		pieces := piecesOf(shown, form{lang: services.Neutral})
		taken := window(pieces, budget{messages: max(int(most), services.LeastMessages), keep: keepLastPair}).taken
		var list []message.Message
		var places []uint64
		for _, p := range taken {
			list = append(list, p.messages...)
			for range p.messages {
				places = append(places, p.turn.Place)
			}
		}
		calls, results := message.LooseEnds(list)
		mend(list, places, calls, results, unseen)
		require.Empty(t, prompttest.OpenAI(rawsOf(list)))
		_, other := message.Anthropic(append(list, message.New(message.User, "now")))
		require.Empty(t, prompttest.Anthropic(rawsOf(other)))
		var all []*session.Turn
		for _, m := range sessionID {
			if !m.hidden {
				all = append(all, m.turn)
			}
		}
		if last := lastComplete(piecesOf(all, form{lang: services.Neutral})); last >= 0 {
			at := lastComplete(taken)
			require.GreaterOrEqual(t, at, 0)
			require.Equal(t, all[last].Place, taken[at].turn.Place, "the last complete pair is missing")
		}
	})
}

// FuzzCleanHistory holds that a client's own history, whatever is in it, becomes plain
// messages within the bounds, which both APIs take.
//
//conformance:s13
func FuzzCleanHistory(f *testing.F) {
	f.Add(`[{"role":"user","content":"a","thinkingSteps":[1]},null,7,{"role":"assistant","content":["x"]},{"role":"assistant","content":"b"}]`, 20, 0)
	f.Add(`[{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"a"}]},{"role":"tool","content":"r"},{"role":7}]`, 2, 1)
	f.Add(`[{"ROLE":"user","content":{}},{"role":"user","content":"`+strings.Repeat("x", 200)+`"},{"role":"user","content":"\u0000 \ud800"}]`, 3, 9)
	f.Fuzz(func(t *testing.T, list string, most, tokens int) {
		var raws []json.RawMessage
		if json.Unmarshal([]byte(list), &raws) != nil {
			return
		}
		b := budget{messages: max(most, services.LeastMessages), tokens: max(tokens, 0), count: Estimate{}.Count}
		out, warnings := cleanHistory(raws, b)
		require.LessOrEqual(t, len(out), historyMessages)
		require.LessOrEqual(t, len(warnings), 2)
		size := 0
		for _, m := range out {
			require.Contains(t, []string{message.User, message.Assistant}, m.Role())
			require.NotEmpty(t, m.Text())
			size += len(m.Text())
		}
		require.LessOrEqual(t, size, historyBytes)
		require.Empty(t, prompttest.OpenAI(rawsOf(out)))
		_, other := message.Anthropic(append(out, message.New(message.User, "now")))
		require.Empty(t, prompttest.Anthropic(rawsOf(other)))
	})
}

func rawsOf(messages []message.Message) (raws []json.RawMessage) {
	for _, m := range messages {
		raws = append(raws, m.JSON())
	}
	return raws
}
