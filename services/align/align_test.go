package align_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services/align"
)

// item reads a line: "u text" and "a text" are messages, "d text" one of the developer, "c id" a call, "o id text" its
// output, "r text" a thought. "#id" before it is its id.
func item(t testing.TB, line string) message.Item {
	t.Helper()
	id := ""
	if strings.HasPrefix(line, "#") {
		id, line, _ = strings.Cut(line[1:], " ")
	}
	kind, text, _ := strings.Cut(line, " ")
	raw := map[string]any{}
	switch kind {
	case "u", "a", "d":
		raw["role"] = map[string]string{"u": "user", "a": "assistant", "d": "developer"}[kind]
		raw["content"] = text
	case "c":
		raw = map[string]any{"type": "function_call", "call_id": text, "name": "f", "arguments": "{}"}
	case "o":
		call, out, _ := strings.Cut(text, " ")
		raw = map[string]any{"type": "function_call_output", "call_id": call, "output": out}
	case "r":
		thought := map[string]any{"type": "summary_text", "text": text}
		raw = map[string]any{"type": "reasoning", "summary": []any{thought}}
	default:
		require.FailNow(t, "no item", line)
	}
	encoded, err := json.Marshal(raw)
	require.NoError(t, err)
	i, err := message.ParseItem(encoded)
	require.NoError(t, err)
	if i = i.Normal(); id != "" {
		i = i.With("id", id)
	}
	return i
}

func lines(list string) (out []string) {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

func input(t testing.TB, list string) (in align.Input) {
	t.Helper()
	for _, line := range lines(list) {
		i := item(t, line)
		in.Items, in.IDs = append(in.Items, i.WithoutID()), append(in.IDs, i.ID())
	}
	return in
}

// session reads turns, which "|" parts. "!" before a turn: it lacks something; "?": it is open. Ids that begin with
// "t" and the turn's number are or were those of its items.
func session(t testing.TB, list string) (turns []align.Turn) {
	t.Helper()
	for n, one := range strings.Split(list, "|") {
		one = strings.TrimSpace(one)
		turn := align.Turn{Has: func(id string) bool { return strings.HasPrefix(id, fmt.Sprint("t", n, "-")) }}
		for len(one) > 0 && strings.ContainsRune("!?", rune(one[0])) {
			turn.Lacks, turn.Open = turn.Lacks || one[0] == '!', turn.Open || one[0] == '?'
			one = one[1:]
		}
		for _, line := range lines(one) {
			turn.Items = append(turn.Items, item(t, line))
		}
		turns = append(turns, turn)
	}
	return turns
}

// What a whole history shares with a session, and from where on it is new. This is the table of cases.
func TestHistory(t *testing.T) {
	t.Parallel()
	const two = "u q1, a a1 | u q2, a a2"
	for name, c := range map[string]struct {
		session, input string
		want           align.Shared
	}{
		"whole again":                       {two, "u q1, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"an edit":                           {two, "u q1, a a1, u edited, a a2, u q3", align.Shared{Turns: 1, Rest: 2, Diverges: true}},
		"an edit in the first turn":         {two, "u edited, a a1, u q3", align.Shared{}},
		"an answer that was edited":         {two, "u q1, a a1, u q2, a edited, u q3", align.Shared{Turns: 1, Rest: 2, Diverges: true}},
		"nothing new: the last turn again":  {two, "u q1, a a1, u q2, a a2", align.Shared{Turns: 1, Rest: 2, Diverges: true}},
		"the last question again":           {two, "u q1, a a1, u q2", align.Shared{Turns: 1, Rest: 2, Diverges: true}},
		"an exchange that repeats":          {"u yes, a ok | u yes, a ok", "u yes, a ok, u yes, a ok, u yes", align.Shared{Turns: 2, Rest: 4}},
		"an exchange that repeats, shorter": {"u yes, a ok | u yes, a ok", "u yes, a ok, u yes", align.Shared{Turns: 1, Rest: 2, Diverges: true}},
		"without thoughts":                  {"u q1, r hm, a a1", "u q1, a a1, u q2", align.Shared{Turns: 1, Rest: 2}},
		"the run in progress":               {"u q1, a a1 | u q2, c c1", "u q1, a a1, u q2, c c1, o c1 x", align.Shared{Turns: 2, Rest: 4}},
		"a question that waits":             {"u q1, a a1 |? u q2", "u q1, a a1, u q2, u q3", align.Shared{Turns: 1, Rest: 2}},
		"a trimmed front":                   {two, "u q2, a a2, u q3", align.Shared{First: 1, Turns: 2, Rest: 2}},
		"one message is no front":           {"u q1, a a1 | u q2", "u q2, u q3", align.Shared{}},
		"a front that ends too early":       {two + "| u q3, a a3", "u q2, a a2, u q4", align.Shared{}},
		"another order":                     {two, "u q2, a a2, u q1, a a1, u q3", align.Shared{First: 1, Turns: 2, Rest: 2}},
		// What comes at the place of what is gone is that turn's.
		"a tombstone":                         {"u q1, a a1 |! | u q3, a a3", "u q1, a a1, u gone, a gone, u q3, a a3, u q4", align.Shared{Turns: 3, Rest: 6}},
		"a tombstone that the client knows":   {"u q1, a a1 |! | u q3, a a3", "u q1, a a1, u q3, a a3, u q4", align.Shared{Turns: 3, Rest: 4}},
		"a tombstone at the end":              {"u q1, a a1 |!", "u q1, a a1, u gone, a gone, u q2", align.Shared{Turns: 2, Rest: 4}},
		"a new question behind a tombstone":   {"u q1, a a1 |!", "u q1, a a1, u q2", align.Shared{Turns: 2, Rest: 2}},
		"a tombstone first":                   {"! | u q2, a a2", "u gone, c c1, o c1 gone, a gone, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 6}},
		"two tombstones":                      {"u q1, a a1 |! |! | u q4, a a4", "u q1, a a1, u gone, a gone, u g, a g, u q4, a a4, u q5", align.Shared{Turns: 4, Rest: 8}},
		"a question that was open":            {"u q1, a a1 |!?", "u q1, a a1, u gone, u q2", align.Shared{Turns: 2, Rest: 3}},
		"a pruned answer":                     {"u q1, a a1 |! u q2, c c1 | u q3, a a3", "u q1, a a1, u q2, a gone, c c1, u q3, a a3, u q4", align.Shared{Turns: 3, Rest: 7}},
		"a pruned end":                        {"! u q1, a a1", "u q1, a a1, a gone, u q2", align.Shared{Turns: 1, Rest: 3}},
		"a pruned question":                   {"! a a1 | u q2, a a2", "u gone, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"a corrected turn":                    {"u q1, a a1 |! u q2, a right", "u q1, a a1, u q2, a wrong, u q3", align.Shared{Turns: 2, Rest: 4}},
		"a corrected turn as it stands":       {"u q1, a a1 |! u q2, a right", "u q1, a a1, u q2, a right, u q3", align.Shared{Turns: 2, Rest: 4}},
		"an output behind a pruned message":   {"! u q1, c c1", "u q1, c c1, o c1 x", align.Shared{Turns: 1, Rest: 2}},
		"a tombstone's last words, by its id": {"u q1, a a1 |!", "u q1, a a1, #t1-q u gone, u q2", align.Shared{Turns: 2, Rest: 3}},
	} {
		got := align.History(session(t, c.session), input(t, c.input))
		if name == "a tombstone at the end" {
			require.Equal(t, []int{2, 3}, got.Gone)
		}
		got.Gone, got.Cuts = nil, nil
		require.Equal(t, c.want, got, name)
	}
}

// Which items of an input are gone, by their ids.
func TestGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		session, input string
		want           []int
	}{
		"nothing":             {"u q1, a a1 | !", "#t0-q u q1, #t0-a a a1, u q2, a a2, u q3", nil},
		"with its question":   {"u q1, a a1 | !", "u gone, #t1-a a gone, u q2", []int{0, 1}},
		"with its run":        {"!", "u gone, #t0-c c c, o c x, #t0-a a gone, u q2", []int{0, 1, 2, 3}},
		"an answer behind it": {"!", "#t0-q u gone, a gone, u q2", []int{0, 1}},
		"what stands stays":   {"! u q1", "u q1, #t0-a a gone, u q2", []int{1}},
		"of another turn":     {"u q1, a a1 | !", "#t0-q u q1, #t0-a a a1, #t1-a a gone, u q2", []int{2}},
		"a new output":        {"! u q, c c", "u q, #t0-a a gone, c c, o c x", []int{1}},
	} {
		require.Equal(t, c.want, align.Gone(session(t, c.session), input(t, c.input)), name)
	}
}

// What is new of an input that is added to a session. This is the table of cases (OPENAI's clients decide them).
func TestNews(t *testing.T) {
	t.Parallel()
	const ran = "u q, c c, o c x, a so x"
	for name, c := range map[string]struct{ session, input, want string }{
		"yes, again":                        {"u yes, a ok", "u yes", "u yes"},
		"texts alone":                       {"u q1, a a1", "u q1, a a1, u q2", "u q1, a a1, u q2"},
		"by ids":                            {"#t0-q u q1, #t0-a a a1", "#t0-q u q1, #t0-a a a1, u q2", "u q2"},
		"by ids, an answer without":         {"#t0-q u q1, #t0-a a a1", "#t0-q u q1, a a1, u q2", "u q2"},
		"an id and another text":            {"#t0-q u q1, #t0-a a a1", "#t0-q u edited, u q2", "u edited, u q2"},
		"an id of what is gone":             {"! #t0-q u q1", "#t0-q u q1, #t0-a a gone, u q2", "u q2"},
		"before what is gone":               {"u p, a b | !", "u gone, c c, o c gone, #t1-a a gone, u q2", "u q2"},
		"a new output beside what is gone":  {"! u q, c c", "u q, #t0-a a gone, c c, o c x", "o c x"},
		"the question that is left":         {"! u q", "u q, #t0-a a gone, u q2", "u q2"},
		"beside what is gone":               {"!", "#t0-q u gone, a gone, u q2", "u q2"},
		"ids, and nothing new":              {"#t0-q u q1, #t0-a a a1 | #t1-q u q2", "#t0-q u q1, #t0-a a a1, #t1-q u q2", "u q2"},
		"the question with an output":       {"u q, c c", "u q, o c x", "o c x"},
		"the run":                           {"u q, c c, o c x, c d", "u q, c c, o c x, c d, o d y", "o d y"},
		"a call that waits":                 {"u q, c c, c d", "u q, c c, c d, o d y", "o d y"},
		"the same id again":                 {"u q, c c, o c x, c c", "u q, o c x, o c x", "o c x"},
		"nothing but what is gone":          {"u p, a b | !", "#t1-q u gone", ""},
		"an output that is gone":            {"! u q, c c", "#t0-o o c gone", ""},
		"an output without its call":        {"u q, o c x, a so x", "o c x, u b", "u b"},
		"a history with a run":              {"u p, a b | ! | " + ran, "u p, a b, u gone, a gone, u q, c c, o c x, a so x, u r", "u r"},
		"a history with another end":        {"u p, a b | " + ran, "u p, a b, u q, c c, o c x, a edited, u r", "u p, a b, u q, a edited, u r"},
		"a pruned question and its run":     {"! c c, o c x, a so x", "u gone, c c, o c x, a so x, u r", "u r"},
		"a pruned run":                      {"! u q, c c", "u q, c c, o c gone, a gone, u r", "u r"},
		"a run, and a question":             {ran, "u q, c c, o c x, a so x, u r", "u r"},
		"a question of another role":        {ran, "d q, o c x, u r", "d q, u r"},
		"nothing new":                       {ran, "u q, o c x", "o c x"},
		"a call behind something new":       {ran, "u r, c c, o c x", "u r, c c, o c x"},
		"another output":                    {ran, "c c, o c y, u r", "c c, o c y, u r"},
		"an answer alone":                   {ran, "a so x, u r, c d, o d x", "a so x, u r, c d, o d x"},
		"earlier turns":                     {ran + "| u r, c d", "u q, o c x, u r, o d y, u s", "o d y, u s"},
		"a question without its output":     {ran + "| u r, c d", "u q, u r, o d y", "u q, u r, o d y"},
		"an output that the newer one asks": {ran + "| u r, c c", "o c x, u s", "o c x, u s"},
	} {
		in := input(t, c.input)
		var got, want []string
		for _, n := range align.News(session(t, c.session), in) {
			got = append(got, string(in.Items[n].JSON()))
		}
		for _, i := range input(t, c.want).Items {
			want = append(want, string(i.JSON()))
		}
		require.Equal(t, want, got, name)
	}
}

// Items mean the same whatever ids, statuses, white space and order of members they have, and whether an address, an
// annotation or a log probability is told.
func TestMeaning(t *testing.T) {
	t.Parallel()
	read := func(raw string) message.Item {
		i, err := message.ParseItem(json.RawMessage(raw))
		require.NoError(t, err)
		return i.Normal()
	}
	again := func(a, b string) bool {
		next := item(t, "u next")
		had := []align.Turn{{Items: []message.Item{read(a), item(t, "a ok")}}}
		sent := []message.Item{read(b), item(t, "a ok"), next}
		return align.History(had, align.Input{Items: sent, IDs: make([]string, 3)}).Turns == 1
	}
	image := `{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":%s}]}`
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"role":"user","content":"a "}`, `{"content":[{"text":"a","type":"input_text"}],"role":"user","id":"msg_1"}`, true},
		{`{"role":"assistant","content":[{"type":"output_text","text":"a","logprobs":[{"token":"a"}],"annotations":[{"type":"x"}]}]}`,
			`{"role":"assistant","content":"a","status":"incomplete"}`, true},
		{`{"role":"user","content":"a"}`, `{"role":"user","content":"b"}`, false},
		{`{"role":"user","content":"a"}`, `{"role":"system","content":"a"}`, false},
		{`{"role":"system","content":"a"}`, `{"role":"developer","content":"a"}`, true},
		{fmt.Sprintf(image, `"https://x"`), fmt.Sprintf(image, "null"), true},
		{fmt.Sprintf(image, `"https://x"`), fmt.Sprintf(image, `"https://y"`), false},
		{fmt.Sprintf(image, `"https://x"`), `{"role":"user","content":"a"}`, false},
		{fmt.Sprintf(image, `"data:image/png;base64,AAAA"`), fmt.Sprintf(image, `null`), true},
		{`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1,\"b\":2}"}`,
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{ \"b\": 2, \"a\": 1 }","status":"completed"}`, true},
		{`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}`,
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":2}"}`, false},
		{`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`,
			`{"type":"function_call","call_id":"d","name":"f","arguments":"{}"}`, false},
		{`{"type":"function_call_output","call_id":"c","output":"x"}`,
			`{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}`, true},
		{`{"type":"web_search_call","action":{"type":"search","query":"q","sources":[{"url":"u"}]}}`,
			`{"type":"web_search_call","action":{"query":"q","type":"search"}}`, true},
	} {
		require.Equal(t, c.same, again(c.a, c.b), "%s %s", c.a, c.b)
	}
}

// kept is a log that records what alignment says is new.
type kept struct {
	ids   int
	turns []align.Turn
}

// record adds items as turns: a question opens one, all else belongs to the newest.
func (k *kept) record(all []message.Item) {
	for _, i := range all {
		last := len(k.turns) - 1
		if last < 0 || i.Asks() && (!k.turns[last].Open || len(k.turns[last].Items) == 0) {
			k.turns, last = append(k.turns, align.Turn{Open: true}), last+1
		}
		k.ids++
		k.turns[last].Items = append(k.turns[last].Items, i.With("id", fmt.Sprint("i", k.ids)))
		k.turns[last].Open = k.turns[last].Open && i.Asks()
	}
}

func (k *kept) items() (out []message.Item) {
	for _, t := range k.turns {
		out = append(out, t.Items...)
	}
	return out
}

func (k *kept) said() (out []string) {
	for _, i := range k.items() {
		out = append(out, string(i.WithoutID().JSON()))
	}
	return out
}

// Real conversations in which no exchange repeats, cut into requests as clients do, leave the same log: the whole
// history again, with ids or without, without its front, the last run, or only what is new; by clients in turns, too.
func TestAConversationIsKeptOnceHoweverItIsSent(t *testing.T) {
	t.Parallel()
	seen, long := map[string]int{}, map[string]int{}
	for _, file := range stack.ConversationFiles(t) {
		for _, c := range stack.ReadConversations(t, []string{file}) {
			exchanges := exchangesOf(t, c)
			exchanges = exchanges[:min(len(exchanges), 20)]
			if len(exchanges) < 2 || repeats(exchanges) || seen[file] == 20 || len(exchanges) > 8 && long[file] == 2 {
				continue
			}
			if seen[file]++; len(exchanges) > 8 {
				long[file]++
			}
			keptOnce(t, c.ID, exchanges)
		}
	}
	require.NotEmpty(t, seen)
}

func keptOnce(t *testing.T, name string, exchanges [][]message.Item) {
	t.Helper()
	var want kept
	for _, e := range exchanges {
		want.record(e)
	}
	ways := []string{"whole", "whole, with ids", "trimmed", "last", "run", "added with ids", "in turns"}
	for _, way := range ways {
		var k kept
		for n, e := range exchanges {
			k.send(t, ways, way, n, e)
		}
		require.Equal(t, want.said(), k.said(), "%s, %s", way, name)
	}
}

// send sends what is asked in an exchange in a client's way, and records what is said to it.
func (k *kept) send(t *testing.T, ways []string, way string, n int, exchange []message.Item) {
	t.Helper()
	if way == "in turns" {
		way = ways[n%(len(ways)-1)]
	}
	asked := 1
	for asked < len(exchange) && exchange[asked].Asks() {
		asked++
	}
	history := k.items()
	if way == "trimmed" && len(k.turns) > 2 {
		history = nil
		for _, turn := range k.turns[len(k.turns)-2:] {
			history = append(history, turn.Items...)
		}
	}
	var in align.Input
	give := func(all []message.Item, ids bool) {
		for _, i := range all {
			id := ""
			if ids {
				id = i.ID()
			}
			in.Items, in.IDs = append(in.Items, i.WithoutID()), append(in.IDs, id)
		}
	}
	fresh := func(turns []align.Turn) {
		for _, n := range align.News(turns, in) {
			k.record(in.Items[n : n+1])
		}
	}
	switch way {
	case "last":
		give(exchange[:asked], false)
		fresh(k.turns)
	case "added with ids":
		give(history, true)
		give(exchange[:asked], false)
		fresh(k.turns)
	case "run": // the model's calls come again with their outputs, one after the other
		k.record(exchange[:asked])
		for end := asked; end < len(exchange); end++ {
			if !exchange[end].IsOutput() {
				k.record(exchange[end : end+1])
				continue
			}
			in = align.Input{}
			give(exchange[:end+1], false)
			fresh(k.turns)
		}
		return
	default:
		give(history, way == "whole, with ids")
		give(exchange[:asked], false)
		s := align.History(k.turns, in)
		require.Equal(t, len(k.turns), s.Turns, "%s: %s", way, k.said())
		require.False(t, s.Diverges)
		k.record(in.Items[s.Rest:])
	}
	k.record(exchange[asked:])
}

func exchangesOf(t *testing.T, c stack.Conversation) (out [][]message.Item) {
	t.Helper()
	answered := true
	for _, m := range c.Messages {
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		for _, i := range message.Items(raw) {
			if i.Asks() && answered || len(out) == 0 {
				out, answered = append(out, nil), false
			}
			out[len(out)-1] = append(out[len(out)-1], i)
			answered = answered || !i.Asks()
		}
	}
	// What has no question first or no answer last is of no client that asks a model.
	return slices.DeleteFunc(out, func(e []message.Item) bool { return !e[0].Asks() || e[len(e)-1].Asks() })
}

// repeats reports whether an exchange, or a call's id, comes twice.
func repeats(exchanges [][]message.Item) bool {
	seen := map[string]bool{}
	for _, e := range exchanges {
		key := ""
		for _, i := range e {
			key += string(i.JSON())
			if i.IsCall() {
				call := "call " + i.CallID()
				if seen[call] {
					return true
				}
				seen[call] = true
			}
		}
		if seen[key] {
			return true
		}
		seen[key] = true
	}
	return false
}
