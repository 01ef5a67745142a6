package systemtest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

var record = flag.Bool("record", false, "record testdata anew, with this version")

// recording is what the version before left: its stores, a backup, and its answers. The files of NATS and of the
// backup are beside it in the archive.
type recording struct {
	At time.Time `json:"recorded_at"`
	// Calls are asked of each version and answered alike.
	Calls []recordedCall `json:"calls"`
	// Verbs are command lines, and what they print.
	Verbs []verb `json:"verbs"`
	// DeadLetters are those of `deadletters list --json`, without the time of the last attempt.
	DeadLetters []any `json:"dead_letters"`
	// Receipts are of erasures that were under way when the version before was killed.
	Receipts []string       `json:"receipts"`
	Postgres string         `json:"postgres"`
	Redis    []redisCommand `json:"redis,omitempty"`
}

// recordedCall is a request and its answer.
type recordedCall struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Body   any    `json:"body,omitempty"`
	Status int    `json:"status"`
	Answer any    `json:"answer"`
}

// verb is a command line and what it prints.
type verb struct {
	Args []string `json:"args"`
	Out  string   `json:"out"`
}

// form is how a recording was made, and is opened: everything in one process, or with all stores outside.
type form struct {
	name    string
	outside bool
}

var forms = []form{{"dev", false}, {"serve", true}}

func (f form) file() string { return filepath.Join("testdata", f.name+".tar.gz") }

// sessionTTL is the longest that there is: a session that is older leaves the recent view, and an anonymous one begins
// anew.
const sessionTTL = 90 * 24 * time.Hour

// site is a deployment of one version: its stores, and what lies outside.
type site struct {
	form
	dir      string // of NATS
	postgres string
	redis    *redistest.Server
	memory   *memorytest.Server
	model    *stack.Model
	nats     *natsserver.Server // nil: embedded
}

func newSite(t testing.TB, f form, dir string) *site {
	t.Helper()
	s := &site{form: f, dir: dir, postgres: pg.URL(t), model: stack.NewModel(t)}
	if f.outside {
		s.redis, s.memory = redistest.Start(t), memorytest.New(t)
		s.nats = stack.StartNATS(t, natsserver.Options{StoreDir: dir})
		s.memory.Fail(func(_ *http.Request, body string) int {
			if strings.Contains(body, "unmemorable") {
				return http.StatusBadRequest
			}
			return 0
		})
	}
	return s
}

// start runs a binary on the site and waits until it is ready. With stores outside it has some roles only.
func (s *site) start(t testing.TB, binary, roles string, env ...string) *stack.Process {
	t.Helper()
	env = append(s.model.Env(), append([]string{"TURNLEDGER_POSTGRES_URL=" + s.postgres,
		"TURNLEDGER_SESSION_TTL=90d", "TURNLEDGER_ANONYMOUS_RETENTION=off"}, env...)...)
	args := []string{"dev", "--data-dir", s.dir}
	if s.outside {
		args = []string{"serve", "--roles", roles}
		env = append(env, "TURNLEDGER_NATS_URL="+s.nats.ClientURL(), "TURNLEDGER_NATS_LISTEN=",
			"TURNLEDGER_PARTITIONS=4",
			"TURNLEDGER_REDIS_URL="+s.redis.URL(), "TURNLEDGER_MEMORY_URL="+s.memory.URL)
	}
	p := stack.LaunchProgram(t, binary, stack.FreeAddress(t), env, args...)
	p.WaitReady(t)
	return p
}

const (
	readers  = "api,context,recent,audit,chat"
	everyone = readers + ",eraser"
)

// makeRecording has a binary write a history, and kills it in the middle of an erasure and of a model's answer.
func makeRecording(t *testing.T, f form, binary string) (dir string, r recording) {
	t.Helper()
	dir = stack.DataDir(t)
	s := newSite(t, f, filepath.Join(dir, "data"))
	p := s.start(t, binary, everyone)
	r.At = time.Now().UTC()
	converse(t, p)
	p.WaitCaughtUp(t, "recent", "audit")
	refuse(t, p, s)
	for _, args := range [][]string{{"erase", "erased", "--wait"}, {"erase", "--identity", "grace", "--wait"}} {
		code, _, errs := p.Run(t, args...)
		require.Equal(t, stack.ExitDone, code, errs)
	}
	p.WaitNoLag(t)
	for _, c := range askedOfEach(f, p.Get(t, "/v1/sessions/anonymous")["position"].(string)) {
		c.Status, c.Answer = ask(t, p, c)
		require.Less(t, c.Status, http.StatusInternalServerError, "%s: %v", c.Path, c.Answer)
		r.Calls = append(r.Calls, c)
	}
	for _, args := range verbs() {
		code, out, errs := p.Run(t, args...)
		require.Equal(t, stack.ExitDone, code, errs)
		r.Verbs = append(r.Verbs, verb{args, out})
	}
	r.DeadLetters = p.Get(t, "/v1/deadletters")["deadletters"].([]any)
	code, _, errs := p.Run(t, "backup", filepath.Join(dir, "backup"))
	require.Equal(t, stack.ExitDone, code, errs)
	p.Stop(t)

	p = s.start(t, binary, readers, "TURNLEDGER_ERASE_RATE=1")
	for _, path := range []string{"/v1/sessions/leaving", "/v1/identities/leaver"} {
		receipt := p.Must(t, http.StatusAccepted, http.MethodDelete, path, nil)["receipt_id"].(string)
		require.Equal(t, "running", p.Get(t, "/v1/receipts/"+receipt)["state"])
		r.Receipts = append(r.Receipts, receipt)
	}
	s.model.Hold()
	go func() {
		_, _, _ = p.Call(t.Context(), http.MethodPost, "/v1/threads/interrupted/messages", interrupted())
	}()
	hang.Until(t, func() bool { return p.Get(t, "/v1/sessions/interrupted")["pending"] == 1.0 })
	p.Kill(t)
	r.Postgres = dumpPostgres(t, s.postgres)
	if s.outside {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		r.Redis = dumpRedis(t, s.redis.URL())
	}
	return dir, r
}

// interrupted is a message whose answer the version before did not finish.
func interrupted() map[string]any {
	return map[string]any{"request_id": "r2", "content": "slowly: who are his children?", "user_id": "eve"}
}

// converse writes the history.
func converse(t *testing.T, p *stack.Process) {
	t.Helper()
	turn := func(session, request string) string {
		return fmt.Sprint("/v1/sessions/", session, "/turns/", events.TurnID(session, request))
	}
	post := func(path string, body map[string]any) {
		t.Helper()
		p.Must(t, http.StatusOK, http.MethodPost, path, body)
	}
	for session, identity := range map[string]string{"linked": "ada", "translated": "ada", "pending": "bob",
		"hers":   "grace",
		"parked": "noor", "leaves-too": "leaver"} {
		p.LinkIdentity(t, session, identity)
	}
	for _, session := range []string{"linked", "anonymous", "pending", "hers", "erased", "leaving", "leaves-too"} {
		for i := range 4 {
			p.RecordExchange(t, session, i)
		}
	}
	post(turn("linked", "r1")+"/correct", map[string]any{"request_id": "c1", "answer_neutral": "a better answer"})
	post(turn("linked", "r2")+"/redact", map[string]any{"reason": "asked", "redacted_by": "ada"})
	p.Must(t, http.StatusConflict, http.MethodPut, "/v1/sessions/linked/identity", map[string]any{"identity_id": "bob"})
	post("/v1/sessions/anonymous/reset", map[string]any{"reason": "a new subject"})
	p.RecordTurn(t, "anonymous", "r9", "after the reset", "anew")
	p.Must(t, http.StatusCreated, http.MethodPost, "/v1/sessions/pending/turns",
		map[string]any{"request_id": "open", "question_neutral": "who answers this?"})
	p.Must(t, http.StatusCreated, http.MethodPost, "/v1/sessions/translated/turns", map[string]any{
		"request_id": "r0", "question_neutral": "Who is he?", "question_translated": "Wer ist er?",
		"translate_chat": true, "pipeline_name": "p", "metadata": map[string]any{"channel": "web", "unknown": 1},
		"question_messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "text", "text": "Who is he?"},
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://example.org/a.png"}}}}}})
	post(turn("translated", "r0")+"/finalize", map[string]any{"answer_neutral": "A politician.",
		"answer_messages": []any{
			map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "call",
				"type": "function", "function": map[string]any{"name": "look", "arguments": "{}"}}}},
			map[string]any{"role": "tool", "tool_call_id": "call", "content": "found"},
			map[string]any{"role": "assistant", "content": "A politician."}}})
	for thread, user := range map[string]string{"chatted": "ada", "interrupted": "eve"} {
		p.Ask(t, thread, map[string]any{"request_id": "r1", "content": "Who is Donald Trump?", "user_id": user})
	}
}

// poison is a rule of the audit tables that refuses questions, as one of an analyst's own may. Their events become dead
// letters.
const poison = "alter table turnledger.questions add constraint poison check (question_neutral not like 'poison%')"

// refuse makes dead letters: three of the audit, of which the first is dropped, and where a memory lies outside one of
// it.
func refuse(t *testing.T, p *stack.Process, s *site) {
	t.Helper()
	execPostgres(t, s.postgres, poison)
	p.RecordTurn(t, "parked", "r0", "poison 0", "dropped")
	p.RecordTurn(t, "parked", "r1", "poison 1", "is tried again")
	p.RecordTurn(t, "parked", "r2", "fine", "goes on")
	p.RecordTurn(t, "parked", "r4", "poison 2", "is dropped later")
	wanted := 3
	if s.outside {
		p.RecordTurn(t, "parked", "r3", "unmemorable", "unmemorable")
		wanted = 4
	}
	var letters []any
	hang.Until(t, func() bool {
		letters = p.Get(t, "/v1/deadletters")["deadletters"].([]any)
		return len(letters) == wanted
	})
	for _, x := range letters {
		letter := x.(map[string]any)
		if letter["projection"] == "audit" {
			code, _, errs := p.Run(t, "deadletters", "drop", "audit", letter["position"].(string), "--reason", "a lie",
				"--by", "ada")
			require.Equal(t, stack.ExitDone, code, errs)
			return
		}
	}
}

// save writes a recording into an archive.
func save(t *testing.T, file, dir string, r recording) {
	t.Helper()
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "recording.json"), raw, 0o600))
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	require.NoError(t, err)
	files := tar.NewWriter(zip)
	require.NoError(t, files.AddFS(os.DirFS(dir)))
	require.NoError(t, files.Close())
	require.NoError(t, zip.Close())
	require.Less(t, out.Len(), 1<<20)
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
}

// The recordings are whole. With -record they are written anew first:
// go test -run TestRecordings -record ./cmd/turnledger/systemtest
func TestRecordings(t *testing.T) {
	for _, f := range forms {
		if *record {
			dir, r := makeRecording(t, f, stack.Binary(t))
			save(t, f.file(), dir, r)
		}
		checkRecording(t, f)
	}
}

// checkRecording fails if a part of a recording is missing. A test that reads the part would pass without it.
func checkRecording(t *testing.T, f form) {
	t.Helper()
	dir, r := open(t, f)
	partitions, letters := 1, 3
	if f.outside {
		partitions, letters = 4, 4
	}
	require.False(t, r.At.IsZero())
	asked := askedOfEach(f, "0:0")
	require.Len(t, r.Calls, len(asked), f.name)
	for i, c := range r.Calls {
		require.Equal(t, asked[i].Method+asked[i].Path, c.Method+c.Path)
		require.NotZero(t, c.Status, c.Path)
		if c.Path != "/v1/events?session_id=unknown" {
			require.NotEmpty(t, c.Answer, c.Path)
		}
	}
	for i, args := range verbs() {
		require.Equal(t, args, r.Verbs[i].Args)
	}
	require.Len(t, r.Verbs, len(verbs()))
	require.Len(t, r.DeadLetters, letters)
	require.Len(t, r.Receipts, 2)
	require.Equal(t, f.outside, len(r.Redis) > 0, "the keys of Redis")
	for _, table := range []string{
		"questions", "answers", "sessions", "session_links", "event_ledger", "security_events", "dead_letters",
		"projection_checkpoints",
	} {
		require.Regexp(t, `(?i)insert into turnledger\.`+table+`\b`, r.Postgres)
	}
	require.FileExists(t, filepath.Join(dir, "backup", "manifest.json"))
	for k := range partitions {
		require.FileExists(t, filepath.Join(dir, "backup", fmt.Sprintf("TURNS-%d.snapshot", k)))
		require.Len(t, streamFiles(t, f, dir, fmt.Sprint("TURNS-", k)), 1, "stream %d", k)
	}
	require.Len(t, streamFiles(t, f, dir, "KV_TURNLEDGER"), 1)
	require.NotEmpty(t, streamFiles(t, f, dir, "TURNS-*", "msgs", "*.blk"), "events")
}

// streamFiles returns the folder of a stream, or files in it, where NATS keeps its streams.
func streamFiles(t *testing.T, f form, dir string, path ...string) []string {
	t.Helper()
	if !f.outside {
		dir = filepath.Join(dir, "data", "nats")
	} else {
		dir = filepath.Join(dir, "data")
	}
	found, err := filepath.Glob(filepath.Join(append([]string{dir, "jetstream", "$G", "streams"}, path...)...))
	require.NoError(t, err)
	return found
}
