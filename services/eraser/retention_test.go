package eraser_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/recall"
	"github.com/turnledger/turnledger/services/recall/supermemory"
)

//conformance:h54 h68 f27
func TestWhatIsTooOldGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("anonymous", "r1", "old")
	gone := w.turn("redacted", "r1", "old")
	w.turn("redacted", "r2", "old")
	w.redact("redacted", gone)
	w.turn("redacted", "r3", "old")
	w.turn("linked", "r1", "old")
	w.link("linked", "alice")
	w.turn("active", "r1", "old")
	// The log's own clock says when that was.
	cut := time.Now().Add(10 * time.Millisecond)
	hang.Until(t, func() bool { return time.Now().After(cut) })
	w.turn("active", "r2", "new")
	w.turn("linked", "r2", "new")

	now := cut
	var forgotten []string
	cfg := eraser.RetentionConfig{
		Rules: rules, Anonymous: 30 * 24 * time.Hour, Linked: 365 * 24 * time.Hour,
		Now: func() time.Time { return now },
		Redact: func(_ context.Context, sessionID string, turn uuid.UUID) error {
			_, err := w.history.RedactTurn(t.Context(), sessionID, decide.Redact{TurnID: turn, Reason: "retention"})
			return err
		},
		Forget: func(ctx context.Context, sessionID string, _ int, _ []uint64, purge func(context.Context) error) error {
			forgotten = append(forgotten, sessionID)
			return purge(ctx)
		},
	}
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, cfg)
	sweep := func(dry bool) services.Swept {
		do := r.Sweep
		if dry {
			do = r.DrySweep
		}
		return must.Get(do(t.Context()))(t)
	}
	require.Zero(t, sweep(false), "nothing is old")

	now = cut.Add(cfg.Anonymous)
	all := append(w.types("anonymous"), w.types("redacted")...)
	would := services.Swept{Sessions: 2, Events: len(all) - 1}
	require.Equal(t, would, sweep(true))
	require.Equal(t, all, append(w.types("anonymous"), w.types("redacted")...), "a dry run changes nothing")
	require.Equal(t, would, sweep(false))
	require.Zero(t, sweep(false), "it goes on where it was")
	require.Empty(t, w.types("anonymous"))
	require.Equal(t, []string{events.TypeTurnRedacted}, w.types("redacted"), "a marker stays")
	require.Len(t, w.types("active"), 4)
	require.Len(t, w.types("linked"), 5)
	require.Equal(t, []string{"anonymous", "redacted"}, forgotten)

	require.Equal(t, session.Redacted, w.start("redacted", "r1", "again").Status,
		"a late retry brings no redacted turn back")
	require.False(t, w.start("redacted", "r9", "new").Duplicate)
	w.link("anonymous", "bob")

	now = cut.Add(cfg.Linked)
	require.Equal(t, 1, sweep(true).Turns)
	require.Equal(t, 1, sweep(false).Turns)
	state := w.state("linked")
	require.Equal(t, []session.Status{session.Redacted, session.Finalized},
		[]session.Status{state.Turns[0].Status, state.Turns[1].Status})
}

// A session that has left the log is not found again, so the view's rows of it go first.
func TestWhatAViewCanNotForgetYetStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "old")
	w.turn("linked", "r1", "old")
	w.link("linked", "alice")
	away := errors.New("away")
	var redacted []string
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Linked: time.Hour,
		Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		Redact: func(_ context.Context, session string, _ uuid.UUID) error {
			redacted = append(redacted, session)
			return nil
		},
		Forget: func(ctx context.Context, _ string, _ int, _ []uint64, purge func(context.Context) error) error {
			if away != nil {
				return away
			}
			return purge(ctx)
		},
	})
	must.Fail(r.Sweep(t.Context()))(t, away)
	require.Len(t, w.types("s"), 2)
	require.Equal(t, []string{"linked"}, redacted, "what is linked does not wait for the view")
	away = nil
	got := must.Get(r.Sweep(t.Context()))(t)
	require.Equal(t, services.Swept{Sessions: 1, Events: 2}, got)
	require.Empty(t, w.types("s"))
}

// A foreign redaction that lacks the tombstones is none without the turn's events, and a
// late retry would bring the text back.
func TestRetentionKeepsWhatARedactionRestsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "old")
	gone := w.turn("s", "r2", "old")
	w.turn("s", "r3", "old")
	w.publish(&events.TurnRedacted{TurnID: gone, SessionID: "s"}, "")
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
	})
	got := must.Get(r.Sweep(t.Context()))(t)
	require.Equal(t, services.Swept{Sessions: 1, Events: 4}, got)
	require.Equal(t, []string{events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted}, w.types("s"))
	w.publish(&events.TurnStarted{TurnID: gone, SessionID: "s", RequestID: "r2",
		Question: events.Question{QuestionNeutral: "again"}}, "late")
	require.NotZero(t, w.state("s").Turn(gone).Redacted)
}

// What a view is to forget is what leaves the log, also where its type says that it would
// stay: a foreign redaction of a turn that nobody knows is none.
func TestAViewForgetsWhatRetentionTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	first := w.publish(&events.TurnRedacted{TurnID: uuid.New(), SessionID: "s"}, "")
	w.redact("s", w.turn("s", "r1", "old"))
	var forgotten []uint64
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		Forget: func(ctx context.Context, _ string, _ int, gone []uint64, purge func(context.Context) error) error {
			forgotten = gone
			return purge(ctx)
		},
	})
	must.Get(r.Sweep(t.Context()))(t)
	require.Equal(t, []string{events.TypeTurnRedacted}, w.types("s"))
	require.Equal(t, []uint64{first.Seq, first.Seq + 1, first.Seq + 2}, forgotten)
}

// A view may be behind in one partition and not in another.
func TestAPartitionThatWaitsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	sessions := map[int]string{}
	for i := 0; len(sessions) < 2; i++ {
		id := fmt.Sprint("s", i)
		if k := w.log.Partition(id); sessions[k] == "" {
			sessions[k] = id
			w.turn(id, "r1", "old")
		}
	}
	behind := errors.New("behind")
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		Forget: func(ctx context.Context, _ string, partition int, _ []uint64,
			purge func(context.Context) error) error {
			if partition == 0 {
				return behind
			}
			return purge(ctx)
		},
	})
	must.Fail(r.Sweep(t.Context()))(t, behind)
	require.Len(t, w.types(sessions[0]), 2)
	require.Empty(t, w.types(sessions[1]))
}

// Sessions of a kind have ages of their own, linked or not: the rule for anonymous sessions leaves them alone.
//
//conformance:o46
func TestWhatIsTooOldOfAKindGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	describe := func(session string, kind events.SessionKind) {
		must.Get(w.history.DescribeSession(t.Context(), decide.Describe{SessionID: session, Kind: kind}))(t)
	}
	for _, kind := range []events.SessionKind{events.KindConversation, events.KindResponse} {
		for _, session := range []string{"empty", "anonymous", "linked", "active"} {
			describe(session+" "+string(kind), kind)
			if session != "empty" {
				w.turn(session+" "+string(kind), "r1", "SECRET")
			}
		}
		w.link("linked "+string(kind), "alice")
	}
	w.turn("plain", "r1", "old")
	cut := time.Now().Add(10 * time.Millisecond)
	hang.Until(t, func() bool { return time.Now().After(cut) })
	w.turn("active conversation", "r2", "new")
	w.turn("active response", "r2", "new")

	const day = 24 * time.Hour
	now := cut
	cfg := eraser.RetentionConfig{Rules: rules, Anonymous: 10 * day, Response: 30 * day, Conversation: 90 * day,
		Now: func() time.Time { return now },
		Erase: func(ctx context.Context, session string) error {
			_, err := w.history.EraseSession(ctx, session, services.Erasure{Reason: "retention"})
			return err
		}}
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, cfg)
	sweep := func(days int, want services.Swept) {
		t.Helper()
		now = cut.Add(time.Duration(days) * day)
		require.Equal(t, want, must.Get(r.DrySweep(t.Context()))(t))
		require.Equal(t, want, must.Get(r.Sweep(t.Context()))(t))
	}
	gone := func(kind string) {
		t.Helper()
		for _, session := range []string{"empty", "anonymous"} {
			require.Empty(t, w.types(session+kind))
		}
		require.NotZero(t, w.state("linked"+kind).Erased)
	}
	sweep(10, services.Swept{Sessions: 1, Events: 2})
	require.Empty(t, w.types("plain"))
	sweep(30, services.Swept{Sessions: 2, Events: 4, LinkedSessions: 1, Turns: 1})
	gone(" response")
	require.Len(t, w.types("active response"), 5)
	require.Len(t, w.types("empty conversation"), 1)
	sweep(31, services.Swept{Sessions: 1, Events: 5}) // it was held
	require.Empty(t, w.types("active response"))
	sweep(90, services.Swept{Sessions: 2, Events: 4, LinkedSessions: 1, Turns: 1})
	gone(" conversation")
	require.Len(t, w.types("active conversation"), 5)
	sweep(91, services.Swept{Sessions: 1, Events: 5})
	require.Empty(t, w.types("active conversation"))
}

// Who asks for a retention is told that it waits for the audit, and not that something is wrong.
func TestARetentionThatWaitsSaysSo(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	notes := must.Get(log.Notes(t.Context()))(t)
	must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{TurnID: uuid.New(),
		SessionID: "s", RequestID: "r"}}}))(t)
	for why, told := range map[error]error{audit.ErrNotYet: projections.ErrNotYet,
		errors.New("gone"): projections.ErrUnavailable} {
		retention := eraser.NewRetention(eraser.On(log), notes, eraser.RetentionConfig{
			Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
			Forget: func(context.Context, string, int, []uint64, func(context.Context) error) error {
				return errors.Join(audit.ErrUnavailable, why)
			},
		})
		must.Fail(retention.Sweep(t.Context()))(t, told)
	}
}

// A retention purges nothing that the memory outside still has, or may yet be given.
func TestARetentionWaitsForTheMemory(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	service := memorytest.New(t)
	store := supermemory.NewV5(supermemory.Config{URL: service.URL, Key: "k"})
	outside := recall.NewOutside(log, store,
		recall.OutsideConfig{
			Config: runner.Config{Desk: desk.Of(log)}, Registry: prometheus.NewRegistry(),
		})
	keepers := eraser.Keepers{Memory: outside, Audit: (*audit.Guarded)(nil)}
	require.NoError(t, store.Put(t.Context(), recall.Scope("", "s"),
		recall.Document{TurnID: uuid.New(), SessionID: "s", Question: "SECRET"}))
	purged := 0
	forget := func(upTo uint64) error {
		return keepers.Forget(t.Context(), "s", 0, []uint64{upTo}, func(context.Context) error { purged++; return nil })
	}
	require.ErrorIs(t, forget(1), projections.ErrNotYet, "nothing was forwarded yet")
	require.Zero(t, purged)
	require.Len(t, service.Documents(), 1)
	require.NoError(t, forget(0))
	require.Equal(t, 1, purged)
	require.Empty(t, service.Documents())
}

// lateIndex is an index that has not applied what is to be forgotten, until it is set.
type lateIndex struct{ reached bool }

func (x *lateIndex) Forget(_ context.Context, session string, upTo events.Position) error {
	if !x.reached || session != "s" || upTo.Seq != 3 {
		return projections.NotYet(errors.New("the index is behind"))
	}
	return nil
}

// A retention purges nothing that the index may still be given.
func TestARetentionWaitsForTheIndex(t *testing.T) {
	t.Parallel()
	x, purged := &lateIndex{}, 0
	keepers := eraser.Keepers{Index: x, Audit: (*audit.Guarded)(nil)}
	purge := func(context.Context) error { purged++; return nil }
	require.ErrorIs(t, keepers.Forget(t.Context(), "s", 0, []uint64{1, 3, 2}, purge), projections.ErrNotYet)
	require.Zero(t, purged)
	x.reached = true
	require.NoError(t, keepers.Forget(t.Context(), "s", 0, []uint64{1, 3, 2}, purge))
	require.Equal(t, 1, purged)
}

// redactor redacts turns and erases sessions in memory, or fails.
type redactor struct {
	asked  []decide.Redact
	erased map[string]services.Erasure
	err    error
}

func (r *redactor) EraseSession(_ context.Context, id string, c services.Erasure) (string, error) {
	r.erased = map[string]services.Erasure{id: c}
	return "", r.err
}

func (r *redactor) RedactTurn(_ context.Context, _ string, c decide.Redact) (services.Turn, error) {
	r.asked = append(r.asked, c)
	return services.Turn{}, r.err
}

// What retention redacts in a linked session says so; a session that was erased meanwhile has nothing to redact.
func TestAServiceRedactsWhatIsTooOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	turn := w.turn("linked", "r1", "old")
	w.link("linked", "alice")
	for _, c := range []struct{ fails, want error }{
		{decide.ErrSessionErased, nil}, {jetlog.ErrUnavailable, jetlog.ErrUnavailable},
	} {
		turns := &redactor{err: c.fails}
		s := eraser.NewService(w.log, w.notes, eraser.ServiceConfig{
			Config: runner.Config{Rules: rules}, Keepers: eraser.Keepers{Audit: (*audit.Guarded)(nil)},
			Turns: turns, Linked: time.Nanosecond,
		})
		must.Fail(s.Retention.Sweep(t.Context()))(t, c.want)
		want := []decide.Redact{{TurnID: turn, Reason: "retention", RedactedBy: "turnledger"}}
		require.Equal(t, want, turns.asked)
		// A sweep that succeeded does not look again at what it saw.
		require.NoError(t, w.notes.Drop(t.Context(), "retention.linked.0"))
	}
}

// A linked session of a kind is erased as a whole, with its title.
//
//conformance:o46
func TestAServiceErasesLinkedSessionsOfAKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("linked", "r1", "old")
	w.link("linked", "alice")
	must.Get(w.history.DescribeSession(t.Context(), decide.Describe{SessionID: "linked",
		Kind: events.KindResponse}))(t)
	turns := &redactor{}
	s := eraser.NewService(w.log, w.notes, eraser.ServiceConfig{
		Config: runner.Config{Rules: rules}, Keepers: eraser.Keepers{Audit: (*audit.Guarded)(nil)},
		Turns: turns, Response: time.Nanosecond,
	})
	must.Get(s.Retention.Sweep(t.Context()))(t)
	require.Equal(t, map[string]services.Erasure{"linked": {Reason: "retention", By: "turnledger"}}, turns.erased)
}
