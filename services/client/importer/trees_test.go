package importer_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
)

// ledger keeps sessions with forks, as a server does.
type ledger struct {
	importer.Store // what the imports of these tests do not call

	mu       sync.Mutex
	sessions map[string]*recorded
	order    []string // the sessions, by their last activity
	calls    int
	// end, above 0, is the call from which on no server answers.
	end int
}

type recorded struct {
	shared    []client.Turn
	turns     []client.Turn
	title     string
	kind      string
	identity  string
	forked    bool
	erased    bool
	described bool
}

func newLedger() *ledger { return &ledger{sessions: map[string]*recorded{}} }

var errGone = fmt.Errorf("no server")

// of returns a session, and counts the call.
func (l *ledger) of(id string) (*recorded, error) {
	if l.calls++; l.end > 0 && l.calls >= l.end {
		return nil, errGone
	}
	s := l.sessions[id]
	if s == nil {
		s = &recorded{}
		l.sessions[id] = s
	}
	if s.erased {
		return s, &client.Error{Status: 410, Code: "session_erased"}
	}
	return s, nil
}

func (l *ledger) Describe(_ context.Context, d client.Describe) (client.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.of(d.SessionID)
	if err != nil {
		return client.Session{}, err
	}
	out := client.Session{SessionID: d.SessionID, Turns: len(s.turns), Duplicate: s.described && d.Title == nil}
	s.kind, s.described = d.Kind, true
	if d.Title != nil {
		out.Duplicate = s.title == *d.Title
		s.title = *d.Title
	}
	return out, nil
}

func (l *ledger) LinkSession(_ context.Context, identity, session string) (client.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.of(session)
	s.identity = identity
	return client.Session{}, err
}

func (l *ledger) Turns(_ context.Context, session string, _ client.TurnQuery) (client.TurnPage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.of(session)
	if err != nil {
		return client.TurnPage{}, err
	}
	return client.TurnPage{Turns: slices.Clone(s.turns)}, nil
}

func (l *ledger) Fork(_ context.Context, f client.Fork) (client.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	parent, err := l.of(f.SessionID)
	if err != nil {
		return client.Session{}, err
	}
	s, err := l.of(f.Branch)
	if err != nil {
		return client.Session{}, err
	}
	if s.forked {
		return client.Session{}, &client.Error{Status: 409, Code: "session_exists"}
	}
	all := append(slices.Clone(parent.shared), parent.turns...)
	at := slices.IndexFunc(all, func(t client.Turn) bool { return t.TurnID == f.TurnID+f.BeforeTurnID })
	if at < 0 {
		return client.Session{}, &client.Error{Status: 404, Code: "turn_not_found"}
	}
	if all[at].Status == "redacted" {
		return client.Session{}, &client.Error{Status: 409, Code: "turn_redacted"}
	}
	if f.TurnID != "" {
		at++
	}
	s.forked, s.shared = true, all[:at]
	return client.Session{SessionID: f.Branch}, nil
}

func (l *ledger) RecordNewTurns(_ context.Context, turns []client.WholeTurn) ([]client.Recorded, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]client.Recorded, len(turns))
	for n, t := range turns {
		s, err := l.of(t.SessionID)
		if errors.Is(err, errGone) {
			return out, err
		}
		if err != nil {
			out[n].Err = err
			continue
		}
		if raw, err := json.Marshal(t); err != nil || len(raw) > 1<<20 {
			out[n].Err = &client.Error{Status: 413, Code: "body_too_large"}
			continue
		}
		out[n].Status = 200
		if slices.ContainsFunc(s.turns, func(o client.Turn) bool { return o.RequestID == t.RequestID }) {
			continue
		}
		out[n].Status = 201
		if t.IdentityID != "" {
			s.identity = t.IdentityID
		}
		one := client.Turn{
			SessionID: t.SessionID, RequestID: t.RequestID, Status: "pending", Metadata: t.Metadata,
			TurnID: events.TurnID(t.SessionID, t.RequestID).String(), QuestionNeutral: t.QuestionNeutral,
			QuestionMessages: t.QuestionMessages,
		}
		if t.Answer != nil {
			one.Status, one.AnswerNeutral, one.AnswerMessages = "finalized", t.AnswerNeutral, t.AnswerMessages
		}
		s.turns = append(s.turns, one)
		l.order = append(slices.DeleteFunc(l.order, func(o string) bool { return o == t.SessionID }), t.SessionID)
	}
	return out, nil
}

func (l *ledger) StartTurn(_ context.Context, start client.Start) (client.Turn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.of(start.SessionID)
	if err != nil {
		return client.Turn{}, err
	}
	i := slices.IndexFunc(s.turns, func(t client.Turn) bool { return t.RequestID == start.RequestID })
	if i >= 0 {
		out := s.turns[i]
		out.Duplicate = true
		return out, nil
	}
	out := client.Turn{
		SessionID: start.SessionID, RequestID: start.RequestID, Status: "pending",
		QuestionNeutral:  start.QuestionNeutral,
		TurnID:           events.TurnID(start.SessionID, start.RequestID).String(),
		QuestionMessages: start.QuestionMessages,
	}
	s.turns = append(s.turns, out)
	return out, nil
}

func (l *ledger) FinalizeTurn(_ context.Context, f client.Finalize) (client.Turn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.of(f.SessionID)
	if err != nil {
		return client.Turn{}, err
	}
	i := slices.IndexFunc(s.turns, func(t client.Turn) bool { return t.TurnID == f.TurnID })
	if raw, err := json.Marshal(f); err != nil || len(raw) > 1<<20 {
		return client.Turn{}, &client.Error{Status: 413, Code: "body_too_large"}
	}
	t := &s.turns[i]
	t.Status, t.AnswerNeutral, t.AnswerMessages = "finalized", f.AnswerNeutral, f.AnswerMessages
	return *t, nil
}

// imported imports an export, and returns what it did and what it reported.
func (l *ledger) imported(from importer.Source, files ...string) (importer.Summary, []string, error) {
	var mu sync.Mutex
	var wrong []string
	done, err := importer.Import(context.Background(), files, importer.Config{
		First: l, Later: l, From: from, Parallel: 3, Identity: "ada",
		Explain: func(_ context.Context, err error) error { return err },
		Passed:  func(int64) {}, Ordered: func(int64) {},
		Failed: func(where string, err error) {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, fmt.Sprintf("%s: %v", filepath.Base(where), err))
		},
	})
	return done, wrong, err
}

// path returns what a session says from its beginning: a line for each message, calls and outputs of tools as such.
func (l *ledger) path(session string) (out []string) {
	s := l.sessions[session]
	if s == nil {
		return nil
	}
	for _, t := range append(slices.Clone(s.shared), s.turns...) {
		out = append(out, lines("user", t.QuestionNeutral, t.QuestionMessages)...)
		out = append(out, lines("assistant", t.AnswerNeutral, t.AnswerMessages)...)
	}
	return out
}

func lines(role, text string, messages []json.RawMessage) (out []string) {
	if messages == nil && text != "" {
		return []string{role + ": " + text}
	}
	for _, raw := range messages {
		var m struct {
			Role    string
			Content any
			Calls   []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
			CallID string `json:"tool_call_id"`
		}
		_ = json.Unmarshal(raw, &m)
		line := m.Role + ": "
		if m.Content != nil {
			line += fmt.Sprint(m.Content)
		}
		for _, c := range m.Calls {
			line += fmt.Sprintf(" → %s %s", c.Function.Name, c.Function.Arguments)
		}
		out = append(out, strings.ReplaceAll(line, "\n", "⏎"))
	}
	return out
}

const (
	boiler = "6774a1c0-0001-8000-9000-00000000b011"
	chart  = "6774a1c0-0002-8000-9000-0000000070a1"
	bread  = "c1000000-0000-4000-8000-000000000001"
)

// Every format's made-up export becomes the sessions and forks that it says, tools and all; a second import changes
// nothing.
func TestExportsOfOtherProducts(t *testing.T) {
	t.Parallel()
	asksBoiler := []string{"user: Which boiler suits 120 m²?", "assistant: One of 12 kW."}
	story := []string{"user: Tell me a story", "assistant: Two suns shone.", "user: Go on",
		`assistant: Let me see. → dice {"n":6}`, "tool: 4", "assistant: They ran."}
	fork := func(root, first string) string {
		return events.BranchID(root, "import-"+importer.KeyOf(first))
	}
	for name, c := range map[string]struct {
		from    importer.Source
		file    string
		paths   map[string][]string
		dropped map[string]int64
		notKept []string
		titles  map[string]string
		order   []string
	}{
		"ChatGPT": {
			importer.FromChatGPT, "chatgpt/conversations.json", map[string][]string{
				boiler: append(slices.Clone(asksBoiler), "user: What does it cost?", "assistant: About 4,000 €.",
					"user: With the flue?"),
				fork(boiler, "b-u2"): append(slices.Clone(asksBoiler),
					"user: And for two floors?", "assistant: Then 15 kW."),
				fork(boiler, "b-a1x"): {"user: Which boiler suits 120 m²?", "assistant: That depends on the walls."},
				chart: {
					"user: [Image sent: photo]\n\nPlot these.\n\n[File: sales.csv]",
					`assistant:  → python {"code":"plot(df)"}`, "tool: <Figure>",
					`assistant:  → canmore.create_textdoc {"name":"Report","type":"document","content":"# Sales"}`,
					"tool: Successfully created text document.", "assistant:  → myfiles_browser {}",
					"tool: The file sales.csv has 3 rows.", "assistant: Here is the chart.",
					"user: Read it to me", "assistant: Sales rose.",
				},
			},
			map[string]int64{
				"empty": 1, "hidden": 1, "thoughts": 2, "without a message": 4, "instructions and memory of the account": 1,
			},
			[]string{"default_model_slug", "model_slug"}, map[string]string{boiler: "Which boiler?", chart: "Sales in a chart"},
			[]string{fork(boiler, "b-u2"), fork(boiler, "b-a1x"), boiler, chart},
		},
		"Claude": {
			importer.FromClaude, "claude.json", map[string][]string{
				bread: {
					"user: How long does it rise?\n\n[File: recipe.txt]\n\n500 g flour\n\n[Image sent: photo]",
					`assistant: Let me look. → web_search {"query": "rise"}`, "tool: two hours", "assistant: Two hours.",
					"user: And warm?", "assistant: One hour.",
				},
				fork(bread, "m4"): {
					"user: How long does it rise?\n\n[File: recipe.txt]\n\n500 g flour\n\n[Image sent: photo]",
					`assistant: Let me look. → web_search {"query": "rise"}`, "tool: two hours", "assistant: Two hours.",
					"user: In the fridge?", "assistant: Over night.",
				},
			},
			map[string]int64{"empty": 1}, []string{"account", "content.thinking"}, map[string]string{bread: "Bread"},
			[]string{fork(bread, "m4"), bread},
		},
		"LibreChat": {
			importer.FromLibreChat, "librechat-flat.json", map[string][]string{
				"lc1":             {"user: Tell me a long story"},
				fork("lc1", "l1"): {"user: Tell me a story", "assistant: Once there was Elara."},
				fork("lc1", "l3"): story,
			},
			map[string]int64{"of an error": 1}, []string{"content.think", "endpoint", "model"},
			map[string]string{"lc1": "Stories"}, nil,
		},
		"LibreChat, recursive": {
			importer.FromLibreChat, "librechat-tree.json", map[string][]string{
				"lc1":             {"user: Tell me a long story"},
				fork("lc1", "l1"): {"user: Tell me a story", "assistant: Once there was Elara."},
				fork("lc1", "l3"): story,
			},
			map[string]int64{"of an error": 1}, []string{"content.think", "endpoint", "model"},
			map[string]string{"lc1": "Stories"}, nil,
		},
		"LangChain": {
			importer.FromLangChain, "langchain.jsonl", map[string][]string{
				"s1": {"user: What is the weather?", `assistant:  → weather {"city": "Bern"}`, "tool: 12 degrees",
					"assistant: 12 degrees in Bern."},
				"s2": {"user: What is this?\n\n[Image sent: photo]", "assistant: A cat."},
			},
			map[string]int64{"of the type remove": 1}, []string{"content.thinking"}, nil, []string{"s2", "s1"},
		},
		"fine-tuning": {
			importer.FromOpenAIJSONL, "finetuning.jsonl", map[string][]string{
				"87cf5a3e-22a2-8b4b-98ad-c20a5cf52e04": nil, // looked up below
			}, map[string]int64{}, []string{"tools"}, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			file := filepath.Join("testdata", c.file)
			done, wrong, err := l.imported(c.from, file)
			require.NoError(t, err)
			require.Empty(t, wrong)
			require.Equal(t, c.dropped, done.Dropped)
			require.Equal(t, c.notKept, done.NotKept)
			if name == "fine-tuning" {
				require.Len(t, l.sessions, 2)
				require.Equal(t, []string{"system: You are brief.", "user: Weather in Bern?",
					`assistant:  → weather {"city":"Bern"}`, "tool: 12", "assistant: 12 degrees.", "user: Hi", "assistant: Hello"},
					append(l.path(l.order[0]), l.path(l.order[1])...))
			} else {
				for session, path := range c.paths {
					require.Equal(t, path, l.path(session), session)
					require.Equal(t, "conversation", l.sessions[session].kind)
					title := strings.TrimPrefix(l.sessions[session].title, titleOf(l, session, c.titles))
					require.Equal(t, c.titles[session], title)
				}
			}
			if c.order != nil {
				require.Equal(t, c.order, l.order)
			}
			before, calls := l.turns(), l.order
			again, wrong, err := l.imported(c.from, file)
			require.NoError(t, err)
			require.Empty(t, wrong)
			require.Zero(t, again.Recorded)
			require.Equal(t, done.Turns, again.Existed)
			require.Equal(t, before, l.turns())
			require.Equal(t, calls, l.order)
			for _, s := range l.sessions {
				require.True(t, s.forked || s.identity == "ada" || len(s.turns) == 0)
			}
		})
	}
}

// titleOf returns what the title of a fork is, which is that of its conversation.
func titleOf(l *ledger, session string, titles map[string]string) string {
	if _, root := titles[session]; root {
		return ""
	}
	return l.sessions[session].title
}

func (l *ledger) turns() (n int) {
	for _, s := range l.sessions {
		n += len(s.turns)
	}
	return n
}

// The original times stand in the metadata of turns.
func TestTurnsKeepTheirOriginalTimes(t *testing.T) {
	t.Parallel()
	l := newLedger()
	_, _, err := l.imported(importer.FromClaude, "testdata/claude.json")
	require.NoError(t, err)
	require.Equal(t, "2025-03-01T08:08:00Z", l.sessions[bread].turns[1].Metadata["original_created_at"])
}

// gptTree draws a conversation of ChatGPT: a tree of messages, each of which says its own id, some of them nothing.
type gptTree struct {
	parents []int
	roles   []string
	current int
}

func drawTree(t *rapid.T, atLeast gptTree) gptTree {
	g := gptTree{slices.Clone(atLeast.parents), slices.Clone(atLeast.roles), 0}
	if len(g.parents) == 0 {
		g.parents, g.roles = []int{-1}, []string{"user"}
	}
	for range rapid.IntRange(0, 12).Draw(t, "nodes") {
		up := rapid.IntRange(-1, len(g.parents)-1).Draw(t, "parent")
		g.parents = append(g.parents, up)
		g.roles = append(g.roles, rapid.SampledFrom([]string{"user", "user", "assistant", "assistant", "thoughts",
			"empty", "none"}).Draw(t, "role"))
	}
	g.current = rapid.IntRange(0, len(g.parents)-1).Draw(t, "current")
	return g
}

func (g gptTree) json(id string) []byte {
	mapping := map[string]any{}
	for n, up := range g.parents {
		node := map[string]any{"id": fmt.Sprint("n", n), "parent": nil}
		if up >= 0 {
			node["parent"] = fmt.Sprint("n", up)
		}
		kind, role, parts := "text", g.roles[n], []any{fmt.Sprintf("m%d.", n)}
		switch role {
		case "thoughts":
			kind, role, parts = "thoughts", "assistant", nil
		case "empty":
			role, parts = "assistant", []any{""}
		}
		if role != "none" {
			node["message"] = map[string]any{
				"author": map[string]any{"role": role}, "create_time": float64(1700000000 + n),
				"content": map[string]any{"content_type": kind, "parts": parts},
			}
		}
		mapping[fmt.Sprint("n", n)] = node
	}
	raw, _ := json.Marshal(map[string]any{
		"conversation_id": id, "title": "T", "mapping": mapping, "current_node": fmt.Sprint("n", g.current),
		"update_time": 1700000000 + len(g.parents),
	})
	return raw
}

func (g gptTree) kept(n int) bool { return g.roles[n] == "user" || g.roles[n] == "assistant" }

// paths are what is said on the way to each last message, sorted.
func (g gptTree) paths() (out []string) {
	inner := map[int]bool{}
	path := func(n int) (all []int) {
		for ; n >= 0; n = g.parents[n] {
			if g.kept(n) {
				all = append(all, n)
			}
		}
		slices.Reverse(all)
		return all
	}
	for n := range g.parents {
		if p := path(n); g.kept(n) && len(p) > 1 {
			inner[p[len(p)-2]] = true
		}
	}
	for n := range g.parents {
		if g.kept(n) && !inner[n] {
			text := ""
			for _, m := range path(n) {
				text += fmt.Sprintf("m%d.", m)
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// paths are what all sessions say, sorted.
func (l *ledger) paths() (out []string) {
	for id := range l.sessions {
		text := ""
		for _, line := range l.path(id) {
			_, said, _ := strings.Cut(line, ": ")
			text += strings.ReplaceAll(said, "\n", "")
		}
		if text != "" {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

func write(t must.TB, dir, name string, text []byte) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// Of any tree each way to a last message is one session, the current one the conversation's; the messages in turns and
// those that were dropped are all. A later export with more messages, of which another is current, adds its ways and
// changes none; an import that was broken off anywhere and runs again gives the same as one that was not.
func TestEveryMessageIsInOneTurnOrDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		first := drawTree(t, gptTree{})
		later := drawTree(t, first)
		l, cut := newLedger(), newLedger()
		file := write(t, dir, "a.json", append(append([]byte("["), first.json("c")...), ']'))
		done, wrong, err := l.imported(importer.FromChatGPT, file)
		require.NoError(t, err)
		require.Empty(t, wrong)
		account := func(g gptTree, done importer.Summary) {
			dropped := int64(0)
			for _, n := range done.Dropped {
				dropped += n
			}
			kept := int64(0)
			for n := range g.parents {
				if g.kept(n) {
					kept++
				}
			}
			require.Equal(t, int64(len(g.parents)), done.Messages)
			require.Equal(t, done.Messages-kept, dropped)
		}
		account(first, done)
		require.Equal(t, first.paths(), l.paths())
		if first.kept(first.current) {
			said := strings.Join(l.path("c"), "")
			require.Contains(t, said, fmt.Sprintf("m%d.", first.current), "the current branch is the session")
		}

		cut.end = rapid.IntRange(1, 30).Draw(t, "end")
		_, _, _ = cut.imported(importer.FromChatGPT, file) // broken off, or not
		cut.end = 0
		_, wrong, err = cut.imported(importer.FromChatGPT, file)
		require.NoError(t, err)
		require.Empty(t, wrong)
		require.Equal(t, l.paths(), cut.paths())
		require.Equal(t, l.turns(), cut.turns())

		before := l.copies()
		file = write(t, dir, "b.json", append(append([]byte("["), later.json("c")...), ']'))
		done, wrong, err = l.imported(importer.FromChatGPT, file)
		require.NoError(t, err)
		if len(wrong) == 0 { // an answer that has grown, or a question that got more, is told
			account(later, done)
			require.Equal(t, later.paths(), l.paths())
		}
		for id, turns := range before {
			for n, was := range turns {
				is := l.sessions[id].turns[n]
				if was.Status == "pending" { // it may have got its answer
					is.Status, is.AnswerNeutral, is.AnswerMessages = was.Status, "", nil
				}
				require.Equal(t, was, is, "an imported turn has changed")
			}
		}
	})
}

func (l *ledger) copies() map[string][]client.Turn {
	out := map[string][]client.Turn{}
	for id, s := range l.sessions {
		out[id] = slices.Clone(s.turns)
	}
	return out
}

// What was redacted or erased stays so, also where a later export is at another branch, and goes on behind it.
func TestWhatWasErasedStaysErased(t *testing.T) {
	t.Parallel()
	conversation := gptTree{
		[]int{-1, 0, 1, 2, 0, 1, 5, 3, 7},
		[]string{"user", "assistant", "user", "assistant", "assistant", "user", "assistant", "user", "assistant"}, 8,
	}
	dir := t.TempDir()
	file := func(g gptTree) string { return write(t, dir, fmt.Sprint(g.current, len(g.parents)), g.json("c")) }
	l := newLedger()
	must.Get(first(l.imported(importer.FromChatGPT, file(conversation))))(t)
	require.Equal(t, conversation.paths(), l.paths())
	edit := events.BranchID("c", "import-"+importer.KeyOf("n5"))
	*l.sessions[edit] = recorded{erased: true}
	gone := &l.sessions["c"].turns[0]
	*gone = client.Turn{SessionID: "c", RequestID: gone.RequestID, TurnID: gone.TurnID, Status: "redacted"}
	for _, current := range []int{8, 4, 6} {
		later := conversation
		later.current = current
		later.parents = append(slices.Clone(later.parents), 8, 6)
		later.roles = append(slices.Clone(later.roles), "user", "user")
		done := must.Get(first(l.imported(importer.FromChatGPT, file(later))))(t)
		require.Equal(t, int64(3), done.Dropped["of a session that was erased here"], "current %d", current)
		require.NotContains(t, strings.Join(l.path("c"), ""), "m0.")
		require.Contains(t, strings.Join(l.path("c"), ""), "m9.", "a new turn is added")
		require.Empty(t, l.path(edit))
		require.Len(t, l.sessions, 3)
	}
	l.sessions["c"].erased, l.sessions["c"].turns = true, nil
	done := must.Get(first(l.imported(importer.FromChatGPT, file(conversation))))(t)
	require.Equal(t, int64(9), done.Dropped["of a session that was erased here"])
	require.Len(t, l.sessions, 3)
}

// What a later export adds below a message that was erased or redacted brings that message's words to no new fork.
func TestWhatWasErasedDoesNotComeBackInAFork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(g gptTree) string { return write(t, dir, fmt.Sprint(len(g.parents)), g.json("c")) }
	conversation := gptTree{[]int{-1, 0, 1, 2, 1, 4},
		[]string{"user", "assistant", "user", "assistant", "user", "assistant"}, 3}
	l := newLedger()
	must.Get(first(l.imported(importer.FromChatGPT, file(conversation))))(t)
	edit := events.BranchID("c", "import-"+importer.KeyOf("n4"))
	*l.sessions[edit] = recorded{erased: true}
	second := &l.sessions["c"].turns[1]
	*second = client.Turn{SessionID: "c", RequestID: second.RequestID, TurnID: second.TurnID, Status: "redacted"}
	later := gptTree{append(conversation.parents, 4, 2), append(conversation.roles, "assistant", "assistant"), 6}
	done := must.Get(first(l.imported(importer.FromChatGPT, file(later))))(t)
	require.Equal(t, map[string]int64{
		"of a session that was erased here": 3, "of a turn that was redacted here": 1}, done.Dropped)
	require.Equal(t, []string{"m0.m1."}, l.paths())
}

func first(done importer.Summary, _ []string, err error) (importer.Summary, error) { return done, err }

// Broken JSON is told by its file and place, and what stands around it is imported: in an array, in lines, in a file
// that was cut off. What is no conversation is told, too.
func TestWhatCannotBeReadIsPassedOver(t *testing.T) {
	t.Parallel()
	one := func(id string) string {
		return string(gptTree{[]int{-1, 0}, []string{"user", "assistant"}, 1}.json(id))
	}
	broken := one("lost")
	broken = broken[:len(broken)-40]
	lost := func(n int) []string {
		return []string{fmt.Sprintf("x.json[%d]: not JSON, up to the next conversation", n)}
	}
	for name, c := range map[string]struct {
		text  string
		wrong []string
	}{
		"array":   {"[" + one("a") + ", " + broken + ",\n" + one("b") + "]", lost(1)},
		"lines":   {one("a") + "\n" + broken + "\n" + one("b") + "\n", lost(1)},
		"end":     {"[" + one("a") + "," + one("b") + "," + broken, lost(2)},
		"wrapped": {`{"conversations": [` + one("a") + "," + one("b") + `], "other": [1, {"a": 2}]}`, nil},
		"other": {"\xef\xbb\xbf[" + one("a") + `, {"id": 3}, 7, ` + one("b") + "]", []string{
			"x.json[1]: not a conversation of ChatGPT", "x.json[2]: not a conversation of ChatGPT",
		}},
		"text": {"[" + one("a") + `, {"mapping": {"x": {"message": {"a": "}, {\"mapping\"` +
			"\x01" + `" ]],` + one("b") + "]",
			lost(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			done, wrong, err := l.imported(importer.FromChatGPT, write(t, t.TempDir(), "x.json", []byte(c.text)))
			require.NoError(t, err)
			require.Equal(t, c.wrong, wrong)
			require.Equal(t, int64(len(c.wrong)), done.Failed)
			require.Equal(t, []string{"user: m0.", "assistant: m1."}, l.path("a"))
			require.Equal(t, []string{"user: m0.", "assistant: m1."}, l.path("b"))
		})
	}
}

// The messages of a document that is broken are no session of their own.
func TestABrokenDocumentIsNoOtherSession(t *testing.T) {
	t.Parallel()
	l := newLedger()
	_, wrong, err := l.imported(importer.FromLangChain, write(t, t.TempDir(), "x.jsonl", []byte(
		`{"session_id":"a","messages":[{"type":"human","data":{"content":"q"}},{"type":"ai","data":{"content":"a"}},{"
{"session_id":"b","messages":[{"type":"human","data":{"content":"q"}}]}
`)))
	require.NoError(t, err)
	require.Equal(t, []string{"x.jsonl[0]: not JSON, up to the next conversation"}, wrong)
	require.Len(t, l.sessions, 1)
	require.Equal(t, []string{"user: q"}, l.path("b"))
}

// A message that can't be read is counted, and those beside and below it are imported. A record whose list is none is
// refused.
func TestOddMessagesAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from importer.Source
		text string
		odd  int64
		path []string
	}{
		"LibreChat": {importer.FromLibreChat, `{"conversationId":"c","messages":[
			{"messageId":"1","isCreatedByUser":true,"text":"q"},{"messageId":"2","parentMessageId":"1","text":5},
			{"messageId":"3","parentMessageId":"2","text":"a"},"x",7,null]}`, 4, []string{"user: q", "assistant: a"}},
		"LibreChat, recursive": {importer.FromLibreChat, `{"conversationId":"c","messagesTree":[{"messageId":"1",
			"isCreatedByUser":true,"text":"q","children":["x",{"messageId":"2","content":"x",
			"children":[{"messageId":"3","text":"a"}]}]}]}`, 2, []string{"user: q", "assistant: a"}},
		"LibreChat, no list": {importer.FromLibreChat, `{"conversationId":"c","messages":"x"}`, 0, nil},
		"LangChain": {importer.FromLangChain, `{"session_id":"c","messages":[{"type":"human","content":"q"},"x",
			{"type":"ai","content":"lost","tool_calls":5},null,{"type":"ai"},{"type":"ai","content":"a"}]}`, 4,
			[]string{"user: q", "assistant: a"}},
		"LangChain, no list": {importer.FromLangChain, `{"session_id":"c","messages":"x"}`, 0, nil},
		"ChatGPT": {importer.FromChatGPT, `{"id":"c","mapping":{"1":{"message":{"author":{"role":"user"},
			"content":{"parts":["q"]}}},"2":{"parent":"1","message":5},"3":{"parent":"2","message":
			{"author":{"role":"assistant"},"content":{"parts":["a"]}}},"4":"x"}}`, 2, []string{"user: q", "assistant: a"}},
		"ChatGPT, a list": {importer.FromChatGPT, `{"id":"c","mapping":[]}`, 0, nil},
		"ChatGPT, a text": {importer.FromChatGPT, `{"id":"c","mapping":"x"}`, 0, nil},
		"null repeats nothing": {importer.FromLangChain, `{"session_id":"c","messages":[{"type":"human","content":
			["q",null,{"text":null}]},{"type":"ai","content":"a"},{"type":"ai","content":["b",null]}]}`, 0,
			[]string{"user: q", "assistant: a", "assistant: b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			done, wrong, err := l.imported(c.from, write(t, t.TempDir(), "x.json", []byte(c.text)))
			require.NoError(t, err)
			require.Equal(t, c.path, l.path("c"))
			if c.path == nil {
				require.Len(t, wrong, 1)
				require.Equal(t, int64(1), done.Failed)
				return
			}
			require.Empty(t, wrong)
			odd := int64(0)
			for kind, n := range done.Dropped {
				require.Contains(t, kind, "not as ")
				odd += n
			}
			require.Equal(t, c.odd, odd)
		})
	}
}

// A message of 50 MB is counted, and its place in the conversation says so; the rest is imported.
func TestAMessageThatIsTooLargeHasANotice(t *testing.T) {
	t.Parallel()
	text := string(gptTree{[]int{-1, 0, 1}, []string{"user", "assistant", "user"}, 2}.json("c"))
	text = strings.Replace(text, "m1.", strings.Repeat("long ", 10<<20), 1)
	l := newLedger()
	done, wrong, err := l.imported(importer.FromChatGPT, write(t, t.TempDir(), "x.json", []byte(text)))
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Equal(t, map[string]int64{"too large (its place says so)": 1}, done.Dropped)
	require.Equal(t, []string{"user: m0.", "assistant: [A message of 52428833 bytes was not imported: it is too large]",
		"user: m2."}, l.path("c"))
}

// No more of a large turn becomes notices than must, and none of one whose question and answer fit by themselves.
func TestOnlyTheLargestMessagesHaveNotices(t *testing.T) {
	t.Parallel()
	said := func(kb int) string { return strings.Repeat("long ", kb<<10/5) }
	for name, c := range map[string]struct {
		kb      []int // of the question and the messages of its answer
		dropped int64
	}{
		"by two calls": {[]int{600, 600}, 0}, "as much as must": {[]int{1, 300, 100, 200, 100, 250}, 2},
		"many small": {append([]int{1}, slices.Repeat([]int{2}, 1000)...), 807},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []string
			for n, kb := range c.kb {
				role := "assistant"
				if n == 0 {
					role = "user"
				}
				all = append(all, fmt.Sprintf(`{"role":%q,"content":%q}`, role, said(kb)))
			}
			l := newLedger()
			file := write(t, t.TempDir(), "x.jsonl", []byte(`{"messages":[`+strings.Join(all, ",")+`]}`))
			for range 2 {
				done, wrong, err := l.imported(importer.FromOpenAIJSONL, file)
				require.NoError(t, err)
				require.Empty(t, wrong)
				require.Equal(t, c.dropped, done.Dropped["too large (its place says so)"])
			}
			require.Equal(t, 1, l.turns())
		})
	}
}

// Of a conversation nothing is recorded behind a turn that a server refuses.
func TestNothingIsRecordedBehindARefusedTurn(t *testing.T) {
	t.Parallel()
	small := strings.Repeat(`{"role":"assistant","content":"`+strings.Repeat("x", 900)+`"},`, 1200)
	text := `{"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"a1"},
		{"role":"user","content":"q2"},` + small + `{"role":"user","content":"q3"},{"role":"assistant","content":"a3"}]}`
	l := newLedger()
	_, wrong, err := l.imported(importer.FromOpenAIJSONL, write(t, t.TempDir(), "x.json", []byte(text)))
	require.NoError(t, err)
	require.Len(t, wrong, 1)
	require.Equal(t, []string{"user: q1", "assistant: a1", "user: q2"}, l.path(l.order[0]))
}

// What a file calls its kinds of messages is no key of what an import did.
func TestUnknownKindsAreOne(t *testing.T) {
	t.Parallel()
	text := `{"id":"c","mapping":{"1":{"message":{"author":{"role":"user"},"content":{"parts":["q"]}}},
		"2":{"parent":"1","message":{"author":{"role":"x"},"content":{"parts":["a"]}}},
		"3":{"parent":"1","message":{"author":{"role":"user"},"content":{"content_type":"y"}}}}}`
	done, _, err := newLedger().imported(importer.FromChatGPT, write(t, t.TempDir(), "x.json", []byte(text)))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"of an unknown kind": 2}, done.Dropped)
	text = `{"session_id":"c","messages":[{"type":"human","content":"q"},{"type":"z","content":"q"}]}`
	done, _, err = newLedger().imported(importer.FromLangChain, write(t, t.TempDir(), "x.json", []byte(text)))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"of an unknown kind": 1}, done.Dropped)
}

// A file in a zip that unpacks to what no export does ends the import, and is named.
func TestAZipThatUnpacksToTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	must.Get(must.Get(z.Create("conversations.json"))(t).Write(bytes.Repeat([]byte(" "), 65<<20)))(t)
	require.NoError(t, z.Close())
	l := newLedger()
	_, _, err := l.imported(importer.FromChatGPT, write(t, t.TempDir(), "export.zip", zipped.Bytes()))
	require.ErrorContains(t, err, "conversations.json: it holds more than 67108864 bytes")
	require.Empty(t, l.sessions)
}

// A LangChain file that is given twice is recorded once; files that say the same and are sessions by their names are
// two.
func TestAFileThatIsGivenTwiceIsReadOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	row := `{"session_id":"s","message":{"type":"human","content":"q"}}
{"session_id":"s","message":{"type":"ai","content":"a"}}`
	rows, again := write(t, dir, "rows.jsonl", []byte(row)), write(t, dir, "copy.jsonl", []byte(row))
	history := []byte(`[{"type":"human","content":"q"},{"type":"ai","content":"a"}]`)
	one, two := write(t, dir, "one.json", history), write(t, dir, "two.json", history)
	l := newLedger()
	done, wrong, err := l.imported(importer.FromLangChain, rows, rows, again, one, two, dir)
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Equal(t, int64(6), done.Messages)
	for _, id := range []string{"s", "one", "two"} {
		require.Equal(t, []string{"user: q", "assistant: a"}, l.path(id))
	}
}

// Shards in a zip, in a folder and by their names are the same export; files without conversations are named.
func TestShardsZipsAndFolders(t *testing.T) {
	t.Parallel()
	shard := func(id string) []byte { return gptTree{[]int{-1, 0}, []string{"user", "assistant"}, 1}.json(id) }
	files := map[string][]byte{
		"conversations-000.json": append(append([]byte("["), shard("a")...), ']'), "user.json": []byte("{}"),
		"conversations-001.json": append(append([]byte("["), shard("b")...), ']'), "file-1.png": []byte("x"),
	}
	dir := t.TempDir()
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	for name, text := range files {
		write(t, dir, name, text)
		must.Get(must.Get(z.Create(name))(t).Write(text))(t)
	}
	require.NoError(t, z.Close())
	export := write(t, t.TempDir(), "export.zip", zipped.Bytes())
	for name, args := range map[string][]string{
		"zip": {export}, "folder": {dir},
		"names": {filepath.Join(dir, "conversations-000.json"), filepath.Join(dir, "conversations-001.json"),
			filepath.Join(dir, "user.json")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			done, wrong, err := l.imported(importer.FromChatGPT, args...)
			require.NoError(t, err)
			require.Empty(t, wrong)
			require.Len(t, l.sessions, 2)
			require.Contains(t, done.NotKept, "user.json")
		})
	}
	_, _, err := newLedger().imported(importer.FromClaude, t.TempDir())
	require.ErrorContains(t, err, "it holds no file with conversations")
}

// A question that had no answer gets it from a later export, and two exports at once are one.
func TestALaterExportAnswersAQuestion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := gptTree{[]int{-1, 0, 1}, []string{"user", "assistant", "user"}, 2}
	later := gptTree{[]int{-1, 0, 1, 2, 2}, []string{"user", "assistant", "user", "assistant", "assistant"}, 4}
	a, b := write(t, dir, "a.json", now.json("c")), write(t, dir, "b.json", later.json("c"))
	for name, imports := range map[string][][]string{"apart": {{a}, {b}, {a}, {b}}, "at once": {{b, a}, {a, b}}} {
		l := newLedger()
		for _, files := range imports {
			_, wrong, err := l.imported(importer.FromChatGPT, files...)
			require.NoError(t, err)
			require.Empty(t, wrong, name)
		}
		require.Equal(t, later.paths(), l.paths(), name)
		require.Len(t, l.sessions["c"].turns, 2, "an answer is no turn of its own")
	}
}

// The values of other products' files are known for what they are.
func TestRecognize(t *testing.T) {
	t.Parallel()
	for file, from := range map[string]importer.Source{
		"chatgpt/conversations.json": importer.FromChatGPT, "claude.json": importer.FromClaude,
		"librechat-flat.json": importer.FromLibreChat, "librechat-tree.json": importer.FromLibreChat,
		"langchain.jsonl": importer.FromLangChain,
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		var zipped bytes.Buffer
		z := zip.NewWriter(&zipped)
		for name, text := range map[string]string{
			"users.json": `[{"uuid":"u"}]`, "export/" + filepath.Base(file): string(raw),
		} {
			w, err := z.Create(name)
			require.NoError(t, err)
			_, err = w.Write([]byte(text))
			require.NoError(t, err)
		}
		require.NoError(t, z.Close())
		packed := filepath.Join(t.TempDir(), "export.zip")
		require.NoError(t, os.WriteFile(packed, zipped.Bytes(), 0o600))
		for _, file := range []string{filepath.Join("testdata", file), packed} {
			_, _, err := newLedger().imported("", file)
			var other *importer.UnknownForm
			require.ErrorAs(t, err, &other, file)
			require.Equal(t, from, other.From, file)
		}
	}
	_, wrong, err := newLedger().imported("", "testdata/finetuning.jsonl")
	require.NoError(t, err)
	require.Contains(t, wrong[0], "--from openai-jsonl")
}
