package systemtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// The log is backed up while it is used, grows, and is lost. The backup becomes the log of a server on an empty data
// directory, whose views in Redis and PostgreSQL are ahead of that log.
func TestBackupIsRestoredBesideViewsThatWentOn(t *testing.T) {
	t.Parallel()
	pg, redis := pg.URL(t), redistest.Start(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL=" + redis.URL(),
		"TURNLEDGER_PARTITIONS=2"}
	dir := stack.DataDir(t)
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	for _, s := range []string{"kept", "redacted", "erased", "hers"} {
		p.LinkIdentity(t, s, "of "+s)
		p.RecordExchange(t, s, 0)
	}
	p.RecordExchange(t, "kept", 1)
	p.RecordExchange(t, "gone before", 0)
	p.Done(t, "erase", "gone before", "--wait")
	backup := filepath.Join(t.TempDir(), "b")
	out := p.Done(t, "backup", backup)
	require.Regexp(t, `holds \d+ events of 2 partitions`, out)
	errs := p.Fails(t, "backup", backup)
	require.Contains(t, errs, "there is a backup already")
	require.NotContains(t, errs, "no server answers", "it is the place that will not have it")
	require.Contains(t, p.Fails(t, "restore", backup), "log_not_empty")
	require.Equal(t, stack.Exchanges(2), p.Context(t, "kept"), "a refused restore changes nothing")

	// What comes after the backup.
	p.RecordExchange(t, "kept", 2)
	turn := events.TurnID("redacted", "r0").String()
	correctThenRedact(t, p, turn)
	for _, args := range [][]string{{"erase", "erased", "--wait"}, {"erase", "--identity", "of hers", "--wait"}} {
		p.Done(t, args...)
	}
	facts := filepath.Join(t.TempDir(), "erasures.jsonl")
	p.Done(t, "replay", "--type",
		"turnledger.turn.redacted.v1,turnledger.session.erased.v1,turnledger.identity.erased.v1", "-o", facts)
	p.WaitCaughtUp(t, "recent", "audit")
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = stack.Start(t, env, "serve", "--data-dir", dir)
	code, out, errs := p.Run(t, "restore", backup, "--erasures", facts)
	require.Equal(t, stack.ExitDone, code, errs+p.Log.String())
	require.Contains(t, out, "5 said again, 0 concern")
	require.Contains(t, errs, "turnledger projections rebuild")
	p.WaitReady(t)
	require.Equal(t, stack.Exchanges(2), p.Context(t, "kept"))
	for _, s := range []string{"redacted", "erased", "hers", "gone before"} {
		require.Empty(t, p.Context(t, s), s)
	}
	p.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath("erased")+"/turns",
		map[string]any{"request_id": "late", "question_neutral": "q"})
	hang.Until(t, func() bool {
		return slices.Equal(viewsIn(t, p, "failed"), []string{"audit", "recent"})
	}, "the views notice")
	checks := p.Get(t, "/readyz")["checks"].(map[string]any)
	for check, view := range map[string]string{"redis": "recent", "postgres": "audit"} {
		require.Contains(t, checks[check].(map[string]any)["reason"], "turnledger projections rebuild "+view)
	}
	for _, name := range []string{"recent", "audit"} {
		p.Done(t, "projections", "rebuild", name, "--yes")
	}
	p.WaitCaughtUp(t, "recent", "audit")
	p.Done(t, "projections", "verify")
	require.Equal(t, stack.Questions(2), p.AuditedQuestions(t, "of kept"))
	// The eraser begins again in the restored log.
	p.Done(t, "erase", "--receipt", receiptOfDeletion(t, p, "erased"), "--wait")
	turns := p.Get(t, "/v1/sessions/redacted/turns?status=all")["turns"].([]any)
	require.Equal(t, "redacted", turns[0].(map[string]any)["status"])
	p.RecordExchange(t, "kept", 2)
	require.Equal(t, stack.Exchanges(3), p.Context(t, "kept"))
	p.Stop(t)
	p = stack.Start(t, env, "serve", "--data-dir", dir)
	require.Equal(t, stack.Exchanges(3), p.Context(t, "kept"), "it is on disk")
}

// correctThenRedact corrects a turn and redacts the correction: the backup knows the
// first version only.
func correctThenRedact(t *testing.T, p *stack.Process, turn string) {
	t.Helper()
	out := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("redacted")+"/turns/"+turn+"/correct",
		map[string]any{"request_id": "c", "answer_neutral": "better"})
	replacing := out["turn_id"].(string)
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("redacted")+"/turns/"+replacing+"/redact",
		map[string]any{"reason": "asked"})
}

// receiptOfDeletion asks for an erasure again, which returns its first receipt.
func receiptOfDeletion(t *testing.T, p *stack.Process, s string) string {
	t.Helper()
	return p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath(s), nil)["receipt_id"].(string)
}

// viewsIn names the views that have a partition in a state.
func viewsIn(t *testing.T, p *stack.Process, state string) (names []string) {
	t.Helper()
	_, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
	if err != nil {
		return nil
	}
	list, _ := out["projections"].([]any)
	for _, x := range list {
		if one := x.(map[string]any); one["state"] == state {
			names = append(names, one["name"].(string))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A backup that is damaged or lacks a file is refused with the file's name, before anything is sent to the server.
// So is a backup of another number of partitions. A server compares what it took in with the manifest before it serves
// the restored log.
func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	p.RecordExchange(t, "s", 0)
	whole := t.TempDir()
	p.Done(t, "backup", filepath.Join(whole, "b"))
	empty := stack.Serve(t, nil)
	for name, c := range map[string]struct {
		file   string
		damage func([]byte) []byte
		says   string
	}{
		"cut off": {"TURNS-0.snapshot", func(b []byte) []byte { return b[:len(b)-5] }, "TURNS-0.snapshot has"},
		"bit": {"TURNS-0.snapshot", func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			"TURNS-0.snapshot has another SHA-256"},
		"no file":     {"TURNS-0.snapshot", nil, "TURNS-0.snapshot is missing"},
		"no manifest": {"manifest.json", nil, "there is no manifest.json"},
		"manifest":    {"manifest.json", func(b []byte) []byte { return b[:len(b)/2] }, "manifest.json can't be read"},
		"a later one": {"manifest.json", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"format": 1`, `"format": 2`, 1))
		}, "has format 2"},
		"no key": {"manifest.json", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"item_key"`, `"other_key"`, 1))
		}, "manifest.json has no key of items"},
		"another count": {"manifest.json", func(b []byte) []byte {
			return regexp.MustCompile(`"events": \d+`).ReplaceAll(b, []byte(`"events": 1000`))
		}, ""},
	} {
		dir := filepath.Join(whole, name)
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(whole, "b"))))
		path := filepath.Join(dir, c.file)
		raw := must.Get(os.ReadFile(path))(t)
		require.NoError(t, os.Remove(path))
		if c.damage != nil {
			require.NoError(t, os.WriteFile(path, c.damage(raw), 0o600))
		}
		require.Contains(t, empty.Fails(t, "restore", dir), c.says, name)
		empty.WaitReady(t)
	}
	empty.WaitLog(t, "holds 2 events")
	require.Empty(t, empty.Context(t, "s"))
	two := stack.Start(t, nil, "serve", "--data-dir", stack.DataDir(t), "--partitions", "2")
	require.Contains(t, two.Fails(t, "restore", filepath.Join(whole, "b")), "TURNLEDGER_PARTITIONS=1")
	empty.Done(t, "restore", filepath.Join(whole, "b"))
	empty.WaitReady(t)
	require.Equal(t, stack.Exchanges(1), empty.Context(t, "s"))
}

// callAPI makes a call that a key names, and returns the answer and its headers.
func callAPI(t *testing.T, p *stack.Process, method, path, body string) (out map[string]any, h http.Header) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL+path, strings.NewReader(body)))(t)
	req.Header.Set("Idempotency-Key", "once")
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
	return out, resp.Header
}

// What clients of OpenAI's API hold names the same things after a restore: the ids of items and of responses, also of
// one whose turn was pruned so that its events have left the log, and the key of a call.
//
//conformance:o29
func TestABackupHoldsWhatNamesItems(t *testing.T) {
	t.Parallel()
	dir, env := stack.DataDir(t), append(stack.NewModel(t).Env(), "TURNLEDGER_PARTITIONS=2")
	serve := []string{"serve", "--data-dir", dir, "--roles", "api,context,recent,eraser,chat"}
	p := stack.Start(t, env, serve...)
	post := func(path string, body any) map[string]any {
		t.Helper()
		return p.Must(t, http.StatusOK, http.MethodPost, path, body)
	}
	said := map[string]any{"items": []any{map[string]any{"role": "user", "content": "hello"},
		map[string]any{"role": "assistant", "content": "hello, too"}}}
	path := "/v1/conversations/" + post("/v1/conversations", said)["id"].(string)
	response := "/v1/responses/" + post("/v1/responses", map[string]any{"input": "and now?",
		"conversation": filepath.Base(path)})["id"].(string)
	named := func() any {
		t.Helper()
		out, _ := callAPI(t, p, http.MethodPost, path+"/items", `{"items":[{"role":"user","content":"once"}]}`)
		return out
	}
	once := named()
	items := func() []any { return p.Get(t, path+"/items?order=asc")["data"].([]any) }
	question := items()[2].(map[string]any)["id"].(string)
	_, h := callAPI(t, p, http.MethodDelete, path+"/items/"+question, "")
	before, answered := items(), p.Get(t, response)
	require.Len(t, before, 4)
	hang.Until(t, func() bool { return p.Get(t, "/v1/receipts/"+h.Get("Turnledger-Receipt"))["state"] == "complete" })

	backup := filepath.Join(t.TempDir(), "b")
	p.Done(t, "backup", backup)
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))
	p = stack.Start(t, env, serve...)
	p.Done(t, "restore", backup)
	p.WaitReady(t)
	for restarted := range 2 {
		if restarted > 0 {
			p.Kill(t) // what was restored is on disk
			p = stack.Start(t, env, serve...)
		}
		require.Equal(t, before, items())
		for _, i := range before {
			require.Equal(t, i, p.Get(t, path+"/items/"+i.(map[string]any)["id"].(string)))
		}
		require.Equal(t, once, named(), "the key of a call still names it")
		hang.Until(t, func() bool { // the eraser goes through the log again
			status, got, err := p.Call(t.Context(), http.MethodGet, response, nil)
			return err == nil && status == http.StatusOK && assert.ObjectsAreEqual(answered, got)
		})
	}
}

// An operator has dropped a dead letter, and the log is lost, which has kept who and why. The backup brings both back,
// so that a rebuild of the audit passes over the event.
func TestABackupHoldsTheDeadLetters(t *testing.T) {
	t.Parallel()
	pg, dir := pg.URL(t), stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg}
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	db := must.Get(pgx.Connect(t.Context(), pg))(t)
	defer func() { _ = db.Close(t.Context()) }()
	must.Get(db.Exec(t.Context(), "alter table turnledger.questions add constraint poison check (question_neutral <> "+
		"'question 1')"))(t)
	p.LinkIdentity(t, "s", "u")
	for i := range 3 {
		p.RecordExchange(t, "s", i)
	}
	p.WaitCaughtUp(t, "audit")
	p.Done(t, "deadletters", "drop", "audit", "0:4", "--reason", "a lie", "--by", "ada")
	backup := filepath.Join(t.TempDir(), "b")
	code, _, errs := p.Run(t, "backup", backup)
	require.Equal(t, stack.ExitDone, code, errs)
	require.NotContains(t, errs, "dead letters are not in the backup")
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = stack.Start(t, env, "serve", "--data-dir", dir)
	p.Done(t, "restore", backup)
	p.WaitReady(t)
	_, out, problems := p.Run(t, "deadletters", "show", "audit", "0:4")
	require.Contains(t, out, "dropped by  ada\n", problems)
	p.Done(t, "projections", "rebuild", "audit", "--yes")
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(3), p.AuditedQuestions(t, "u"), "the new tables refuse nothing")
	_, out, _ = p.Run(t, "deadletters", "list", "--json")
	require.JSONEq(t, `{"deadletters":[]}`, out)
}

// What a server shows of a backup that is restored with what was erased since.
const (
	nothing  = "nothing"
	restored = "the backup"
)

// shownAfter reads all sessions. They must be those of one state.
func shownAfter(t *testing.T, p *stack.Process) string {
	t.Helper()
	states := map[string]bool{}
	for i := range stack.BackupSessions {
		got := p.Context(t, fmt.Sprint("s", i))
		if len(got) > 0 {
			require.Equal(t, stack.Exchanges(2), got)
		}
		states[map[bool]string{true: restored, false: nothing}[len(got) > 0]] = true
	}
	require.Len(t, states, 1, "a part of a log is served")
	require.Empty(t, p.Context(t, "gone"), "what was erased is served")
	if states[restored] {
		return restored
	}
	return nothing
}

// slowWay stands between a client and a server. It passes on so many bytes of what the client sends, and the rest when
// released is closed. reached is closed at that byte.
func slowWay(t *testing.T, to string, bytes int64) (url string, reached, released chan struct{}) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	reached, released = make(chan struct{}), make(chan struct{})
	var left atomic.Int64
	left.Store(bytes)
	once := sync.OnceFunc(func() { close(reached) })
	pass := func(server, client net.Conn) {
		defer func() { _ = server.Close() }()
		buf := make([]byte, 4<<10)
		for {
			n, err := client.Read(buf)
			if left.Add(-int64(n)) <= 0 {
				once()
				<-released
			}
			if _, failed := server.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(server, client)
			go func() {
				_, _ = io.Copy(client, server)
				_ = client.Close()
			}()
		}
	}()
	return "http://" + l.Addr().String(), reached, released
}

// A server that is killed, or stopped, at any moment of a restore serves afterwards what it had before, or all of the
// backup without what was erased since, or does not start and says what to do. The backup can then be restored.
func TestARestoreThatIsBrokenOffLeavesNoPartOfALog(t *testing.T) {
	t.Parallel()
	seeds := 4
	if stack.Long() {
		seeds = 200
	}
	backups, sizes := map[string]stack.Backup{}, map[string]int64{}
	for _, n := range []string{"1", "4"} {
		backups[n] = stack.TakeBackup(t, "--partitions", n)
		files := must.Get(filepath.Glob(filepath.Join(backups[n].Dir, "*")))(t)
		for _, name := range files {
			info := must.Get(os.Stat(name))(t)
			sizes[n] += info.Size()
		}
	}
	first := stack.Seed(t)
	ends := map[string]int{}
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(first+seed, 14))
		partitions := []string{"1", "4"}[rng.IntN(2)]
		e := brokenOff{dir: stack.DataDir(t), args: []string{"--partitions", partitions}, from: backups[partitions]}
		size := sizes[partitions]
		// A third is broken off while the client sends, the others when the server has all.
		if e.bytes = rng.Int64N(size + size/2); e.bytes > size {
			e.bytes = 1 << 40
		}
		e.wait = time.Duration(rng.Int64N(int64(600 * time.Millisecond)))
		e.signal = []os.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGKILL}[seed%3]
		e.stalls = stack.Long() && seed%2 == 0
		ends[e.run(t)]++
	}
	t.Logf("first seed %d: %v", first, ends)
}

type brokenOff struct {
	dir    string
	args   []string
	from   stack.Backup
	bytes  int64         // that the server gets before it is killed
	wait   time.Duration // after that
	signal os.Signal
	stalls bool // the client sends nothing more to a server that is being stopped
}

func (e brokenOff) serve(t *testing.T) *stack.Process {
	t.Helper()
	return stack.Launch(t, nil, append([]string{"serve", "--data-dir", e.dir}, e.args...)...)
}

func (e brokenOff) run(t *testing.T) (end string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s after %d bytes and %s, %v", e.signal, e.bytes, e.wait, e.args)
		}
	}()
	p := e.serve(t)
	p.WaitReady(t)
	url, reached, released := slowWay(t, p.URL, e.bytes)
	client := (&stack.Process{URL: url}).Command(t, "restore", e.from.Dir, "--erasures", e.from.Erasures)
	require.NoError(t, client.Start())
	ended := make(chan error, 1)
	go func() { ended <- client.Wait() }()
	if e.bytes < 1<<40 {
		select {
		case <-reached:
		case err := <-ended: // it sent less than that
			ended <- err
		}
	}
	<-time.After(e.wait)
	require.NoError(t, p.Cmd.Process.Signal(e.signal))
	sends := e.signal == syscall.SIGINT && !e.stalls
	if sends {
		close(released)
	}
	begun := time.Now()
	_ = p.Cmd.Wait()
	require.Less(t, time.Since(begun), hang.Limit, "%s", p.Log)
	if !sends {
		close(released)
	}
	told := <-ended == nil

	again := e.serve(t)
	exited := make(chan error, 1)
	go func() { exited <- again.Cmd.Wait() }()
	if again.WaitReadyOr(t, exited) {
		end = shownAfter(t, again)
	} else {
		end = "refused"
		require.Contains(t, again.Log.String(), "empty the data directory and restore again")
		require.NoError(t, os.RemoveAll(filepath.Join(e.dir, "nats")))
		again = e.serve(t)
		again.WaitReady(t)
	}
	require.False(t, told && end != restored, "turnledger restore ended well, and then: %s", end)
	if end != restored {
		again.Done(t, "restore", e.from.Dir, "--erasures", e.from.Erasures)
		again.WaitReady(t)
	}
	require.Equal(t, restored, shownAfter(t, again))
	require.NoError(t, again.Cmd.Process.Kill())
	return fmt.Sprint(e.signal, ": ", end)
}

// A backup is restored through the process whose NATS another one uses: that one can't hold it still. Readers at
// both are told the state of before, 503 or the restored one, and a write that is acknowledged is in the log that
// stays. The process that did not restore ends, or answers 503, until it is started again.
func TestARestoreUnderAnotherProcess(t *testing.T) {
	t.Parallel()
	from := stack.TakeBackup(t)
	for range map[bool]int{false: 1, true: 30}[stack.Long()] {
		nats, dir := stack.FreeAddress(t), stack.DataDir(t)
		serve := []string{"serve", "--data-dir", dir, "--roles", "api,context,eraser", "--verbose"}
		host := stack.Start(t, stack.ServeNATS(nats), serve...)
		joined := stack.Start(t, stack.JoinNATS(nats), "serve", "--data-dir", stack.DataDir(t), "--roles",
			"api,context")
		errs := joined.Fails(t, "restore", from.Dir, "--erasures", from.Erasures)
		require.Contains(t, errs, "restore through that one")
		require.Equal(t, nothing, shownAfter(t, joined))

		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var mu sync.Mutex
		var acknowledged []string
		for i, p := range []*stack.Process{host, joined} {
			all.Go(func() { readsOneState(ctx, t, p, p == joined) })
			all.Go(func() {
				writes := stack.NewCaller(p.URL, true)
				for n := 0; ctx.Err() == nil; n++ {
					if !strings.Contains(host.Log.String(), "the empty log is gone") {
						<-time.After(time.Millisecond)
						continue
					}
					id := fmt.Sprint("w", i, "-", n)
					status, _, err := writes.Call(ctx, http.MethodPost, stack.SessionPath(id)+"/turns",
						map[string]any{"request_id": "r", "question_neutral": "q"})
					if err == nil && status == http.StatusCreated {
						mu.Lock()
						acknowledged = append(acknowledged, id)
						mu.Unlock()
					}
				}
			})
		}
		host.Done(t, "restore", from.Dir, "--erasures", from.Erasures)
		<-time.After(100 * time.Millisecond)
		end()
		all.Wait()
		require.NotContains(t, host.Log.String(), "begun anew")
		host.WaitReady(t)
		require.Equal(t, restored, shownAfter(t, host))
		host.Stop(t)
		host = stack.Start(t, stack.ServeNATS(nats), serve...)
		require.Equal(t, restored, shownAfter(t, host))
		for _, id := range acknowledged {
			require.Len(t, host.Context(t, id), 1, "the write of %s was acknowledged", id)
		}
		host.Stop(t)
	}
}

// readsOneState asks for contexts without pause. Each is empty until the first one of the backup was shown.
func readsOneState(ctx context.Context, t *testing.T, p *stack.Process, mayEnd bool) {
	asks, seen := stack.NewCaller(p.URL, true), false
	for n := 0; ctx.Err() == nil; n++ {
		status, got, err := asks.ReadContext(ctx, fmt.Sprint("s", n%stack.BackupSessions))
		switch {
		case ctx.Err() != nil, err != nil && mayEnd:
			return
		case !assert.NoError(t, err), status == http.StatusServiceUnavailable:
		case !assert.Equal(t, http.StatusOK, status):
		case len(got) == 4:
			seen = true
		default:
			assert.Empty(t, got)
			assert.False(t, seen, "an empty history after the restored one")
		}
	}
}
