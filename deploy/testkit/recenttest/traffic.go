package recenttest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// Traffic makes events for measurements: linked sessions one after the other, each with turns of about 600 bytes of
// canonical JSON.
type Traffic struct {
	Sessions, Turns int
	// Batch is the number of events in a batch; 500 by default.
	Batch int
}

// SessionID returns the id of the n-th session.
func (Traffic) SessionID(n int) string { return uuidOf("session", n) }

// Feed brings the traffic into a view, and keeps none of it in memory.
func (tr Traffic) Feed(t testing.TB, view projections.Projection) {
	t.Helper()
	if tr.Batch == 0 {
		tr.Batch = 500
	}
	at := must.Get(view.Claim(t.Context(), 0))(t)
	tr.batches(at, func(b projections.Batch) { require.NoError(t, view.Apply(t.Context(), b)) })
}

// Batches returns the judged batches of the traffic, without a view.
func (tr Traffic) Batches(at projections.Checkpoint) (out []projections.Batch) {
	tr.batches(at, func(b projections.Batch) { out = append(out, b) })
	return out
}

func (tr Traffic) batches(at projections.Checkpoint, take func(projections.Batch)) {
	now, seq := time.Now().UTC().Round(0), at.Seq
	b := projections.Batch{From: at, To: at}
	for n := range tr.Sessions {
		id := tr.SessionID(n)
		state := session.New(id, session.Rules{SessionTTL: ttl, Slim: true})
		for i, f := range tr.facts(n) {
			seq++
			b.Events = append(b.Events, judge(state, events.Recorded{
				Position: events.Position{Seq: seq}, Time: now.Add(time.Duration(i) * time.Microsecond),
				Subject: f.Subject(), ID: f.EventID(), Type: f.Type(), SessionID: id, Digest: seq, Fact: f,
			}))
			if len(b.Events) == tr.Batch {
				b.To.Seq = seq
				take(b)
				b = projections.Batch{From: b.To, To: b.To}
			}
		}
	}
	if len(b.Events) > 0 {
		b.To.Seq = seq
		take(b)
	}
}

// judge does the work of a projections.Judge without its cache of sessions, which would take most of the measured time.
func judge(state *session.State, e events.Recorded) projections.Judged {
	first := !state.Found()
	c := state.Fold(e)
	if c.Turn != nil {
		turn := *c.Turn
		session.Rules{}.Fill(&turn, e.Fact)
		c.Turn = &turn
	}
	return projections.Judged{Recorded: e, Change: c, Head: state.Head(), First: first}
}

// facts returns the facts of one session: a link, then its turns. It allocates each text by itself, as a decoder does.
func (tr Traffic) facts(n int) []events.Fact {
	session := tr.SessionID(n)
	out := []events.Fact{&events.SessionLinked{SessionID: session, IdentityID: "user-" + fmt.Sprint(n/10)}}
	for i := range tr.Turns {
		request := uuidOf(session, i)
		id := ID(session, request)
		out = append(out, &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
			Question: events.Question{
				PipelineName: "support", QuestionNeutral: fmt.Sprintf("Where is my order %d, please?", n),
				Metadata: json.RawMessage(`{"channel":"web"}`),
			}}, &events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{
			AnswerNeutral: fmt.Sprintf("Order %d has left the house. ", n) +
				strings.Repeat("It should be with you soon. ", 2),
		}})
	}
	return out
}

func uuidOf(space string, n int) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, binary.BigEndian.AppendUint64([]byte(space),
		uint64(n))).String()
}

// CanonicalJSON returns the length of a turn's canonical JSON: the members of docs/contract.md#a-turn that are not
// empty.
func CanonicalJSON(s *session.State, t *session.Turn) int {
	turn := struct {
		TurnID      uuid.UUID       `json:"turn_id"`
		SessionID   string          `json:"session_id"`
		IdentityID  string          `json:"identity_id,omitempty"`
		RequestID   string          `json:"request_id"`
		Status      string          `json:"status"`
		Position    events.Position `json:"position"`
		CreatedAt   time.Time       `json:"created_at"`
		FinalizedAt time.Time       `json:"finalized_at,omitzero"`
		Translate   bool            `json:"translate_chat,omitempty"`
		Pipeline    string          `json:"pipeline_name,omitempty"`
		Consultant  string          `json:"consultant,omitempty"`
		Repository  string          `json:"repository,omitempty"`
		Question    string          `json:"question_neutral,omitempty"`
		Translated  string          `json:"question_translated,omitempty"`
		Messages    json.RawMessage `json:"question_messages,omitempty"`
		Metadata    json.RawMessage `json:"metadata,omitempty"`
		Version     int             `json:"record_version"`
		*events.Answer
	}{
		TurnID: t.ID, SessionID: s.SessionID, IdentityID: s.Identity, RequestID: t.RequestID, Status: t.Status.String(),
		Position: events.Position{Seq: t.Started}, CreatedAt: t.CreatedAt, FinalizedAt: t.FinalizedAt,
		Translate: t.TranslateChat,
		Pipeline:  t.Question.PipelineName, Consultant: t.Question.Consultant, Repository: t.Question.Repository,
		Question: t.Question.QuestionNeutral, Translated: t.Question.QuestionTranslated,
		Messages: t.Question.QuestionMessages,
		Metadata: t.Metadata(), Version: t.Version, Answer: t.Answer,
	}
	raw, err := json.Marshal(turn)
	if err != nil {
		panic(err)
	}
	return len(raw)
}

// BenchmarkLoad measures reads: of windows, of long sessions, and among many sessions. It reports the mean and the 99th
// percentile.
func BenchmarkLoad(b *testing.B, open Open, many ...int) {
	for _, c := range []struct{ turns, shown int }{{20, 20}, {200, 20}, {200, 200}, {5000, 20}, {5000, 200}} {
		b.Run(fmt.Sprintf("turns=%d/shown=%d", c.turns, c.shown), func(b *testing.B) {
			loads(b, open, Traffic{Sessions: 10, Turns: c.turns}, c.shown)
		})
	}
	for _, n := range many {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			loads(b, open, Traffic{Sessions: n, Turns: 1}, 20)
		})
	}
}

func loads(b *testing.B, open Open, tr Traffic, shown int) {
	view := open(b, recent.Limits{}, rules)
	tr.Feed(b, view)
	took := make([]time.Duration, 0, 1<<20)
	ids := make([]string, min(tr.Sessions, 1<<16))
	for i := range ids {
		ids[i] = tr.SessionID(i * 7919 % tr.Sessions)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		snap, err := view.Load(b.Context(), ids[i%len(ids)], 0, shown)
		took = append(took, time.Since(began))
		if err != nil || snap.State == nil {
			b.Fatal("no snapshot", err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns/op")
}

// BenchmarkApply measures batches of new turns.
func BenchmarkApply(b *testing.B, open Open) {
	for _, c := range []struct{ batch, turns int }{{1, 20}, {500, 20}, {500, 1}, {2000, 20}} {
		b.Run(fmt.Sprintf("batch=%d/turns=%d", c.batch, c.turns), func(b *testing.B) {
			// Each list of batches can be applied to a view only once: a second time it would be old.
			tr := Traffic{Sessions: max(c.batch*5/c.turns, 25), Turns: c.turns, Batch: c.batch}
			var batches []projections.Batch
			var view View
			applied := 0
			for i := 0; b.Loop(); i++ {
				if i%max(len(batches), 1) == 0 {
					b.StopTimer()
					view = open(b, recent.Limits{}, rules)
					batches = tr.Batches(must.Get(view.Claim(b.Context(), 0))(b))
					b.StartTimer()
				}
				batch := batches[i%len(batches)]
				if err := view.Apply(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				applied += len(batch.Events)
			}
			b.ReportMetric(float64(applied)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
