package systemtest_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// The tests of upgrades open what another process has written: a log, audit tables, a Redis and a backup. testdata
// holds them as that process left them, with its answers; TestRecordings makes them.

// open unpacks a recording into a folder.
func open(t *testing.T, f form) (dir string, r recording) {
	t.Helper()
	dir = stack.DataDir(t)
	file, err := os.Open(f.file())
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	zip, err := gzip.NewReader(file)
	require.NoError(t, err)
	require.NoError(t, unpack(dir, zip))
	raw, err := os.ReadFile(filepath.Join(dir, "recording.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	return dir, r
}

// eachRecording runs a test on the recordings of testdata, and in the long form also on some that are made
// now.
func eachRecording(t *testing.T, test func(t *testing.T, f form, dir string, r recording)) {
	t.Helper()
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dir, r := open(t, f)
			test(t, f, dir, r)
		})
		if stack.Long() {
			t.Run(f.name+", made now", func(t *testing.T) {
				t.Parallel()
				dir, r := makeRecording(t, f, stack.Binary(t))
				test(t, f, dir, r)
			})
		}
	}
}

// The stores of the version before are opened, read, verified, rebuilt and written on.
func TestStoresOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	eachRecording(t, func(t *testing.T, f form, dir string, r recording) {
		s := newSite(t, f, filepath.Join(dir, "data"))
		execPostgres(t, s.postgres, r.Postgres)
		if f.outside {
			loadRedis(t, s.redis.URL(), r.Redis)
		}
		checkStores(t, s, r)
	})
}

func checkStores(t *testing.T, s *site, r recording) {
	t.Helper()
	p := s.start(t, stack.Binary(t), readers)
	p.WaitCaughtUp(t, "recent", "audit")
	answersAsBefore(t, p, r, "source")
	printsAsBefore(t, p, r)
	for _, receipt := range r.Receipts {
		if state := p.Get(t, "/v1/receipts/"+receipt)["state"]; s.outside { // no eraser runs yet
			require.Equal(t, "running", state)
		}
	}
	checkLetters(t, p, s, r)
	for range 2 {
		verify(t, p)
		answersAsBefore(t, p, r)
		for _, view := range []string{"recent", "audit"} {
			code, out, errs := p.Run(t, "projections", "rebuild", view, "--yes")
			require.Equal(t, stack.ExitDone, code, out+errs)
		}
	}
	writeOn(t, p)
	if s.outside {
		s.start(t, stack.Binary(t), "eraser")
	}
	for _, receipt := range r.Receipts {
		hang.Until(t, func() bool {
			return p.Get(t, "/v1/receipts/"+receipt)["state"] == "complete"
		}, "%v", p.Get(t, "/v1/receipts/"+receipt))
	}
	for _, session := range []string{"leaving", "leaves-too"} {
		require.Empty(t, p.Context(t, session))
		require.Equal(t, false, p.Get(t, stack.SessionPath(session))["found"])
	}
	verify(t, p)
	p.Stop(t)
}

func verify(t *testing.T, p *stack.Process) {
	t.Helper()
	p.WaitNoLag(t)
	code, out, errs := p.Run(t, "projections", "verify")
	require.Equal(t, stack.ExitDone, code, out+errs)
}

// answersAsBefore asks again what the version before was asked. What a context was read from is compared where exact
// names it: source.
func answersAsBefore(t *testing.T, p *stack.Process, r recording, exact ...string) {
	t.Helper()
	if time.Since(r.At) > sessionTTL-time.Hour {
		exact = nil // the sessions have left the recent view by their age, and are read from the log
	}
	for _, c := range r.Calls {
		status, answer := ask(t, p, c)
		require.Equal(t, c.Status, status, "%s %s %v: %v", c.Method, c.Path, c.Body, answer)
		require.Equal(t, comparably(t, c, c.Answer, exact), comparably(t, c, answer, exact), "%s %s %v", c.Method,
			c.Path, c.Body)
	}
}

// printsAsBefore runs again the command lines that the version before ran.
func printsAsBefore(t *testing.T, p *stack.Process, r recording) {
	t.Helper()
	for _, v := range r.Verbs {
		code, out, errs := p.Run(t, v.Args...)
		require.Equal(t, stack.ExitDone, code, errs)
		require.Equal(t, printedVerb(v.Args[0], v.Out), printedVerb(v.Args[0], out), v.Args)
	}
}

// printedVerb reads what a verb printed, without what the version before had no name for: JSON values, or a text.
func printedVerb(verb, out string) (values []any) {
	for all := json.NewDecoder(strings.NewReader(out)); ; {
		var v any
		if err := all.Decode(&v); errors.Is(err, io.EOF) {
			return values
		} else if err != nil {
			return []any{out}
		}
		withoutNew(v)
		if explained, is := v.(map[string]any); is && verb == "explain" {
			turns, _ := explained["turns"].([]any)
			for _, turn := range turns {
				delete(turn.(map[string]any), "session_id")
			}
		}
		values = append(values, v)
	}
}

// comparably returns an answer as text, without what may differ.
func comparably(t *testing.T, c recordedCall, answer any, exact []string) string {
	t.Helper()
	if object, ok := answer.(map[string]any); ok {
		object = maps.Clone(object)
		answer = object
		if c.Method == http.MethodGet || strings.HasSuffix(c.Path, "/context") {
			delete(object, "position") // up to which the log was read, which other events have moved
		}
		if !slices.Contains(exact, "source") {
			delete(object, "source")
		}
		for _, added := range []string{"title", "metadata", "duplicate"} { // of sessions: new in this version
			if _, is := object["last_active_at"]; is {
				delete(object, added)
			}
		}
		if c.Path == "/v1/sessions/hers" {
			delete(object, "found") // the version before found sessions of an erased identity
		}
		withoutNew(object)
	}
	raw, err := json.MarshalIndent(answer, "", " ")
	require.NoError(t, err)
	return string(raw)
}

// withoutNew takes away what the version before had no name for: branches and summaries. It changes the answer.
func withoutNew(answer any) {
	switch part := answer.(type) {
	case map[string]any:
		for _, added := range []string{"forked_from", "inherited", "summary", "branches", "shared_turns"} {
			delete(part, added)
		}
		for _, member := range part {
			withoutNew(member)
		}
	case []any:
		for _, member := range part {
			withoutNew(member)
		}
	}
}

// checkLetters finds the dead letters as they were, drops one, and has all applied once nothing refuses them.
func checkLetters(t *testing.T, p *stack.Process, s *site, r recording) {
	t.Helper()
	var letters []any
	hang.Until(t, func() bool {
		letters = p.Get(t, "/v1/deadletters")["deadletters"].([]any)
		return len(letters) == len(r.DeadLetters)
	}, "%v, not %v", letters, r.DeadLetters)
	require.Equal(t, r.DeadLetters, letters)
	verb := func(verb string, letter any, more ...string) string {
		t.Helper()
		l := letter.(map[string]any)
		args := []string{"deadletters", verb, l["projection"].(string), l["position"].(string)}
		code, out, errs := p.Run(t, append(args, more...)...)
		require.Equal(t, stack.ExitDone, code, out+errs)
		return out
	}
	require.Contains(t, verb("show", letters[0]), "dropped by  ada\n")
	require.Equal(t, []string{"fine"}, p.AuditedQuestions(t, "noor")[:1])
	execPostgres(t, s.postgres, "alter table turnledger.questions drop constraint poison")
	if s.outside {
		s.memory.Fail(nil)
	}
	verb("drop", letters[2], "--reason", "another lie", "--by", "grace")
	require.Contains(t, verb("show", letters[2]), "dropped by  grace\n")
	for _, letter := range letters {
		require.Contains(t, verb("retry", letter), "applied")
	}
	require.Empty(t, p.Get(t, "/v1/deadletters")["deadletters"])
	require.Subset(t, p.AuditedQuestions(t, "noor"), []string{"poison 0", "poison 1", "poison 2", "fine"})
	if s.outside {
		documents := s.memory.Documents()
		require.Len(t, documents, 1, "what the memory has is not sent once more")
		require.Contains(t, documents[0].Content, "unmemorable")
	}
}

// writeOn goes on with the sessions of the version before.
func writeOn(t *testing.T, p *stack.Process) {
	t.Helper()
	before := p.Context(t, "linked")
	p.RecordTurn(t, "linked", "new", "a new question", "a new answer")
	require.Equal(t, append(before, map[string]any{"role": "user", "content": "a new question"},
		map[string]any{"role": "assistant", "content": "a new answer"}), p.Context(t, "linked"))
	p.Must(t, http.StatusConflict, http.MethodPut, "/v1/sessions/linked/identity", map[string]any{"identity_id": "bob"})
	open := fmt.Sprint("/v1/sessions/pending/turns/", events.TurnID("pending", "open"))
	p.Must(t, http.StatusOK, http.MethodPost, open+"/finalize", map[string]any{"answer_neutral": "this version"})
	require.Equal(t, "this version",
		p.Context(t, "pending")[len(p.Context(t, "pending"))-1].(map[string]any)["content"])
	p.Must(t, http.StatusOK, http.MethodPost, open+"/redact", nil)
	require.Len(t, p.Context(t, "pending"), 8)
	answer := p.Ask(t, "interrupted", interrupted())
	require.Equal(t, "Don Jr., Ivanka, Eric, Tiffany and Barron.", answer["content"])
	require.Equal(t, 0.0, p.Get(t, "/v1/sessions/interrupted")["pending"])
	require.Contains(t, p.AuditedQuestions(t, "ada"), "a new question")
}

// Lists, statistics and searches of the tables that the version before has filled are refused until the tables are
// rebuilt, and the refusal says so. What does not need them is right before that: its sessions are forked, and their
// branches are read.
func TestTablesOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	eachRecording(t, func(t *testing.T, f form, dir string, r recording) {
		s := newSite(t, f, filepath.Join(dir, "data"))
		execPostgres(t, s.postgres, r.Postgres)
		if f.outside {
			loadRedis(t, s.redis.URL(), r.Redis)
		}
		p := s.start(t, stack.Binary(t), readers)
		p.WaitCaughtUp(t, "recent", "audit")
		checkLetters(t, p, s, r)
		before, audited := p.Context(t, "linked"), p.AuditedQuestions(t, "ada")
		p.Must(t, http.StatusCreated, http.MethodPost, "/v1/sessions/linked/fork",
			map[string]any{"request_id": "f", "session_id": "branch"})
		p.RecordTurn(t, "branch", "own", "unheard question", "of the branch")
		branch := func() {
			t.Helper()
			shown := p.Context(t, "branch")
			require.Equal(t, before, shown[:len(before)])
			require.Len(t, shown, len(before)+2)
			require.ElementsMatch(t, append(audited, "unheard question"), p.AuditedQuestions(t, "ada"))
			verify(t, p)
		}
		branch()
		asked := []recordedCall{
			{Method: http.MethodGet, Path: "/v1/sessions?identity_id=ada&limit=100"},
			{Method: http.MethodGet, Path: "/v1/stats?since=2020-01-01T00:00:00Z&bucket=day"},
			{Method: http.MethodPost, Path: "/v1/search", Body: map[string]any{"query": "unheard"}},
		}
		for _, c := range asked {
			status, answer := ask(t, p, c)
			require.Equal(t, http.StatusServiceUnavailable, status, "%s: %v", c.Path, answer)
			require.Contains(t, fmt.Sprint(answer), "turnledger projections rebuild audit", c.Path)
		}
		code, out, errs := p.Run(t, "projections", "rebuild", "audit", "--yes")
		require.Equal(t, stack.ExitDone, code, out+errs)
		branch()
		var answers []string
		for _, c := range asked {
			status, answer := ask(t, p, c)
			require.Equal(t, http.StatusOK, status, "%s: %v", c.Path, answer)
			answers = append(answers, fmt.Sprint(answer))
		}
		require.Contains(t, answers[0], "branch")
		require.Contains(t, answers[0], "translated")
		require.Contains(t, answers[2], "branch")
		code, out, errs = p.Run(t, "search", "better answer")
		require.Equal(t, stack.ExitDone, code, errs)
		require.Contains(t, out, "linked", "a turn of the version before is found")
	})
}

// A backup of the version before becomes the log of this one.
func TestBackupOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	eachRecording(t, func(t *testing.T, f form, dir string, r recording) {
		s := newSite(t, f, stack.DataDir(t))
		p := s.start(t, stack.Binary(t), everyone)
		code, _, errs := p.Run(t, "restore", filepath.Join(dir, "backup"))
		require.Equal(t, stack.ExitDone, code, errs+p.Log.String())
		p.WaitReady(t)
		p.WaitCaughtUp(t, "recent", "audit")
		answersAsBefore(t, p, r)
		printsAsBefore(t, p, r)
		verify(t, p)
		p.RecordTurn(t, "linked", "new", "a new question", "a new answer")
		require.Contains(t, p.AuditedQuestions(t, "ada"), "a new question")
	})
}
