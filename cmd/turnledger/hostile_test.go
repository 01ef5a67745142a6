package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

// resident is the memory of a process, in bytes.
func (p *process) resident(t testing.TB) int64 { return memoryOf(t, p.cmd.Process.Pid, "VmRSS") }

// memoryOf is what the system tells of a process's memory under a name, in bytes.
func memoryOf(t testing.TB, pid int, name string) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no " + name)
	return 0
}

func some[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// hostileMessage is what a NATS client should not publish.
func hostileMessage(r *rand.Rand) *nats.Msg {
	session := some(r, "s", "s", "t", "~", "a.b", strings.Repeat("i", 200))
	id := events.TurnID(session, some(r, "r0", "r1", "x"))
	q := events.Question{QuestionNeutral: "LIE"}
	m := raw(some[events.Fact](r,
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: "other", Question: q}, &events.TurnStarted{TurnID: id, SessionID: session, RequestID: "r0", Question: q},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: "LIE"}}, &events.SessionLinked{SessionID: session, IdentityID: "thief"},
	), "")
	body := make([]byte, r.IntN(3000))
	for i := range body {
		body[i] = byte(r.Uint32())
	}
	deep := r.IntN(20_000)
	for range 1 + r.IntN(2) {
		switch r.IntN(9) {
		case 0:
			m.Data = body
		case 1:
			m.Data = m.Data[:r.IntN(len(m.Data)+1)]
		case 2:
			m.Data = []byte(strings.Repeat("[", deep) + strings.Repeat("]", deep))
		case 3:
			m.Header[events.HeaderType] = []string{some(r, "", "org.example", "turnledger.session.erased.v9", strings.Repeat("t", 5000)), "twice"}
		case 4:
			m.Header = nats.Header{some(r, "a", "ce-id", "Nats-Msg-Id", "ce-specversion"): {"LIE", "LIE"}}
		case 5:
			m.Subject = some(r, "turns.0.s", "turns.255.~", "turns.7.s", "turns.999.s", "turns.x.s", "identities.1.LIE", "turns.201.s")
		case 6:
			m.Data = []byte(`{"turn_id":"` + id.String() + `","session_id":"` + session + `","request_id":"\ud800","question_neutral":{"LIE":"LIE"},"question_messages":"LIE"}`)
		case 7:
			m.Header["ce-id"] = []string{some(r, "", "LIE", m.Header.Get("ce-id")+" ", "\x01")}
		default:
			m.Data = append(m.Data, m.Data...)
		}
	}
	m.Header.Set(nats.MsgIdHdr, fmt.Sprint(r.Uint64())) // past the window of duplicates
	return m
}

// TestHostileMessages: what others publish straight to the stream changes no view, stops
// nothing and parks nothing, and its text is nowhere. TURNLEDGER_TORTURE sends 10,000.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	total := 300
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		total = 10_000
	}
	const seed = 6
	r := rand.New(rand.NewPCG(seed, seed))
	address := freeAddress(t)
	p := start(t, []string{"TURNLEDGER_NATS_LISTEN=" + address}, "serve", "--data-dir", dataDir(t))
	nc, err := nats.Connect("nats://" + address)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stored := func() uint64 {
		t.Helper()
		stream, err := js.Stream(t.Context(), "TURNS-0")
		require.NoError(t, err)
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		return info.State.Msgs
	}
	p.must(t, http.StatusOK, http.MethodPut, session("s")+"/identity", map[string]any{"identity_id": "u"})
	p.turn(t, "s", "r0", "question 0", "answer 0")
	began, taken, before := stored(), uint64(0), p.resident(t)
	for range total {
		m := hostileMessage(r)
		answer, err := nc.RequestMsg(m, 5*time.Second)
		if err == nil && strings.Contains(string(answer.Data), `"stream"`) && !strings.Contains(string(answer.Data), `"error"`) {
			taken++
		}
		// Not into a stream that is none of its kind, and not to what runs the log.
		require.NoError(t, nc.Publish("turns", m.Data))
		require.NoError(t, nc.Publish("TURNS-0.x", m.Data))
	}
	p.caughtUp(t, "recent")
	require.Equal(t, began+taken, stored(), "seed %d", seed)
	require.Equal(t, exchange(1), p.context(t, "s"), "seed %d", seed)
	require.Equal(t, "u", p.must(t, http.StatusOK, http.MethodGet, session("s"), nil)["identity_id"])
	p.turn(t, "s", "after", "question 1", "answer 1")
	require.Equal(t, exchange(2), p.context(t, "s"))
	require.NotContains(t, p.metrics(t)+p.log.String(), "LIE")
	require.NotContains(t, p.metrics(t), "turnledger_projection_dead_letters_total{")
	require.Less(t, p.resident(t)-before, int64(256<<20))
	p.stop(t)
}

// Connections that nothing is asked on take little, hold up nobody, and are let go.
func TestIdleConnectionsTakeLittle(t *testing.T) {
	t.Parallel()
	total := 1000
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		total = 5000
	}
	p := start(t, []string{"TURNLEDGER_HTTP_IDLE_TIMEOUT=5s", "TURNLEDGER_HTTP_HEADER_TIMEOUT=5s"}, "serve", "--data-dir", dataDir(t))
	p.turn(t, "s", "r0", "question 0", "answer 0")
	before := p.resident(t)
	conns := make([]net.Conn, total)
	for i := range conns {
		var err error
		conns[i], err = net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		require.NoError(t, err)
		if i%2 == 0 { // the others never say anything
			_, err = conns[i].Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
			require.NoError(t, err)
		}
	}
	// The test's own connection is idle, too, and a POST is not repeated when it is let go.
	http.DefaultClient.CloseIdleConnections()
	p.turn(t, "s", "r1", "question 1", "answer 1")
	each := (p.resident(t) - before) / int64(total)
	t.Logf("%d bytes a connection", each)
	require.Less(t, each, int64(128<<10))
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		buf := make([]byte, 4096)
		for n := 1; n > 0; {
			n, _ = c.Read(buf)
		}
		require.NoError(t, c.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	require.Equal(t, exchange(2), p.context(t, "s"))
	p.stop(t)
}
