package eraser_test

import (
	"context"
	"iter"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/write"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// world is a log with what writes to it.
type world struct {
	testing.TB
	dir     string
	log     *jetlog.Log
	history *write.Service
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
	s := servicetest.Start(t, log, servicetest.Config{History: write.Config{Rules: rules}})
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
	must.Get(w.history.FinalizeTurn(w.Context(), decide.Finalize{SessionID: session, TurnID: id,
		Answer: events.Answer{AnswerNeutral: "answer " + text}}))(w)
	return id
}

func (w *world) start(session, request, text string) services.Turn {
	w.Helper()
	return must.Get(w.history.StartTurn(w.Context(), decide.Start{SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: "question " + text}}))(w)
}

func (w *world) correct(session, request string, turn uuid.UUID, text string) uuid.UUID {
	w.Helper()
	return must.Get(w.history.CorrectTurn(w.Context(), decide.Correct{SessionID: session, RequestID: request,
		TurnID: turn, AnswerNeutral: &text}))(w).ID
}

func (w *world) redact(session string, turn uuid.UUID) services.Turn {
	w.Helper()
	t := must.Get(w.history.RedactTurn(w.Context(), session, decide.Redact{TurnID: turn, Reason: "asked to"}))(w)
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

func (w *world) state(sessionID string) *session.State {
	w.Helper()
	return natstest.Fold(w, w.log, sessionID, rules)
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

// place is a view that follows when it is told to.
type place struct {
	name string

	mu  sync.Mutex
	at  map[int]uint64
	all bool
}

func (p *place) Name() string { return p.name }

func (p *place) Reached(_ context.Context, at events.Position) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all || p.at[at.Partition] >= at.Seq, nil
}

func (p *place) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = true
}

// slow is a view that does not answer until it is told to, and counts who waits for it.
type slow struct {
	place
	answer chan struct{}

	waiting, most atomic.Int64
}

func (p *slow) Reached(ctx context.Context, at events.Position) (bool, error) {
	n := p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	select {
	case <-p.answer:
		return p.place.Reached(ctx, at)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// closedSessions knows how many sessions are closed whose events are not all gone, and
// how many there were at most.
type closedSessions struct {
	Log
	mu        sync.Mutex
	open, max int
}

func (l *closedSessions) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	l.mu.Lock()
	switch f := a.Facts[0].(type) {
	case *events.SessionErased:
		l.open++
		l.max = max(l.max, l.open)
	case *events.ErasureReceipt:
		if f.SessionID != "" {
			l.open--
		}
	case nil, *events.TurnStarted, *events.TurnFinalized, *events.TurnRecorded, *events.TurnExtended,
		*events.TurnCorrected, *events.TurnPruned, *events.TurnRedacted,
		*events.SessionLinked, *events.LinkRefused, *events.SessionReset, *events.SessionDescribed,
		*events.SessionForked, *events.SessionBranched,
		*events.SessionSummarized,
		*events.IdentityErased:
	}
	l.mu.Unlock()
	return l.Log.Append(ctx, a)
}

// documents is a long-term memory with a document for each turn.
type documents struct {
	mu   sync.Mutex
	gone map[string][]uuid.UUID
}

func (d *documents) DeleteTurns(_ context.Context, _ events.Position, session string, turns []uuid.UUID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone == nil {
		d.gone = map[string][]uuid.UUID{}
	}
	d.gone[session] = turns
	return nil
}

func (d *documents) deleted(session string) []uuid.UUID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone[session]
}

// counted is a log that counts how often each session is read.
type counted struct {
	Log
	mu    sync.Mutex
	reads map[string]int
}

func (l *counted) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	l.mu.Lock()
	l.reads[id]++
	l.mu.Unlock()
	return l.Log.Session(ctx, id, after, upTo)
}

// forget returns the reads since the last call.
func (l *counted) forget() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	reads := l.reads
	l.reads = map[string]int{}
	return reads
}
