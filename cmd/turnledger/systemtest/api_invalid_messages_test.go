package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

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
	began, taken, before := stored(), uint64(0), p.ResidentMemory(t)
	for range total {
		m := invalidMessage(r)
		answer, err := nc.RequestMsg(m, 5*time.Second)
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
