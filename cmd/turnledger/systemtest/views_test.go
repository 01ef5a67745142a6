package systemtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

//conformance:i80
func TestRebuildAndVerifyOverTheCommandLine(t *testing.T) {
	t.Parallel()
	pg, redis := pg.URL(t), redistest.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL=" + redis.URL()})
	for i := range 3 {
		s := fmt.Sprint("s", i)
		p.LinkIdentity(t, s, "u")
		p.RecordTurn(t, s, "r0", "question 0", "answer 0")
	}
	p.WaitCaughtUp(t, "recent", "audit")
	for _, name := range []string{"recent", "audit"} {
		out := p.Done(t, "projections", "rebuild", name, "--yes")
		require.Contains(t, out, name+" is served from generation 2, after ")
	}
	require.Equal(t, stack.Exchanges(1), p.Context(t, "s0"))
	out := p.Done(t, "projections", "verify")
	require.Equal(t, "recent: 3 sessions looked at, 0 differences\naudit: 3 sessions looked at, 0 differences\n", out)
	require.Contains(t, p.Done(t, "projections", "list"), "GENERATION")

	conn := must.Get(pgx.Connect(t.Context(), pg))(t)
	must.Get(conn.Exec(t.Context(),
		"update turnledger.answers set answer_neutral = 'SECRET' "+
			"where final_position = (select min(final_position) from turnledger.answers)"))(t)
	require.NoError(t, conn.Close(t.Context()))
	code, out, errs := p.Run(t, "projections", "verify", "audit")
	require.Equal(t, stack.ExitFailed, code)
	require.Regexp(t, `audit  session s0  answers  view [0-9a-f]{16}  log [0-9a-f]{16}\n`+
		`audit: 3 sessions looked at, 1 differences`, out)
	require.Contains(t, errs, "projections rebuild")
	code, out, _ = p.Run(t, "projections", "verify", "audit", "--json")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, out, `"result":{"name":"audit","sessions":3,"differences":1}`)
	require.NotContains(t, out+errs, "SECRET")
	out = p.Done(t, "projections", "rebuild", "audit", "--detach")
	require.Contains(t, out, "generation 3 of audit is being filled")
	hang.Until(t, func() bool {
		code, _, _ := p.Run(t, "projections", "verify", "audit", "--sample", "3")
		return code == stack.ExitDone
	})
	out = p.Done(t, "projections", "rebuild", "recent", "--yes", "--json")
	require.JSONEq(t, `{"name":"recent","generation":3,"served":true}`, out)

	cancelRebuild(t, p, pg)

	p.Must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/rebuild", nil)
	p.Must(t, http.StatusNotFound, http.MethodDelete, "/v1/projections/nobody/rebuild", nil)
	p.Must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/verify", nil)
	p.Must(t, http.StatusUnprocessableEntity, http.MethodPost, "/v1/projections/audit/verify?sample=x", nil)
	require.Contains(t, p.Fails(t, "projections", "rebuild", "nobody", "--yes"), "not_found")
}

// cancelRebuild cancels a rebuild of the audit: the served tables stay, and another rebuild can begin.
func cancelRebuild(t *testing.T, p *stack.Process, pg string) {
	t.Helper()
	reader := must.Get(pgx.Connect(t.Context(), pg))(t)
	read := must.Get(reader.Begin(t.Context()))(t)
	_, err := read.Exec(t.Context(), "select from turnledger.projection_checkpoints") // the swap waits for it
	require.NoError(t, err)
	listed := func() string {
		_, out, _ := p.Run(t, "projections", "list")
		return out
	}

	errs := p.Fails(t, "projections", "rebuild", "audit", "--cancel")
	require.Contains(t, errs, "not_found: no rebuild of the projection runs in this process")
	p.Done(t, "projections", "rebuild", "audit", "--detach")
	require.Contains(t, listed(), "rebuilding")
	out := p.Done(t, "projections", "rebuild", "audit", "--cancel")
	require.Contains(t, out, "generation 4 of audit is given up; the view is served as it was")
	require.Contains(t, listed(), "the rebuild was cancelled")
	require.Regexp(t, `audit +0 .* live +3 `, listed())
	require.NoError(t, reader.Close(t.Context()))
	p.Done(t, "projections", "rebuild", "audit", "--yes")
}

// The process is killed (-9) at any step of a rebuild: before, at and after the swap. The next start serves whole
// views, leaves nothing of the broken-off generation behind, and can rebuild again.
func TestKilledInARebuild(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 40
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	pg, redis := pg.URL(t), redistest.Start(t)
	dir := stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL=" + redis.URL()}
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	file := stack.WriteConversations(t, rng, 0)
	p.Done(t, "import", file)
	said := stack.ReadConversations(t, []string{file})
	for _, c := range said {
		p.LinkIdentity(t, c.ID, "u")
	}
	p.WaitCaughtUp(t, "recent", "audit")
	for round := range rounds {
		name := []string{"audit", "recent"}[round%2]
		part := rng.Float64() * 1.2
		hang.Until(t, func() bool { // a store notices late that who rebuilt is gone
			status, _, err := p.Call(t.Context(), http.MethodPost, "/v1/projections/"+name+"/rebuild", nil)
			return err == nil && status == http.StatusAccepted
		})
		waitRebuild(t, p, name, part)
		p.Kill(t)
		p = stack.Start(t, env, "serve", "--data-dir", dir)
		p.WaitCaughtUp(t, "recent", "audit")
		require.Len(t, p.AuditedQuestions(t, "u"), stack.WrittenTurns, "seed %d round %d (%s at %.2f)", seed, round,
			name, part)
		c := said[rng.IntN(len(said))]
		require.Equal(t, c.Messages, p.Context(t, c.ID), "seed %d round %d (%s at %.2f)", seed, round, name, part)
		code, out, errs := p.Run(t, "projections", "verify")
		require.Equal(t, stack.ExitDone, code, "seed %d round %d (%s at %.2f): %s%s", seed, round, name, part, out,
			errs)
	}
	for _, name := range []string{"audit", "recent"} {
		hang.Until(t, func() bool {
			code, _, _ := p.Run(t, "projections", "rebuild", name, "--yes")
			return code == stack.ExitDone
		})
	}
	p.Done(t, "projections", "verify")
	conn := must.Get(pgx.Connect(t.Context(), pg))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	var schemas int
	require.NoError(t, conn.QueryRow(t.Context(),
		"select count(*) from pg_namespace where nspname like 'turnledger%'").Scan(&schemas))
	require.Equal(t, 1, schemas)
	t.Logf("seed %d: %d rounds", seed, rounds)
}

// waitRebuild waits until a rebuild has come through a part of the log, or has ended.
func waitRebuild(t testing.TB, p *stack.Process, name string, part float64) {
	t.Helper()
	hang.Until(t, func() bool {
		_, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
		require.NoError(t, err)
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			if s["name"] == name && s["state"] == "rebuilding" {
				return seqOf(t, s["position"]) >= part*seqOf(t, s["head"])
			}
		}
		return true
	})
}

func seqOf(t testing.TB, position any) float64 {
	t.Helper()
	at := must.Get(events.ParsePosition(position.(string)))(t)
	return float64(at.Seq)
}

// rebuildOnATerminal: there `projections rebuild` asks before it begins and shows a bar with rate and ETA. Ctrl-C ends
// the waiting; the server goes on with the rebuild.
func rebuildOnATerminal(t *testing.T, p *stack.Process, pg string) {
	t.Helper()
	reader := must.Get(pgx.Connect(t.Context(), pg))(t)
	read := must.Get(reader.Begin(t.Context()))(t)
	_, err := read.Exec(t.Context(), "select from turnledger.projection_checkpoints") // the swap waits for it
	require.NoError(t, err)

	look := onTerminal(t, "projections", "rebuild", "audit", "--url", p.URL)
	look.says(t, `Rebuild audit from the log\? .*\[y/N\]`)
	look.types(t, "y\n")
	look.says(t, `rebuild audit +100% .*\(9/9, .* events/s\)`)
	look.types(t, "\x03")
	require.Equal(t, stack.ExitFailed, look.ended(t), look.screen.String())
	require.Regexp(t, `turnledger: stopped waiting; the rebuild goes on in the server: `+
		`turnledger projections list shows how far, projections rebuild --cancel breaks it off\r\n$`,
		look.screen.String())

	require.NoError(t, read.Rollback(t.Context()))
	require.NoError(t, reader.Close(t.Context()))
	hang.Until(t, func() bool {
		_, out, _ := p.Run(t, "projections", "list")
		return servedAsSecond.MatchString(out)
	})

	look = onTerminal(t, "projections", "rebuild", "audit", "--url", p.URL)
	look.says(t, `\[y/N\]`)
	look.types(t, "\n")
	require.Equal(t, stack.ExitFailed, look.ended(t), look.screen.String())
	require.Contains(t, look.screen.String(), "not rebuilt")
}

var servedAsSecond = regexp.MustCompile(`(?m)^audit .* live +2 *$`)

// terminal is a command that runs on a pseudo-terminal.
type terminal struct {
	cmd    *exec.Cmd
	screen *printed.Buffer
	keys   io.Writer
	over   chan struct{}
}

func onTerminal(t testing.TB, args ...string) *terminal {
	t.Helper()
	path := stack.Binary(t)
	cmd := exec.Command(path, args...)
	tty := must.Get(pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120}))(t)
	t.Cleanup(func() { _ = tty.Close() })
	out := &terminal{cmd: cmd, screen: &printed.Buffer{}, keys: tty, over: make(chan struct{})}
	go func() {
		defer close(out.over)
		_, err := io.Copy(out.screen, tty)
		if !errors.Is(err, syscall.EIO) { // what a terminal says whose last process has gone
			t.Log(err)
		}
	}()
	return out
}

func (s *terminal) says(t testing.TB, pattern string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Regexp(c, pattern, s.screen.String()) },
		hang.Limit, 10*time.Millisecond)
}

func (s *terminal) types(t testing.TB, keys string) {
	t.Helper()
	must.Get(io.WriteString(s.keys, keys))(t)
}

// ended returns the exit status.
func (s *terminal) ended(t testing.TB) int {
	t.Helper()
	var status *exec.ExitError
	if err := s.cmd.Wait(); err != nil {
		require.ErrorAs(t, err, &status)
	}
	<-s.over
	return s.cmd.ProcessState.ExitCode()
}

// PostgreSQL refuses a turn for good, and the audit goes on with the next one. An operator sees the dead letter,
// retries it in vain, drops it, mends the table, and retries it with success. Then the tables are built again.
func TestAnOperatorLooksAfterADeadLetter(t *testing.T) {
	t.Parallel()
	pg := pg.URL(t)
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg})
	db := must.Get(pgx.Connect(t.Context(), pg))(t)
	defer func() { _ = db.Close(t.Context()) }()
	must.Get(db.Exec(t.Context(),
		"alter table turnledger.questions add constraint poison check (question_neutral <> 'question 1')"))(t)
	p.LinkIdentity(t, "s", "u")
	for i := range 4 {
		p.RecordExchange(t, "s", i)
	}
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, []string{"question 0", "question 2", "question 3"}, p.AuditedQuestions(t, "u"),
		"those behind it went on")
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters{projection="audit",state="waiting"} 1`)
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters{projection="recent",state="waiting"} 0`)
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters_total{projection="audit"} 1`)

	out := p.Done(t, "deadletters", "list")
	require.Contains(t, out, "audit       0:4       turnledger.turn.started.v1  waiting  1")
	require.JSONEq(t, `{"deadletters":[]}`, p.Done(t, "deadletters", "list", "--projection", "recent", "--json"))
	out = p.Done(t, "deadletters", "show", "audit", "0:4", "--json")
	var shown client.DeadLetter
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, "s", shown.SessionID)
	require.Contains(t, shown.Reason, "23514")

	status, out, problems := p.Run(t, "deadletters", "retry", "audit", "0:4")
	require.Equal(t, stack.ExitFailed, status)
	require.Contains(t, out, "refused again, after 2 attempts")
	require.Contains(t, problems, "deadletters drop")
	p.Done(t, "deadletters", "drop", "audit", "0:4", "--reason", "a lie", "--by", "ada")
	_, out, _ = p.Run(t, "deadletters", "show", "audit", "0:4")
	require.Contains(t, out, "dropped by  ada\n")
	_, again, _ := p.Run(t, "deadletters", "drop", "audit", "0:4", "--reason", "another", "--by", "bob")
	require.Contains(t, again, "dropped by ada", "who said so first stands")
	require.Contains(t, out, "because     a lie\n")
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters{projection="audit",state="dropped"} 1`)

	problems = p.Fails(t, "projections", "verify", "audit")
	require.Contains(t, problems,
		"audit lacks what its dead letters say: 1, 1 of them dropped (turnledger deadletters list)")
	must.Get(db.Exec(t.Context(), "alter table turnledger.questions drop constraint poison"))(t)
	out = p.Done(t, "deadletters", "retry", "audit", "0:4")
	require.Equal(t, "0:4 of audit: applied; its session is as the log has it\n", out)
	require.Equal(t, stack.Questions(4), p.AuditedQuestions(t, "u"))
	for _, gone := range [][]string{{"show", "audit", "0:4"}, {"retry", "audit", "0:4"}, {"show", "other", "0:4"},
		{"list", "--projection", "other"}} {
		problems = p.Fails(t, append([]string{"deadletters"}, gone...)...)
		require.Contains(t, problems, "not_found", "%v", gone)
	}
	rebuildOnATerminal(t, p, pg)
	require.False(t, strings.Contains(p.Log.String(), "question 1"), "a text stands in the log")
}

// TestAProcessHasOneConsumerAPartition: the decider, both views, the eraser, and the index of owners read the log
// together, from the first start on and after a restart that finds them behind.
func TestAProcessHasOneConsumerAPartition(t *testing.T) {
	t.Parallel()
	const partitions = 32
	address := stack.FreeAddress(t)
	dir := stack.DataDir(t)
	env := append(stack.ServeNATS(address), "TURNLEDGER_PARTITIONS=32", "TURNLEDGER_POSTGRES_URL="+pg.URL(t))
	for life := range 2 {
		p := stack.Start(t, env, "serve", "--data-dir", dir)
		for i := range 20 {
			session := fmt.Sprint("life", life, "-", i)
			p.RecordTurn(t, session, "r", "question", "answer")
			p.LinkIdentity(t, session, "ada")
		}
		p.WaitNoLag(t)
		nc := must.Get(nats.Connect(address))(t)
		js := must.Get(jetstream.New(nc))(t)
		// A consumer that was asked for twice, since the server of a busy machine took long, goes after a minute.
		var others atomic.Value
		hang.Until(t, func() bool {
			seen := map[string]int{}
			for k := range partitions {
				stream, err := js.Stream(t.Context(), events.StreamName(k))
				if err != nil {
					others.Store(err.Error())
					return false
				}
				if n := stream.CachedInfo().State.Consumers; n != 1 {
					seen[events.StreamName(k)] = n
				}
			}
			others.Store(fmt.Sprint(seen))
			return len(seen) == 0
		}, "streams with other than one consumer: %v", &others)
		nc.Close()
		p.Stop(t)
	}
}

// Reads are compared with the second view and answered from the first. A process that only erases has no first view to
// compare, and still waits for the second before it calls an erasure complete. When the second view is away, and when
// it was emptied, reads go on.
//
//conformance:i82
func TestASecondRecentViewIsComparedAndNeverAnswers(t *testing.T) {
	t.Parallel()
	redis, nats := redistest.Start(t), stack.FreeAddress(t)
	shadow := "TURNLEDGER_RECENT_SHADOW=" + redis.URL()
	p := stack.Serve(t, append(stack.ServeNATS(nats), shadow), "--roles", "api,context,recent")
	eraser := stack.Serve(t, append(stack.JoinNATS(nats), shadow), "--roles", "eraser,api")
	p.RecordTurn(t, "s", "r1", "a secret question", "an answer")
	p.RecordTurn(t, "gone", "r1", "a secret question", "an answer")
	metric := func(result string) bool {
		require.Len(t, p.Context(t, "s"), 2)
		return strings.Contains(p.Metrics(t), `turnledger_recent_shadow_reads_total{result="`+result+`"}`)
	}
	hang.Until(t, func() bool { return metric("same") })
	require.NotContains(t, p.Metrics(t), `result="different"`)

	p.WaitCaughtUp(t, "recent-shadow")
	redis.Stop()
	hang.Until(t, func() bool { return metric("failed") })
	id := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("gone"), nil)["receipt_id"].(string)
	hang.Until(t, func() bool { return receiptPlace(t, eraser.Get(t, "/v1/receipts/"+id), "log")["state"] == "done" })
	require.Equal(t, "waiting", receiptPlace(t, eraser.Get(t, "/v1/receipts/"+id), "recent-shadow")["state"])
	redis.Restart(redistest.Empty)
	waitReceipt(t, eraser, id)
	require.Len(t, p.Context(t, "s"), 2)
	require.NotContains(t, p.Log.String(), "secret")
}
