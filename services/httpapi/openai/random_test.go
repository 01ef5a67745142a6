package openai_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services/answer"
)

// What two processes on one log answer is what a client is told that keeps its own books: lists in both directions and
// in pages of any size, responses and their inputs, how much history the model saw, and that what was deleted is gone,
// also once its events have left the log, and for a process that starts later.
func TestRandomCallsAtTwoProcesses(t *testing.T) {
	t.Parallel()
	seeds, steps := []uint64{1, 2}, 150
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		seeds, steps = nil, 400
		for range 20 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	if seed, err := strconv.ParseUint(os.Getenv("TURNLEDGER_SEED"), 10, 64); err == nil {
		seeds = []uint64{seed} // the name of a test that failed
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, 2)
			another := func() *stack { return startOn(t, log, answeredBy(answer.Echo{})) }
			b := &books{
				T: t, rng: rand.New(rand.NewPCG(seed, 0)), processes: []*stack{another(), another()},
				conversations: map[string][]entry{},
			}
			for range steps {
				b.step()
			}
			b.processes = append(b.processes, another())
			for _, id := range b.ids {
				b.check(id)
			}
			for _, r := range b.responses {
				b.get(r)
			}
		})
	}
}

// books are what a client was told.
type books struct {
	*testing.T
	rng           *rand.Rand
	processes     []*stack
	ids           []string // of the conversations
	conversations map[string][]entry
	responses     []*known
	words         int
}

// entry is an item.
type entry struct{ id, text string }

// known is a response that is still there, with all that stands before it.
type known struct {
	id           string
	body         map[string]any
	conversation string
	items        []entry // that it brought to its conversation
	// history are the texts up to the answer, of a response without a conversation.
	history []string
	// before are the messages that the model was shown, without the last; under are the responses that this one stands
	// behind, and itself.
	before int
	under  []string
}

func (b *books) any() *stack { return b.processes[b.rng.IntN(len(b.processes))] }

func (b *books) word() string {
	b.words++
	return fmt.Sprint("word", b.words)
}

func pick[E any](b *books, of []E) E { return of[b.rng.IntN(len(of))] }

// step makes a call of any kind.
func (b *books) step() {
	kinds := []struct {
		weight int
		do     func()
	}{
		{2, b.begin}, {6, b.add}, {5, b.answer}, {4, b.respond}, {6, b.goOn}, {2, b.unstored}, {3, b.useTool},
		{4, b.deleteItem}, {1, b.deleteConversation}, {3, b.deleteResponse},
		{3, func() { b.check(pick(b, b.ids)) }}, {3, func() { b.get(pick(b, b.responses)) }},
	}
	if len(b.ids) == 0 {
		b.begin()
	}
	if len(b.responses) == 0 {
		b.respond()
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := b.rng.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			k.do()
			return
		}
	}
}

func (b *books) begin() {
	var items, want []string
	for range b.rng.IntN(4) {
		want = append(want, b.word())
		items = append(items, pick(b, []func(string) string{user, assistant})(want[len(want)-1]))
	}
	id := b.any().begin(items...)
	b.ids = append(b.ids, id)
	all := b.any().list(id, 100)
	require.Equal(b, want, texts(all))
	b.conversations[id] = entries(all)
}

func entries(items []any) []entry {
	texts, out := texts(items), []entry{}
	for n, id := range ids(items) {
		out = append(out, entry{id, texts[n]})
	}
	return out
}

func (b *books) add() {
	id := pick(b, b.ids)
	var items []string
	for range pick(b, []int{1, 1, 2, 3, 5, 12}) {
		form := pick(b, []func(string) string{user, user, assistant, func(s string) string {
			return `{"type":"reasoning","summary":[{"type":"summary_text","text":"` + s + `"}]}`
		}})
		items = append(items, form(b.word()))
	}
	path, body := "/v1/conversations/"+id+"/items", `{"items":[`+strings.Join(items, ",")+`]}`
	told := b.any().must("POST", path, body)
	if b.rng.IntN(4) == 0 {
		require.Equal(b, told, b.any().must("POST", path, body, "X-Stainless-Retry-Count", "1"))
	}
	require.Len(b, told["data"], len(items))
	b.conversations[id] = append(b.conversations[id], entries(told["data"].([]any))...)
}

// ask makes a response, now and then as a stream, or twice as a client does that missed the answer.
func (b *books) ask(body map[string]any) map[string]any {
	raw := func() string {
		out, err := json.Marshal(body)
		require.NoError(b, err)
		return string(out)
	}
	switch b.rng.IntN(5) {
	case 0:
		body["stream"] = true
		all := eventsOf(b.T, b.any().do("POST", "/v1/responses", raw()).raw)
		require.NotEmpty(b, all)
		require.Equal(b, "response.completed", all[len(all)-1]["type"])
		return all[len(all)-1]["response"].(map[string]any)
	case 1:
		if body["store"] == nil {
			told := b.any().must("POST", "/v1/responses", raw())
			require.Equal(b, told, b.any().must("POST", "/v1/responses", raw(), "X-Stainless-Retry-Count", "1"))
			return told
		}
	}
	return b.any().must("POST", "/v1/responses", raw())
}

var echoed = regexp.MustCompile(`You said: (\S+) \((\d+) messages before\)$`)

// echo returns what the model said to a word, and how many messages it was shown before.
func (b *books) echo(r map[string]any, word string) (text string, before int) {
	b.Helper()
	text = texts(r["output"].([]any))[0]
	said := echoed.FindStringSubmatch(text)
	require.NotNil(b, said, text)
	require.Equal(b, word, said[1])
	before, _ = strconv.Atoi(said[2])
	return text, before
}

func messages(words ...string) (out []any) {
	for _, w := range words {
		out = append(out, map[string]any{"role": "user", "content": w})
	}
	return out
}

func (b *books) answer() {
	id := pick(b, b.ids)
	words := []string{b.word()}
	for range b.rng.IntN(3) {
		words = append(words, b.word())
	}
	r := b.ask(map[string]any{"conversation": id, "input": messages(words...)})
	text, before := b.echo(r, words[len(words)-1])
	all := b.any().list(id, 100)
	was := b.conversations[id]
	require.Equal(b, was, entries(all[:len(was)]))
	require.Equal(b, append(words, text), texts(all[len(was):]))
	b.conversations[id] = entries(all)
	b.responses = append(b.responses, &known{
		id: r["id"].(string), body: r, before: before, under: []string{r["id"].(string)},
		conversation: id, items: slices.Clone(b.conversations[id][len(was):]),
	})
}

func (b *books) respond() {
	words := make([]string, pick(b, []int{1, 1, 2, 4, 65, 70}))
	for n := range words {
		words[n] = b.word()
	}
	r := b.ask(map[string]any{"input": messages(words...)})
	text, before := b.echo(r, words[len(words)-1])
	require.Equal(b, len(words)-1, before)
	b.responses = append(b.responses, &known{
		id: r["id"].(string), body: r, history: append(words, text), before: before,
		under: []string{r["id"].(string)},
	})
}

// goOn goes on with any response: the newest of its chain, or one that another has gone on with.
func (b *books) goOn() {
	of, word := pick(b, b.responses), b.word()
	r := b.ask(map[string]any{"input": word, "previous_response_id": of.id})
	text, before := b.echo(r, word)
	require.Equal(b, of.before+2, before)
	next := &known{
		id: r["id"].(string), body: r, before: before, under: append(slices.Clone(of.under), r["id"].(string)),
	}
	if of.history != nil {
		next.history = append(slices.Clone(of.history), word, text)
	}
	b.responses = append(b.responses, next)
}

func (b *books) unstored() {
	of, word := pick(b, b.responses), b.word()
	_, before := b.echo(b.ask(map[string]any{"input": word, "previous_response_id": of.id, "store": false}), word)
	require.Equal(b, of.before+2, before)
}

// useTool has the model call a tool, and gives it the result once or twice.
func (b *books) useTool() {
	tools := []any{map[string]any{"type": "function", "name": "f", "parameters": map[string]any{"type": "object"}}}
	first := b.ask(map[string]any{"input": messages(b.word()), "tools": tools})
	call := first["output"].([]any)[0].(map[string]any)["call_id"]
	for range 1 + b.rng.IntN(2) {
		word := b.word()
		output := map[string]any{"type": "function_call_output", "call_id": call, "output": word}
		r := b.ask(map[string]any{"input": []any{output}, "tools": tools, "previous_response_id": first["id"]})
		_, before := b.echo(r, word)
		require.Equal(b, 2, before)
		id := r["id"].(string)
		b.responses = append(b.responses, &known{id: id, body: r, before: before, under: []string{id}})
	}
}

// erased takes what is gone of a session out of the log, now and then.
func (b *books) erased(session string) {
	if b.rng.IntN(2) == 0 {
		b.processes[0].erasePruned(session)
	}
}

func (b *books) deleteItem() {
	id := pick(b, b.ids)
	if len(b.conversations[id]) == 0 {
		return
	}
	n := b.rng.IntN(len(b.conversations[id]))
	path := "/v1/conversations/" + id + "/items/" + b.conversations[id][n].id
	b.any().must("DELETE", path, "")
	require.Equal(b, http.StatusNotFound, b.any().do("GET", path, "").status)
	b.conversations[id] = slices.Delete(b.conversations[id], n, n+1)
	b.forgetConversation(id)
	b.erased(id)
	b.check(id)
}

// forgetConversation drops the responses that have anything of a conversation in them.
func (b *books) forgetConversation(id string) {
	for _, r := range slices.Clone(b.responses) {
		if r.conversation == id {
			b.forget(r.id)
		}
	}
}

// forget drops a response, and those behind it.
func (b *books) forget(id string) {
	b.responses = slices.DeleteFunc(b.responses, func(r *known) bool { return slices.Contains(r.under, id) })
}

func (b *books) deleteConversation() {
	id := pick(b, b.ids)
	require.Equal(b, true, b.any().must("DELETE", "/v1/conversations/"+id, "")["deleted"])
	require.Equal(b, http.StatusNotFound, b.any().do("GET", "/v1/conversations/"+id, "").status)
	b.ids = slices.DeleteFunc(b.ids, func(other string) bool { return other == id })
	b.forgetConversation(id)
}

func (b *books) deleteResponse() {
	r := pick(b, b.responses)
	session := b.processes[0].sessionOf(r.id)
	path := "/v1/responses/" + r.id
	b.any().must("DELETE", path, "")
	b.erased(session)
	require.Equal(b, http.StatusNotFound, b.any().do("GET", path, "").status)
	require.Equal(b, http.StatusNotFound, b.any().do("DELETE", path, "").status)
	b.forget(r.id)
	if r.conversation != "" {
		b.forgetConversation(r.conversation)
		b.conversations[r.conversation] = slices.DeleteFunc(b.conversations[r.conversation], func(e entry) bool {
			return slices.Contains(r.items, e)
		})
		b.check(r.conversation)
	}
}

// check compares the lists of a conversation with the books.
func (b *books) check(id string) {
	b.Helper()
	want := b.conversations[id]
	require.Equal(b, want, entries(b.any().list(id, 1+b.rng.IntN(9))))
	newest := b.any().must("GET", "/v1/conversations/"+id+"/items?limit=100&order=desc", "")["data"].([]any)
	slices.Reverse(newest)
	require.Equal(b, want[max(0, len(want)-100):], entries(newest))
	if len(want) > 0 {
		e := pick(b, want)
		require.Equal(b, e.text, texts([]any{b.any().must("GET", "/v1/conversations/"+id+"/items/"+e.id, "")})[0])
	}
}

// get compares a response, and what it was asked, with the books.
func (b *books) get(r *known) {
	b.Helper()
	require.Equal(b, r.body, b.any().must("GET", "/v1/responses/"+r.id, ""))
	if r.history == nil {
		return
	}
	var input []any
	for after := ""; ; {
		page := b.any().must("GET", fmt.Sprintf("/v1/responses/%s/input_items?order=asc&limit=%d%s", r.id,
			1+b.rng.IntN(50), after), "")
		input = append(input, page["data"].([]any)...)
		if page["has_more"] == false {
			break
		}
		after = "&after=" + page["last_id"].(string)
	}
	require.Equal(b, r.history[:len(r.history)-1], texts(input))
}
