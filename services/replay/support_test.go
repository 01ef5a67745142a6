package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/replay"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// world is a log with a reader of it.
type world struct {
	t      testing.TB
	log    *jetlog.Log
	replay *replay.Replay
}

func newWorld(t testing.TB, partitions int) *world {
	t.Helper()
	return worldOn(t, natstest.Log(t, partitions))
}

func worldOn(t testing.TB, log *jetlog.Log) *world {
	t.Helper()
	w := &world{t: t, log: log, replay: replay.New(log, owners.New(log, nil))}
	natstest.Run(t, w.replay.Run)
	return w
}

// add appends facts, each by itself, and gives the last one's position.
func (w *world) add(facts ...events.Fact) events.Position {
	w.t.Helper()
	return natstest.Append(w.t, w.log, facts...)
}

func asked(session, request, question string) *events.TurnStarted {
	return &events.TurnStarted{
		TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: question},
	}
}

func answered(session, request, answer string) *events.TurnFinalized {
	return &events.TurnFinalized{TurnID: events.TurnID(session, request), SessionID: session,
		Answer: events.Answer{AnswerNeutral: answer}}
}

func corrected(session, old, request, text string) *events.TurnCorrected {
	return &events.TurnCorrected{
		TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		ReplacesTurnID: events.TurnID(session, old),
		Question:       events.Question{QuestionNeutral: text}, Answer: events.Answer{AnswerNeutral: text},
	}
}

func redacted(session string, turn uuid.UUID) *events.TurnRedacted {
	return &events.TurnRedacted{TurnID: turn, SessionID: session}
}

func linked(session, identity string) *events.SessionLinked {
	return &events.SessionLinked{SessionID: session, IdentityID: identity}
}

// printed is a CloudEvent as an analyst reads it.
type printed struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject"`
	Time        time.Time       `json:"time"`
	Position    events.Position `json:"position"`
	RecordedAt  time.Time       `json:"recordedat"`
	Data        map[string]any  `json:"data"`
	line        string
}

func parse(t testing.TB, line []byte) printed {
	t.Helper()
	p := printed{line: string(line)}
	require.NoError(t, json.Unmarshal(line, &p), "%s", line)
	require.NotContains(t, p.line, "\n")
	return p
}

// open begins a reading that ends with the test.
func (w *world) open(q services.EventQuery) services.EventStream {
	w.t.Helper()
	s := must.Get(w.replay.OpenEvents(w.t.Context(), q))(w.t)
	w.t.Cleanup(s.Close)
	return s
}

// all reads to the end.
func (w *world) all(q services.EventQuery) []printed {
	w.t.Helper()
	return rest(w.t, w.open(q))
}

func rest(t testing.TB, s services.EventStream) (out []printed) {
	t.Helper()
	for {
		batch, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		require.NotEmpty(t, batch)
		for _, e := range batch {
			p := parse(t, e.JSON)
			require.Equal(t, e.Position, p.Position)
			out = append(out, p)
		}
	}
}

// next reads until there are n events.
func next(t testing.TB, s services.EventStream, n int) (out []printed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	for len(out) < n {
		batch := must.Get(s.Next(ctx))(t)
		for _, e := range batch {
			out = append(out, parse(t, e.JSON))
		}
	}
	require.Len(t, out, n)
	return out
}

func ids(list []printed) (out []string) {
	for _, p := range list {
		out = append(out, p.ID)
	}
	return out
}

func eventIDs(facts ...events.Fact) (out []string) {
	for _, f := range facts {
		out = append(out, f.EventID())
	}
	return out
}

// w0 is some time that an envelope may state.
var w0 = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// chain returns the tombstones that the service would state for a session's corrected
// turn.
func chain(t testing.TB, w *world, sessionID string) []events.Tombstone {
	t.Helper()
	s := natstest.Fold(t, w.log, sessionID, session.Rules{})
	return s.Tombstones(s.Chain(s.Turns[0]), 0)
}
