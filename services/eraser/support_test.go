package eraser_test

import (
	"context"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/history"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

var rules = conversation.Rules{SessionTTL: 24 * time.Hour}

// world is a log with what writes to it.
type world struct {
	testing.TB
	dir     string
	log     *jetlog.Log
	history *history.Service
	notes   *jetlog.Notes
	// owners is what the eraser knows the sessions of identities from that was begun last.
	owners *owners.Index
}

func newWorld(t testing.TB, partitions int) *world {
	t.Helper()
	s := natstest.Server(t)
	return newWorldOn(t, natstest.LogOn(t, s, partitions), filepath.Join(s.GateDir(), "jetstream"))
}

// newWorldOn is a world on a log whose files are below a folder.
func newWorldOn(t testing.TB, log *jetlog.Log, dir string) *world {
	t.Helper()
	s := servicetest.Start(t, log, servicetest.Config{History: history.Config{Rules: rules}})
	w := &world{TB: t, dir: dir, log: log, history: s.History}
	w.notes = must.Get(w.log.Notes(t.Context()))(t)
	return w
}

// Log is a log of one piece, as tests wrap it.
type Log interface {
	eraser.Reader
	eraser.Scanner
	eraser.Writer
	eraser.Overwriter
	eraser.Mirrored
}

// whole is a log of one piece.
type whole struct {
	*jetlog.Log
	*overwriter
}

type overwriter = overwrite.Log

func inOnePiece(log *jetlog.Log) Log { return whole{log, overwrite.On(log)} }

// on returns the parts of a log.
func on(l Log) eraser.Log {
	return eraser.Log{Reader: l, Scanner: l, Writer: l, Overwriter: l, Mirrored: l}
}

// erase runs an eraser on a log that may lose its life at any step.
func (w *world) erase(log Log, cfg eraser.Config) (stop func()) {
	index := owners.New(w.log, nil)
	w.owners = index
	cfg.Rules, cfg.Owners = rules, index
	e := eraser.New(on(log), w.notes, cfg)
	return natstest.Run(w, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return index.Run(ctx) })
		g.Go(func() error { return e.Run(ctx) })
		g.Go(func() error {
			return runner.NewTask(w.log, e, runner.Config{Rules: rules, Pause: 10 * time.Millisecond,
				Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		})
		return g.Wait()
	})
}

func (w *world) turn(session, request, text string) uuid.UUID {
	w.Helper()
	w.start(session, request, text)
	id := events.TurnID(session, request)
	must.Get(w.history.FinalizeTurn(w.Context(), conversation.Finalize{SessionID: session, TurnID: id,
		Answer: events.Answer{AnswerNeutral: "answer " + text}}))(w)
	return id
}

func (w *world) start(session, request, text string) services.Turn {
	w.Helper()
	return must.Get(w.history.StartTurn(w.Context(), conversation.Start{SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: "question " + text}}))(w)
}

func (w *world) correct(session, request string, turn uuid.UUID, text string) uuid.UUID {
	w.Helper()
	return must.Get(w.history.CorrectTurn(w.Context(), conversation.Correct{SessionID: session, RequestID: request,
		TurnID: turn, AnswerNeutral: &text}))(w).ID
}

func (w *world) redact(session string, turn uuid.UUID) services.Turn {
	w.Helper()
	t := must.Get(w.history.RedactTurn(w.Context(), session, conversation.Redact{TurnID: turn, Reason: "asked to"}))(w)
	return t
}

func (w *world) link(session, identity string) {
	w.Helper()
	must.Get(w.history.LinkSession(w.Context(), session, identity, ""))(w)
}

// publish says something as a raw publisher does.
func (w *world) publish(f events.Fact, salt string) events.Position {
	w.Helper()
	ack := must.Get(w.log.Append(w.Context(), jetlog.Append{Facts: []events.Fact{f}, Salt: salt}))(w)
	require.NoError(w, w.log.Durable(w.Context(), ack.Position))
	return ack.Position
}

// types of what the log holds of a session.
func (w *world) types(session string) (out []string) {
	w.Helper()
	for e, err := range w.log.Session(w.Context(), session, 0, math.MaxUint64) {
		require.NoError(w, err)
		out = append(out, e.Type)
	}
	return out
}

func (w *world) state(session string) *conversation.State {
	w.Helper()
	return natstest.Fold(w, w.log, session, rules)
}

// left waits until the log holds just these events of a session.
func (w *world) left(session string, types ...string) {
	w.Helper()
	hang.Until(w, func() bool { return slices.Equal(types, w.types(session)) }, "%s is left with %v", session, types)
}

// gone waits until no file of the log holds a text.
func (w *world) gone(text string) {
	w.Helper()
	hang.Until(w, func() bool { return len(holding(w, w.dir, text)) == 0 })
}
