package systemtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

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
	nc, err := nats.Connect("nats://" + address)
	require.NoError(t, err)
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
		_, err := nc.RequestMsg(m, 5*time.Second)
		require.NoError(t, err, name)
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
		_, err := nc.RequestMsg(stack.EventMessage(f, ""), 5*time.Second)
		require.NoError(t, err)
	}
	require.Equal(t, stack.Exchanges(2), p.Context(t, "s"))
	again := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": "r1", "question_neutral": "other"})
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, "question 1", again["question_neutral"])
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
