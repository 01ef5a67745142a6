package eraser_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/recall"
	"github.com/turnledger/turnledger/services/recall/supermemory"
)

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
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	js := must.Get(jetstream.New(natstest.Connect(t, s)))(t)
	service := memorytest.New(t)
	store := supermemory.NewV5(supermemory.Config{URL: service.URL, Key: "k"})
	outside := recall.NewOutside(log, js, store, recall.OutsideConfig{Registry: prometheus.NewRegistry()})
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
	asked  []conversation.Redact
	erased map[string]services.Erasure
	err    error
}

func (r *redactor) EraseSession(_ context.Context, id string, c services.Erasure) (string, error) {
	r.erased = map[string]services.Erasure{id: c}
	return "", r.err
}

func (r *redactor) RedactTurn(_ context.Context, _ string, c conversation.Redact) (services.Turn, error) {
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
		{conversation.ErrSessionErased, nil}, {jetlog.ErrUnavailable, jetlog.ErrUnavailable},
	} {
		turns := &redactor{err: c.fails}
		s := eraser.NewService(w.log, w.notes, eraser.ServiceConfig{
			Config: runner.Config{Rules: rules}, Keepers: eraser.Keepers{Audit: (*audit.Guarded)(nil)},
			Turns: turns, Linked: time.Nanosecond,
		})
		must.Fail(s.Retention.Sweep(t.Context()))(t, c.want)
		want := []conversation.Redact{{TurnID: turn, Reason: "retention", RedactedBy: "turnledger"}}
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
	must.Get(w.history.DescribeSession(t.Context(), conversation.Describe{SessionID: "linked",
		Kind: events.KindResponse}))(t)
	turns := &redactor{}
	s := eraser.NewService(w.log, w.notes, eraser.ServiceConfig{
		Config: runner.Config{Rules: rules}, Keepers: eraser.Keepers{Audit: (*audit.Guarded)(nil)},
		Turns: turns, Response: time.Nanosecond,
	})
	must.Get(s.Retention.Sweep(t.Context()))(t)
	require.Equal(t, map[string]services.Erasure{"linked": {Reason: "retention", By: "turnledger"}}, turns.erased)
}
