package write_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

// lazyDisk is a log whose disk has only what somebody waited for: what an answer shows
// beyond synced, a power cut would take. Callers with an unseen context wait for nothing.
type lazyDisk struct {
	*jetlog.Log
	synced jetlog.Watermark
	// meanwhile, where not nil, happens at the syncs-th time that somebody waited.
	syncs     atomic.Int32
	meanwhile func()
	appended  func()
	tail      func(*jetlog.Tail)
}

type watchedKey struct{}

func watch(ctx context.Context) context.Context { return context.WithValue(ctx, watchedKey{}, true) }

func watched(ctx context.Context) bool { return ctx.Value(watchedKey{}) != nil }

func newLazyDisk(t testing.TB) *lazyDisk {
	return &lazyDisk{Log: natstest.LogOn(t, natstest.ServerIn(t, t.TempDir(), embedded.None), 1)}
}

func (d *lazyDisk) Durable(ctx context.Context, at events.Position) error {
	if !watched(ctx) {
		return nil
	}
	d.synced.Advance(at.Seq)
	if d.syncs.Add(-1) == 0 && d.meanwhile != nil {
		d.meanwhile()
	}
	return nil
}

func (d *lazyDisk) Head(ctx context.Context, partition int) (events.Position, error) {
	head, err := d.Log.Head(ctx, partition)
	if err != nil {
		return head, err
	}
	return head, d.Durable(ctx, head)
}

func (d *lazyDisk) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	if err := d.Durable(ctx, at); err != nil {
		return events.Recorded{}, false, err
	}
	return d.Log.At(ctx, at)
}

func (d *lazyDisk) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) {
		for e, err := range d.Log.Session(ctx, id, after, upTo) {
			if err == nil {
				err = d.Durable(ctx, e.Position)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (d *lazyDisk) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	ack, err := d.Log.Append(ctx, a)
	if appended := d.appended; appended != nil && watched(ctx) {
		d.appended = nil
		appended()
	}
	return ack, err
}

func (d *lazyDisk) Tail(ctx context.Context, partition int, after uint64,
	opts jetlog.TailOptions) (*jetlog.Tail, error) {
	tail, err := d.Log.Tail(ctx, partition, after, opts)
	if d.tail != nil && err == nil {
		d.tail(tail)
	}
	return tail, err
}

// foreign appends what another process writes, and returns when s has it in its fold.
func (d *lazyDisk) foreign(t testing.TB, s *write.Service, facts ...events.Fact) {
	ctx := t.Context()
	for _, f := range facts {
		must.Get(d.Log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}}))(t)
	}
	head := must.Get(d.Log.Head(ctx, 0))(t)
	must.Get(s.StartTurn(ctx, start("another", fmt.Sprint("after ", head.Seq))))(t)
}

// kept is the session as a power cut would leave it.
func (d *lazyDisk) kept(t testing.TB, id string) (st *session.State, refused int) {
	st = session.New(id, session.Rules{SessionTTL: 24 * time.Hour})
	for e, err := range d.Log.Session(t.Context(), id, 0, d.synced.At()) {
		require.NoError(t, err)
		if st.Fold(e).Kind == session.Refused {
			refused++
		}
	}
	return st, refused
}

// shown is what an answer tells.
type shown struct {
	turn    *services.Turn
	session *services.Session
	err     error
}

type (
	linkTo struct{ session, identity string }
	reset  string
)

// writes are all kinds of them, on session s with a final turn "final", a pending one "pending", and a corrected one
// "old" in whose place is "new".
func writes() map[string]any {
	return map[string]any{
		"start":                start("s", "r"),
		"start again":          start("s", "pending"),
		"start with identity":  linking("r"),
		"start again and link": linking("pending"),
		"finalize":             finalize("s", "pending"),
		"finalize again":       finalize("s", "final"),
		"correct":              better("final", "c"),
		"correct again":        better("old", "new"),
		"redact":               decide.Redact{TurnID: events.TurnID("s", "final")},
		"redact again":         decide.Redact{TurnID: events.TurnID("s", "gone")},
		"link":                 linkTo{"s", "ada"},
		"link refused":         linkTo{"linked", "eve"},
		"link again":           linkTo{"linked", "ada"},
		"reset":                reset("s"),
		"reset again":          reset("linked"),

		"whole":                   wholeTurn("s", "r"),
		"whole of a new session":  wholeTurn("new", "r"),
		"whole of a pending turn": wholeTurn("s", "pending"),
		"whole again":             wholeTurn("s", "final"),
		"whole with identity": decide.Start{SessionID: "s", RequestID: "r", IdentityID: "ada",
			Question: events.Question{QuestionNeutral: "q r"}, Answer: &events.Answer{AnswerNeutral: "a"}},
		"many":       []decide.Start{wholeTurn("s", "r1"), wholeTurn("s", "r2"), wholeTurn("s", "r3")},
		"many again": []decide.Start{wholeTurn("s", "old"), wholeTurn("s", "final")},
	}
}

// carriedOut makes one of the writes.
func carriedOut(ctx context.Context, s *write.Service, command any) (got shown) {
	var turn services.Turn
	var session services.Session
	switch c := command.(type) {
	case decide.Start:
		turn, got.err = s.StartTurn(ctx, c)
	case []decide.Start:
		out := s.StartTurns(ctx, c)[1]
		turn, got.err = out.Turn, out.Err
	case decide.Finalize:
		turn, got.err = s.FinalizeTurn(ctx, c)
	case decide.Correct:
		turn, got.err = s.CorrectTurn(ctx, c)
	case decide.Redact:
		turn, got.err = s.RedactTurn(ctx, "s", c)
	case linkTo:
		session, got.err = s.LinkSession(ctx, c.session, c.identity, "")
	case reset:
		session, got.err = s.ResetSession(ctx, string(c), "")
	}
	if session.SessionID != "" {
		got.session = &session
	} else {
		got.turn = &turn
	}
	return got
}

func linking(request string) decide.Start {
	c := start("s", request)
	c.IdentityID = "ada"
	return c
}

func better(old, request string) decide.Correct {
	words := "better"
	return decide.Correct{SessionID: "s", TurnID: events.TurnID("s", old), RequestID: request,
		AnswerNeutral: &words}
}

// prepare makes what the writes find, and leaves it unsynced.
func prepare(t testing.TB, s *write.Service) {
	ctx := t.Context()
	for _, r := range []string{"final", "pending", "old", "gone"} {
		must.Get(s.StartTurn(ctx, start("s", r)))(t)
		if r != "pending" {
			must.Get(s.FinalizeTurn(ctx, finalize("s", r)))(t)
		}
	}
	must.Get(s.CorrectTurn(ctx, better("old", "new")))(t)
	must.Get(s.RedactTurn(ctx, "s", decide.Redact{TurnID: events.TurnID("s", "gone")}))(t)
	must.Get(s.LinkSession(ctx, "linked", "ada", ""))(t)
	must.Get(s.StartTurn(ctx, start("linked", "r")))(t)
	must.Get(s.ResetSession(ctx, "linked", ""))(t)
}

// TestNoAnswerShowsWhatIsNotOnDisk has every kind of write answered by the process that
// wrote what it finds, and by another that reads it from the log; and has a third
// process write to the session at each moment at which the answer waits for the disk. What is
// shown must be what the disk has.
func TestNoAnswerShowsWhatIsNotOnDisk(t *testing.T) {
	t.Parallel()
	for name := range writes() {
		for _, cold := range []bool{false, true} {
			for at := range int32(6) {
				t.Run(fmt.Sprintf("%s/cold=%t/another at %d", name, cold, at), func(t *testing.T) {
					t.Parallel()
					d := newLazyDisk(t)
					s := runOn(t, d)
					prepare(t, s)
					if cold {
						s = runOn(t, d)
					}
					d.syncs.Store(at)
					d.meanwhile = func() {
						final := &events.TurnFinalized{TurnID: events.TurnID("s", "pending"), SessionID: "s",
							Answer: events.Answer{AnswerNeutral: "another's"}}
						link := &events.SessionLinked{SessionID: "s", IdentityID: "ada"}
						gone := &events.TurnRedacted{TurnID: events.TurnID("s", "final"), SessionID: "s"}
						d.foreign(t, s, final, gone, link, began("s", "z"), began("linked", "z"))
					}
					d.shows(t, carriedOut(watch(t.Context()), s, writes()[name]))
				})
			}
		}
	}
}

func began(session, request string) events.Fact {
	return &events.TurnStarted{TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: "another's"}}
}

// shows holds an answer against what the disk has.
func (d *lazyDisk) shows(t testing.TB, got shown) {
	t.Helper()
	switch {
	case errors.Is(got.err, decide.ErrTurnRedacted):
		st, _ := d.kept(t, "s")
		require.NotZero(t, st.Turn(events.TurnID("s", "final")).Redacted, "refused for a redaction that is not on disk")
	case got.err != nil:
		require.ErrorIs(t, got.err, decide.ErrLinkedElsewhere)
		st, refused := d.kept(t, "linked")
		require.Equal(t, "ada", st.Identity, "refused for a link that is not on disk")
		require.Equal(t, 1, refused, "the attempt is not on disk")
	case got.turn != nil:
		st, _ := d.kept(t, got.turn.SessionID)
		require.Equal(t, st.Identity, got.turn.IdentityID)
		kept := st.Turn(got.turn.ID)
		require.NotNil(t, kept, "the turn is not on disk")
		require.Equal(t, [...]any{kept.Status, kept.Started, kept.Final, kept.Redacted}, [...]any{got.turn.Status,
			got.turn.Started, got.turn.Final, got.turn.Redacted})
		require.LessOrEqual(t, got.turn.Position.Seq, d.synced.At())
	default:
		st, _ := d.kept(t, got.session.SessionID)
		require.Equal(t, st.Head(), got.session.Head)
		require.LessOrEqual(t, got.session.Position.Seq, d.synced.At())
	}
}

// TestTheDiskIsAtWorkWhileTheFoldIsWaitedFor stops the service's tail: its write is
// waited for at the disk all the same.
func TestTheDiskIsAtWorkWhileTheFoldIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := newLazyDisk(t)
	tails, goOn := make(chan *jetlog.Tail, 1), make(chan struct{})
	first := true
	d.tail = func(tail *jetlog.Tail) {
		if first {
			first = false
			tails <- tail
			return
		}
		<-goOn
	}
	s := runOn(t, d)
	must.Get(s.StartTurn(t.Context(), start("s", "r1")))(t)
	(<-tails).Close()
	synced := make(chan struct{})
	d.syncs.Store(1)
	d.meanwhile = func() { close(synced) }
	ctx, cancel := context.WithTimeout(watch(t.Context()), hang.Limit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := s.StartTurn(ctx, start("s", "r2"))
		done <- err
	}()
	select {
	case <-synced:
	case <-ctx.Done():
		t.Error("the fold was waited for before the disk")
	}
	close(goOn)
	require.NoError(t, <-done)
}

// TestAResetIsOne has a turn start between a reset and its verdict: it is not reset too.
func TestAResetIsOne(t *testing.T) {
	t.Parallel()
	d := newLazyDisk(t)
	s := runOn(t, d)
	must.Get(s.StartTurn(t.Context(), start("s", "before")))(t)
	d.appended = func() { d.foreign(t, s, began("s", "after")) }
	reset := must.Get(s.ResetSession(watch(t.Context()), "s", ""))(t)
	require.False(t, reset.Duplicate)
	require.EqualValues(t, 2, reset.ResetAt)
	require.Equal(t, 1, reset.ShownPending, "the turn that began after the reset")
	var resets int
	for _, e := range logtest.Read(t, d.Log, "s") {
		if e.Type == events.TypeSessionReset {
			resets++
		}
	}
	require.Equal(t, 1, resets)
}

var errDisk = errors.New("the disk is gone")

// brokenDisk never has anything.
type brokenDisk struct{ *jetlog.Log }

func (brokenDisk) Durable(context.Context, events.Position) error { return errDisk }

func TestNoAnswerFromABrokenDisk(t *testing.T) {
	t.Parallel()
	d := newLazyDisk(t)
	prepare(t, runOn(t, d))
	s := runOn(t, brokenDisk{d.Log})
	for name, command := range writes() {
		require.ErrorIs(t, carriedOut(t.Context(), s, command).err, jetlog.ErrUnavailable, name)
	}
}
