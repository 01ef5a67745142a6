package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// Events that a NATS client publishes straight to the stream count where they have the form of
// docs/contract.md#the-log. Anything else stops nothing, changes no view, and is counted as an anomaly.
func TestEventsPublishedStraightToTheStream(t *testing.T) {
	t.Parallel()
	address := stack.FreeAddress(t)
	pg := pg.URL(t)
	p := stack.Serve(t, []string{"TURNLEDGER_NATS_LISTEN=" + address, "TURNLEDGER_POSTGRES_URL=" + pg})
	nc := must.Get(nats.Connect("nats://" + address))(t)
	defer nc.Close()
	p.LinkIdentity(t, "s", "u")
	first := p.RecordTurn(t, "s", "r0", "question 0", "answer 0")

	for name, m := range map[string]*nats.Msg{
		"no cloudevent": {Subject: events.SessionSubject("s"), Header: nats.Header{}, Data: []byte("hello")},
		"not json": stack.EventMessage(&events.TurnStarted{TurnID: events.TurnID("s", "x"), SessionID: "s",
			RequestID: "x"}, `{`),
		"another type": retyped(stack.EventMessage(&events.SessionReset{SessionID: "s"}, `{}`), "org.example.thing"),
		"wrong turn id": stack.EventMessage(&events.TurnStarted{TurnID: events.TurnID("s", "x"), SessionID: "s",
			RequestID: "y", Question: events.Question{QuestionNeutral: "LIE"}}, ""),
		"wrong bucket": moved(stack.EventMessage(&events.TurnStarted{TurnID: events.TurnID("s", "x"), SessionID: "s",
			RequestID: "x", Question: events.Question{QuestionNeutral: "LIE"}}, ""), "turns.7.s"),
		"second start": stack.EventMessage(&events.TurnStarted{TurnID: events.TurnID("s", "r0"), SessionID: "s",
			RequestID: "r0", Question: events.Question{QuestionNeutral: "LIE"}}, ""),
		"second final": stack.EventMessage(&events.TurnFinalized{TurnID: events.TurnID("s", "r0"), SessionID: "s",
			Answer: events.Answer{AnswerNeutral: "LIE"}}, ""),
		"lost final": stack.EventMessage(&events.TurnFinalized{TurnID: events.TurnID("s", "never"), SessionID: "s",
			Answer: events.Answer{AnswerNeutral: "LIE"}}, ""),
		"other link": stack.EventMessage(&events.SessionLinked{SessionID: "s", IdentityID: "thief"}, ""),
	} {
		// An id of its own goes past the server's window of duplicates.
		m.Header.Set(nats.MsgIdHdr, name)
		must.Get(nc.RequestMsg(m, hang.Limit))(t, name)
	}
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Exchanges(1), p.Context(t, "s"))
	require.Equal(t, "u", p.Get(t, stack.SessionPath("s"))["identity_id"])
	require.Equal(t, stack.Questions(1), p.AuditedQuestions(t, "u"))
	require.Empty(t, p.AuditedQuestions(t, "thief"))
	metrics := p.Metrics(t)
	for _, reason := range []string{"not_a_cloudevent", "malformed_body", "unknown_type", "wrong_turn_id",
		"wrong_subject", "second_start", "second_final", "turn_not_started", "session_linked_elsewhere"} {
		line := fmt.Sprintf(`turnledger_projection_anomalies_total{projection="audit",reason=%q} 1`, reason)
		require.True(t, strings.Contains(metrics, line), "missing: %s", line)
	}
	require.False(t, strings.Contains(metrics+p.Log.String()+p.Out.String(), "LIE"),
		"a text stands in a log or a metric")

	id := events.TurnID("s", "r1")
	for _, f := range []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1",
			Question: events.Question{QuestionNeutral: "question 1",
				Metadata: []byte(`{"channel":"web","ip":"PRIVATE"}`)}},
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "answer 1"},
			Metadata: []byte(`{"phone":"PRIVATE"}`)},
	} {
		must.Get(nc.RequestMsg(stack.EventMessage(f, ""), hang.Limit))(t)
	}
	require.Equal(t, stack.Exchanges(2), p.Context(t, "s"))
	again := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": "r1", "question_neutral": "other"})
	require.Subset(t, again, map[string]any{"duplicate": true, "question_neutral": "question 1"})
	require.NotEqual(t, first, again["turn_id"])

	p.WaitCaughtUp(t, "recent", "audit")
	exported := p.Done(t, "export", "--identity", "u")
	for place, shown := range map[string]string{
		"recent": fmt.Sprint(p.Get(t, stack.SessionPath("s")+"/turns")),
		"audit":  fmt.Sprint(p.Get(t, "/v1/identities/u/turns")),
		"export": exported,
	} {
		require.Contains(t, shown, "channel", place)
		require.NotContains(t, shown, "PRIVATE", "metadata outside the allowlist is shown: %s", place)
	}
	invalidMessagesChangeNothing(t, p, nc)
}

func retyped(m *nats.Msg, typ string) *nats.Msg {
	m.Header[events.HeaderType] = []string{typ}
	return m
}

func moved(m *nats.Msg, subject string) *nats.Msg {
	m.Subject = subject
	return m
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// invalidMessage returns what a NATS client should not publish.
func invalidMessage(r *rand.Rand) *nats.Msg {
	session := oneOf(r, "s", "s", "t", "~", "a.b", strings.Repeat("i", 200))
	id := events.TurnID(session, oneOf(r, "r0", "r1", "x"))
	q := events.Question{QuestionNeutral: "LIE"}
	m := stack.EventMessage(oneOf[events.Fact](r,
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: "other", Question: q},
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: "r0", Question: q},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: "LIE"}},
		&events.SessionLinked{SessionID: session, IdentityID: "thief"},
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
			m.Header[events.HeaderType] = []string{oneOf(r, "", "org.example", "turnledger.session.erased.v9",
				strings.Repeat("t", 5000)), "twice"}
		case 4:
			m.Header = nats.Header{oneOf(r, "a", "ce-id", "Nats-Msg-Id", "ce-specversion"): {"LIE", "LIE"}}
		case 5:
			m.Subject = oneOf(r, "turns.0.s", "turns.255.~", "turns.7.s", "turns.999.s", "turns.x.s",
				"identities.1.LIE", "turns.201.s")
		case 6:
			m.Data = []byte(`{"turn_id":"` + id.String() + `","session_id":"` + session +
				`","request_id":"\ud800","question_neutral":{"LIE":"LIE"},"question_messages":"LIE"}`)
		case 7:
			m.Header["ce-id"] = []string{oneOf(r, "", "LIE", m.Header.Get("ce-id")+" ", "\x01")}
		default:
			m.Data = append(m.Data, m.Data...)
		}
	}
	m.Header.Set(nats.MsgIdHdr, fmt.Sprint(r.Uint64())) // past the window of duplicates
	return m
}

// invalidMessagesChangeNothing: messages that others publish straight to the stream change no view, stop nothing and
// make no dead letter. Their text is in no log line and no metric. TURNLEDGER_TORTURE sends 10,000.
func invalidMessagesChangeNothing(t *testing.T, p *stack.Process, nc *nats.Conn) {
	t.Helper()
	total := 300
	if stack.Long() {
		total = 10_000
	}
	const seed = 6
	r := rand.New(rand.NewPCG(seed, seed))
	js := must.Get(jetstream.New(nc))(t)
	stored := func() uint64 {
		t.Helper()
		stream := must.Get(js.Stream(t.Context(), "TURNS-0"))(t)
		return must.Get(stream.Info(t.Context()))(t).State.Msgs
	}
	began, taken, before := stored(), uint64(0), p.ResidentMemory(t)
	for range total {
		m := invalidMessage(r)
		answer, err := nc.RequestMsg(m, hang.Limit)
		if err == nil && strings.Contains(string(answer.Data), `"stream"`) &&
			!strings.Contains(string(answer.Data), `"error"`) {
			taken++
		}
		// Neither into another stream nor to JetStream's own subjects.
		require.NoError(t, nc.Publish("turns", m.Data))
		require.NoError(t, nc.Publish("TURNS-0.x", m.Data))
	}
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, began+taken, stored(), "seed %d", seed)
	require.Equal(t, stack.Exchanges(2), p.Context(t, "s"), "seed %d", seed)
	require.Equal(t, "u", p.Get(t, stack.SessionPath("s"))["identity_id"])
	p.RecordTurn(t, "s", "after", "question 2", "answer 2")
	require.Equal(t, stack.Exchanges(3), p.Context(t, "s"))
	require.NotContains(t, p.Metrics(t)+p.Log.String(), "LIE")
	require.NotContains(t, p.Metrics(t), "turnledger_projection_dead_letters_total{")
	require.Less(t, p.ResidentMemory(t)-before, int64(256<<20))
	p.Stop(t)
}

// A caller who asks for a session of another identity is refused, and the attempt is recorded: the
// identity, the time, and the address as a hash, which is the same in every process, after a restart and
// after a rebuild. Neither a text nor the key is recorded.
//
//conformance:h53
func TestARefusedLinkIsKeptForTheSecurityAudit(t *testing.T) {
	t.Parallel()
	nats, pg, dir := stack.FreeAddress(t), pg.URL(t), stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL="}
	first := func() *stack.Process {
		return stack.Start(t, append(stack.ServeNATS(nats), env...), "serve", "--data-dir", dir)
	}
	a := first()
	b := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context")
	a.RecordTurn(t, "s", "r1", "KEPT text", "KEPT answer")
	a.LinkIdentity(t, "s", "alice")
	refused := func(p *stack.Process, identity string) {
		t.Helper()
		out := p.Must(t, http.StatusConflict, http.MethodPut, stack.SessionPath("s")+"/identity",
			map[string]any{"identity_id": identity})
		require.Equal(t, "session_linked_elsewhere", out["code"])
	}
	refused(a, "bob")
	refused(b, "carol")
	out := b.Must(t, http.StatusConflict, http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": "r2", "question_neutral": "SECRET", "identity_id": "dave"})
	require.Equal(t, "session_linked_elsewhere", out["code"])
	b.Stop(t)
	a.Stop(t)
	a = first()
	refused(a, "erin")
	a.WaitCaughtUp(t, "audit")

	rows := func() (who, hashes []string) {
		conn := must.Get(pgx.Connect(t.Context(), pg))(t)
		defer func() { _ = conn.Close(t.Context()) }()
		found := must.Get(conn.Query(t.Context(),
			`select identity_id, source_hash from turnledger.security_events
			where session_id = 's' and recorded_at > now() - interval '1 hour' order by seq`))(t)
		for found.Next() {
			var identity, hash string
			require.NoError(t, found.Scan(&identity, &hash))
			who, hashes = append(who, identity), append(hashes, hash)
		}
		require.NoError(t, found.Err())
		return who, hashes
	}
	check := func() {
		t.Helper()
		who, hashes := rows()
		require.Equal(t, []string{"bob", "carol", "dave", "erin"}, who)
		require.Regexp(t, "^[0-9a-f]{16}$", hashes[0])
		for _, hash := range hashes {
			require.Equal(t, hashes[0], hash, "all came from one address")
		}
	}
	check()
	a.Done(t, "projections", "rebuild", "audit", "--yes")
	check()
	events := a.Done(t, "replay")
	require.Equal(t, 4, strings.Count(events, `"turnledger.session.link_refused.v1"`))
	must.Lack(t, events, "SECRET", "127.0.0.1")
	require.Empty(t, natstest.Holding(t, "SECRET", []string{filepath.Join(dir, "nats")}))
}
