package importer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
)

// store keeps what an import records, as a server does: each request of a session once.
type store struct {
	importer.Store // what the imports of these tests do not call

	mu        sync.Mutex
	turns     map[string][]client.WholeTurn // by session
	described map[string]client.Describe    // by session
	refuse    string                        // a session that can't be described
}

func newStore() *store {
	return &store{turns: map[string][]client.WholeTurn{}, described: map[string]client.Describe{}}
}

func (s *store) RecordNewTurns(_ context.Context, turns []client.WholeTurn) ([]client.Recorded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]client.Recorded, len(turns))
	for n, t := range turns {
		out[n].Status = 201
		same := func(o client.WholeTurn) bool { return o.RequestID == t.RequestID }
		if slices.ContainsFunc(s.turns[t.SessionID], same) {
			out[n].Status = 200
		} else {
			s.turns[t.SessionID] = append(s.turns[t.SessionID], t)
		}
	}
	return out, nil
}

func (s *store) StartTurn(_ context.Context, start client.Start) (client.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := client.Turn{QuestionNeutral: start.QuestionNeutral, QuestionMessages: start.QuestionMessages}
	for _, t := range s.turns[start.SessionID] {
		if t.RequestID == start.RequestID {
			out.Duplicate, out.Status = true, "pending"
			out.QuestionNeutral, out.QuestionMessages = t.QuestionNeutral, t.QuestionMessages
			if t.Answer != nil {
				out.Status, out.AnswerNeutral, out.AnswerMessages = "finalized", t.AnswerNeutral, t.AnswerMessages
			}
		}
	}
	return out, nil
}

func (s *store) FinalizeTurn(context.Context, client.Finalize) (client.Turn, error) {
	return client.Turn{}, fmt.Errorf("no turn of these tests is finalized later")
}

func (s *store) Describe(_ context.Context, d client.Describe) (client.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.SessionID == s.refuse {
		return client.Session{}, &client.Error{Status: 410, Code: "session_erased"}
	}
	s.described[d.SessionID] = d
	return client.Session{}, nil
}

// ids are those of the items that a session's turns are, in their order.
func (s *store) ids(session string) (out []string) {
	for _, t := range s.turns[session] {
		all := t.QuestionMessages
		if t.Answer != nil {
			all = append(slices.Clone(all), t.AnswerMessages...)
		}
		for _, raw := range all {
			for _, i := range message.Items(raw) {
				out = append(out, i.ID())
			}
		}
	}
	return out
}

// imported imports files from the Assistants API, and returns what it reported by where it stands.
func (s *store) imported(t must.TB, files ...string) (importer.Summary, map[string]string) {
	var mu sync.Mutex
	wrong, passed := map[string]string{}, int64(0)
	done := must.Get(importer.Import(context.Background(), files, importer.Config{
		First: s, Later: s, From: importer.FromAssistants, Parallel: 3,
		Explain: func(_ context.Context, err error) error { return err },
		Passed: func(n int64) {
			mu.Lock()
			defer mu.Unlock()
			passed += n
		},
		Failed: func(where string, err error) {
			mu.Lock()
			defer mu.Unlock()
			wrong[filepath.Base(where)] += err.Error()
		},
	}))(t)
	if total := size(t, files); done.Conversations+done.Failed > 0 {
		require.Equal(t, total, passed, "the progress reaches its end")
	}
	return done, wrong
}

func size(t must.TB, files []string) (total int64) {
	for _, name := range files {
		info := must.Get(os.Stat(name))(t)
		total += info.Size()
	}
	return total
}

func given(thread, id, role string, at int, text string) map[string]any {
	return map[string]any{
		"id": id, "object": "thread.message", "created_at": at, "thread_id": thread, "role": role,
		"content": []any{map[string]any{"type": "text", "text": map[string]any{"value": text, "annotations": []any{}}}},
	}
}

func list(more bool, data ...any) map[string]any {
	return map[string]any{"object": "list", "data": data, "has_more": more}
}

// written writes values into a file of JSON Lines, and returns its name.
func written(t testing.TB, name string, values ...any) string {
	t.Helper()
	var text strings.Builder
	for _, v := range values {
		raw, isText := v.(string)
		if !isText {
			b := must.Get(json.Marshal(v))(t)
			raw = string(b)
		}
		text.WriteString(raw + "\n")
	}
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}

// pagesOf cuts a thread into pages as a client reads them: in either direction, some with a message of the one before.
func pagesOf(r *rapid.T, thread string) (want []string, pages []any) {
	descending := rapid.Bool().Draw(r, "descending")
	at, telling := 1_700_000_000, false
	var cut [][]any
	for p := range rapid.IntRange(1, 4).Draw(r, "pages") {
		at++ // two pages whose messages all have one time can't be told apart
		began := 0
		var page []any
		for n := range rapid.IntRange(1, 4).Draw(r, "messages") {
			at += rapid.IntRange(0, 1).Draw(r, "seconds")
			if n == 0 {
				began = at
			}
			id := fmt.Sprintf("msg_%s%d%d", thread, p, n)
			role := rapid.SampledFrom([]string{"user", "assistant"}).Draw(r, "role")
			want, page = append(want, id), append(page, given(thread, id, role, at, "text of "+id))
		}
		telling = telling || at > began
		cut = append(cut, page)
	}
	for n, page := range cut {
		last := n == len(cut)-1
		if n > 0 && rapid.Bool().Draw(r, "overlap") && telling {
			page = append([]any{cut[n-1][len(cut[n-1])-1]}, page...)
		}
		if descending || !telling {
			page, last = slices.Clone(page), n == 0
			slices.Reverse(page)
		}
		pages = append(pages, list(!last, page...))
	}
	return want, pages
}

// Pages of threads in any order, in files in any order and form, and read in either direction, are the threads'
// messages in their order. A second import adds nothing.
func TestPagesInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		dir := must.Get(os.MkdirTemp(t.TempDir(), ""))(r)
		want, pages := map[string][]string{}, []any{}
		for n := range rapid.IntRange(1, 3).Draw(r, "threads") {
			thread := fmt.Sprintf("thread_%c", 'a'+n)
			var more []any
			want[thread], more = pagesOf(r, thread)
			pages = append(pages, more...)
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "order"), 0))
		random.Shuffle(len(pages), func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
		var files []string
		for n := range 2 {
			var text []byte
			for _, page := range pages[n*len(pages)/2 : (n+1)*len(pages)/2] {
				indent := rapid.SampledFrom([]string{"", "  "}).Draw(r, "indent")
				raw, err := json.MarshalIndent(page, "", indent)
				if indent == "" {
					raw, err = json.Marshal(page)
				}
				require.NoError(r, err)
				text = append(append(text, raw...), '\n')
			}
			name := filepath.Join(dir, fmt.Sprint(n))
			require.NoError(r, os.WriteFile(name, text, 0o600))
			files = append(files, name)
		}
		s := newStore()
		_, wrong := s.imported(r, files...)
		require.Empty(r, wrong)
		for thread, ids := range want {
			require.Equal(r, ids, s.ids(thread))
			require.Equal(r, "conversation", s.described[thread].Kind)
		}
		slices.Reverse(files)
		again, wrong := s.imported(r, files...)
		require.Empty(r, wrong)
		require.Zero(r, again.Recorded)
		require.Equal(r, again.Turns, again.Existed)
	})
}

// Messages of one second keep the order of their page, also where pages of that second meet. Messages that stand alone,
// one on a line, are in the order of their file.
func TestMessagesOfOneSecond(t *testing.T) {
	t.Parallel()
	m := func(id string, at int) any { return given("thread_s", "msg_"+id, "user", at, id) }
	newest, middle := list(true, m("g", 5), m("f", 4), m("e", 3)), list(true, m("d", 3), m("c", 3))
	oldest := list(false, m("b", 3), m("a", 2))
	want := []string{"msg_a", "msg_b", "msg_c", "msg_d", "msg_e", "msg_f", "msg_g"}
	for n, pages := range [][]any{
		{newest, middle, oldest}, {oldest, newest, middle}, {middle, oldest, newest},
		{m("a", 2), m("b", 3), m("c", 3), m("d", 3), m("e", 3), m("f", 4), m("g", 5)},
		{m("g", 5), m("f", 4), m("e", 3), m("d", 3), m("c", 3), m("b", 3), m("a", 2)},
		// Two pages of one second alone are as the API gives them, newest first.
		{list(true, m("g", 5), m("f", 4)), list(true, m("e", 3), m("d", 3)), list(true, m("c", 3), m("b", 3)),
			list(false, m("a", 2))},
		// Only what two pages share tells which of them comes first.
		{list(false, m("f", 4), m("g", 5)), list(true, m("e", 3), m("f", 4)),
			list(true, m("b", 3), m("c", 3), m("d", 3), m("e", 3)), list(true, m("a", 2))},
	} {
		s := newStore()
		_, wrong := s.imported(t, written(t, "pages", pages...))
		require.Empty(t, wrong)
		require.Equal(t, want, s.ids("thread_s"), n)
	}
	s := newStore()
	_, wrong := s.imported(t, written(t, "lines", m("f", 4), m("a", 2), m("g", 5), m("b", 3)))
	require.Empty(t, wrong)
	require.Equal(t, []string{"msg_a", "msg_b", "msg_f", "msg_g"}, s.ids("thread_s"), "lines in no order")
}

// wrongCase is a value that can't be imported, and what is said of it by where.
type wrongCase struct {
	value any
	where map[string]string
}

// What can't be imported is reported with file and line. Nothing is imported of its thread, since the turns behind it
// would get the places of others; all other threads are.
func TestWhatIsWrongIsReported(t *testing.T) {
	t.Parallel()
	good := given("thread_good", "msg_1", "user", 1, "good")
	bad := func(id, name string, value any) map[string]any {
		m := given(id, "msg_1", "user", 1, "SECRET")
		if m[name] = value; value == nil {
			delete(m, name)
		}
		return m
	}
	part := func(v any) []any { return []any{v} }
	one := func(v any, what string) wrongCase { return wrongCase{v, map[string]string{"f:2": what}} }
	noText := part(map[string]any{"type": "text"})
	page := "{\n \"object\": \"list\",\n \"data\": [\n  {\"thread_id\": \"thread_bad\", \"content\": SECRET"
	for name, c := range map[string]wrongCase{
		"no id":             one(bad("thread_bad", "id", nil), "no id"),
		"no time":           one(bad("thread_bad", "created_at", nil), "created_at"),
		"a text as time":    one(bad("thread_bad", "created_at", "now"), "not as the Assistants API"),
		"another role":      one(bad("thread_bad", "role", "SECRET"), "user or assistant"),
		"no thread":         one(bad("", "id", "msg_1"), "id of the thread is missing"),
		"an odd thread":     one(bad("a\nb", "id", "msg_1"), "can't be the id of a session"),
		"an odd part":       one(bad("thread_bad", "content", part("SECRET")), "content 1 of the message is not as"),
		"a part of no text": one(bad("thread_bad", "content", noText), "has no text.value"),
		"a run":             one(map[string]any{"object": "thread.run", "id": "SECRET"}, "not an object of the"),
		"a number":          one(7, "not an object of the Assistants API"),
		"a broken line":     one(`{"object":"thread.message","thread_id":"thread_bad","created`, "not JSON"),
		"a broken page":     {page, map[string]string{"f:5": "not JSON"}},
		"no UTF-8":          one(`{"object":"thread","thread_id":"thread_bad","id":"`+"\xff"+`"}`, "not UTF-8"),
		"missing page":      one(list(true, bad("thread_bad", "id", "msg_9")), "the last page of a thread is missing"),
		"another text": {given("thread_bad", "msg_2", "user", 2, "SECRET"),
			map[string]string{"f:3": "another message with the id"}},
		"in a list": {"[\n7,\n" + `{"object":"thread"}` + "]",
			map[string]string{"f:3": "not an object", "f:4": "id of the thread is missing"}},
	} {
		values := []any{good, c.value}
		values = append(values, given("thread_bad", "msg_2", "user", 2, "of the bad one"),
			given("thread_end", "msg_1", "user", 1, "end"))
		s := newStore()
		done, wrong := s.imported(t, written(t, "f", values...))
		require.Equal(t, []string{"msg_1"}, s.ids("thread_good"), name)
		require.Equal(t, []string{"msg_1"}, s.ids("thread_end"), name)
		for where, what := range c.where {
			require.Contains(t, wrong[where], what, "%s: %v", name, wrong)
		}
		names := slices.Contains([]string{"no thread", "an odd thread", "a run", "a number", "in a list"}, name)
		if !names { // the part names the thread
			require.Empty(t, s.ids("thread_bad"), name)
		}
		require.EqualValues(t, len(wrong), done.Failed, name)
		require.NotContains(t, fmt.Sprint(wrong), "SECRET", name)
	}
}

// A part that is no JSON and names no thread may belong to each thread of its file.
func TestABrokenPartWithoutAName(t *testing.T) {
	t.Parallel()
	s := newStore()
	broken := written(t, "broken", given("thread_a", "msg_1", "user", 1, "a"), `{"object":"thread.mes`)
	whole := written(t, "whole", given("thread_b", "msg_1", "user", 1, "b"))
	_, wrong := s.imported(t, broken, whole)
	require.Len(t, wrong, 1)
	require.Contains(t, wrong["broken:2"], "names no thread")
	require.Empty(t, s.ids("thread_a"))
	require.Equal(t, []string{"msg_1"}, s.ids("thread_b"))
}

// A thread whose session was erased is reported, and none of its turns is sent.
func TestAThreadThatWasErased(t *testing.T) {
	t.Parallel()
	s := newStore()
	s.refuse = "thread_a"
	_, wrong := s.imported(t, written(t, "f", given("thread_a", "msg_1", "user", 1, "a"),
		given("thread_b", "msg_1", "user", 1, "b"),
		map[string]any{"object": "thread", "id": "thread_c", "metadata": map[string]any{"k": "v"}}))
	require.Contains(t, wrong["f:1"], "session_erased")
	require.Empty(t, s.ids("thread_a"))
	require.Equal(t, []string{"msg_1"}, s.ids("thread_b"))
	require.Equal(t, "v", *s.described["thread_c"].Metadata["k"], "a thread without messages")
}
