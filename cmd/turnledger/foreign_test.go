package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
)

// What a NATS client publishes straight to the stream counts where it is in the
// form of CONTRACT §5; anything else stops nothing, changes no view, and is visible
// as an anomaly.
func TestEventsPublishedStraightToTheStream(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	pg := pgtest.Start(t)
	p := start(t, []string{"TURNLEDGER_NATS_LISTEN=" + address, "TURNLEDGER_POSTGRES_URL=" + pg.URL()}, "serve", "--data-dir", dataDir(t))
	nc, err := nats.Connect("nats://" + address)
	require.NoError(t, err)
	defer nc.Close()
	p.must(t, http.StatusOK, http.MethodPut, session("s")+"/identity", map[string]any{"identity_id": "u"})
	first := p.turn(t, "s", "r0", "question 0", "answer 0")

	for name, m := range map[string]*nats.Msg{
		"no cloudevent": {Subject: events.SessionSubject("s"), Header: nats.Header{}, Data: []byte("hello")},
		"not json":      raw(&events.TurnStarted{TurnID: events.TurnID("s", "x"), SessionID: "s", RequestID: "x"}, `{`),
		"another type":  retyped(raw(&events.SessionReset{SessionID: "s"}, `{}`), "org.example.thing"),
		"wrong turn id": raw(&events.TurnStarted{TurnID: events.TurnID("s", "x"), SessionID: "s", RequestID: "y", Question: events.Question{QuestionNeutral: "LIE"}}, ""),
		"wrong bucket":  moved(raw(&events.TurnStarted{TurnID: events.TurnID("s", "x"), SessionID: "s", RequestID: "x", Question: events.Question{QuestionNeutral: "LIE"}}, ""), "turns.7.s"),
		"second start":  raw(&events.TurnStarted{TurnID: events.TurnID("s", "r0"), SessionID: "s", RequestID: "r0", Question: events.Question{QuestionNeutral: "LIE"}}, ""),
		"second final":  raw(&events.TurnFinalized{TurnID: events.TurnID("s", "r0"), SessionID: "s", Answer: events.Answer{AnswerNeutral: "LIE"}}, ""),
		"lost final":    raw(&events.TurnFinalized{TurnID: events.TurnID("s", "never"), SessionID: "s", Answer: events.Answer{AnswerNeutral: "LIE"}}, ""),
		"other link":    raw(&events.SessionLinked{SessionID: "s", IdentityID: "thief"}, ""),
	} {
		// An id of its own goes past the server's window of duplicates.
		m.Header.Set(nats.MsgIdHdr, name)
		_, err := nc.RequestMsg(m, 5*time.Second)
		require.NoError(t, err, name)
	}
	p.caughtUp(t, "recent", "audit")
	require.Equal(t, exchange(1), p.context(t, "s"))
	require.Equal(t, "u", p.must(t, http.StatusOK, http.MethodGet, session("s"), nil)["identity_id"])
	require.Equal(t, questions(1), p.audited(t, "u"))
	require.Empty(t, p.audited(t, "thief"))
	metrics := p.metrics(t)
	for _, reason := range []string{"not_a_cloudevent", "malformed_body", "unknown_type", "wrong_turn_id", "wrong_subject", "second_start", "second_final", "turn_not_started", "session_linked_elsewhere"} {
		line := fmt.Sprintf(`turnledger_projection_anomalies_total{projection="audit",reason=%q} 1`, reason)
		require.True(t, strings.Contains(metrics, line), "missing: %s", line)
	}
	require.False(t, strings.Contains(metrics+p.log.String()+p.out.String(), "LIE"), "a text stands in a log or a metric")

	id := events.TurnID("s", "r1")
	for _, f := range []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1", Question: events.Question{QuestionNeutral: "question 1", Metadata: []byte(`{"channel":"web","ip":"PRIVATE"}`)}},
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "answer 1"}, Metadata: []byte(`{"phone":"PRIVATE"}`)},
	} {
		_, err := nc.RequestMsg(raw(f, ""), 5*time.Second)
		require.NoError(t, err)
	}
	require.Equal(t, exchange(2), p.context(t, "s"))
	again := p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns", map[string]any{"request_id": "r1", "question_neutral": "other"})
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, "question 1", again["question_neutral"])
	require.NotEqual(t, first, again["turn_id"])

	p.caughtUp(t, "recent", "audit")
	code, exported, errs := said(t, "export", "--identity", "u", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	for place, shown := range map[string]string{
		"recent": fmt.Sprint(p.must(t, http.StatusOK, http.MethodGet, session("s")+"/turns", nil)),
		"audit":  fmt.Sprint(p.must(t, http.StatusOK, http.MethodGet, "/v1/identities/u/turns", nil)),
		"export": exported,
	} {
		require.Contains(t, shown, "channel", place)
		require.NotContains(t, shown, "PRIVATE", "metadata outside the allowlist is shown: %s", place)
	}
}

// raw gives the message of a fact, with another body where one is given.
func raw(f events.Fact, body string) *nats.Msg {
	env, err := events.Encode(f, time.Now())
	if err != nil {
		panic(err)
	}
	m := &nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body}
	if body != "" {
		m.Data = []byte(body)
	}
	return m
}

func retyped(m *nats.Msg, typ string) *nats.Msg {
	m.Header[events.HeaderType] = []string{typ}
	return m
}

func moved(m *nats.Msg, subject string) *nats.Msg {
	m.Subject = subject
	return m
}

func (p *process) metrics(t testing.TB) string {
	t.Helper()
	resp, err := http.Get(p.url + "/metrics")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return strings.TrimSpace(string(body))
}
