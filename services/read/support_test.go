package read_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// fed returns a memory view that has reached a position, and follows the log on.
func fed(t testing.TB, log *jetlog.Log, at events.Position) *memory.View {
	t.Helper()
	view := memory.New(recent.Limits{}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	require.NoError(t, view.Wait(t.Context(), at))
	return view
}

var policy = decide.Policy{MetadataKeys: []string{"channel", "locale"}}

// process is what writes and reads in a process.
type process struct {
	*write.Service
	*read.Reader
}

// whole is a log of one piece, as tests wrap it.
type whole interface {
	write.Writer
	write.Reader
	write.Glance
	write.TailReader
	read.Log
}

// run starts a process.
func run(t testing.TB, log whole) process {
	t.Helper()
	return runWith(t, log, write.Config{Policy: policy, Rules: rules})
}

func runWith(t testing.TB, log whole, cfg write.Config) process {
	t.Helper()
	s := write.New(write.Log{Writer: log, Reader: log, Glance: log, TailReader: log}, cfg)
	r := read.New(log, read.Config{
		Rules: session.Rules{SessionTTL: cfg.Rules.SessionTTL, MetadataKeys: cfg.Rules.MetadataKeys}, Folds: s,
	})
	natstest.Run(t, s.Run)
	return process{s, r}
}

func start(session, request string) decide.Start {
	return decide.Start{SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: "q " + request}}
}

func finalize(session, request string) decide.Finalize {
	return decide.Finalize{SessionID: session, TurnID: events.TurnID(session, request),
		Answer: events.Answer{AnswerNeutral: "a " + request}}
}

func extend(session string, turn uuid.UUID, id string, half events.Half, word string) decide.Extend {
	x := events.Extension{Half: half, Messages: []byte(`[{"role":"x","content":"` + word + `"}]`), AnswerNeutral: word}
	if half == events.HalfQuestion {
		x.QuestionNeutral, x.AnswerNeutral = word, ""
	}
	return decide.Extend{SessionID: session, TurnID: turn, ExtensionID: id, Extension: x,
		Metadata: []byte(`{"channel":"web","phone":"555"}`)}
}

// without takes the messages with a word out of a turn.
func without(sessionID string, turn uuid.UUID, id, word string) decide.Prune {
	return decide.Prune{SessionID: sessionID, TurnID: turn, PruneID: id,
		Keep: func(m session.Message) json.RawMessage {
			if strings.Contains(string(m.Raw), word) {
				return nil
			}
			return m.Raw
		}}
}
