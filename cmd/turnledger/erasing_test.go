package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/memory"
	"github.com/turnledger/turnledger/services/memory/memorytest"
	"github.com/turnledger/turnledger/services/memory/supermemory"
)

// Who asks for a retention is told that it waits for the audit, and not that something is wrong.
func TestARetentionThatWaitsSaysSo(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	notes, err := log.Notes(t.Context())
	require.NoError(t, err)
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{TurnID: uuid.New(),
		SessionID: "s", RequestID: "r"}}})
	require.NoError(t, err)
	for why, told := range map[error]error{audit.ErrNotYet: projections.ErrNotYet,
		errors.New("gone"): projections.ErrUnavailable} {
		retention := eraser.NewRetention(eraser.On(log), notes, eraser.RetentionConfig{
			Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
			Forget: func(context.Context, string, int, []uint64, func(context.Context) error) error {
				return errors.Join(audit.ErrUnavailable, why)
			},
		})
		_, err := retention.Sweep(t.Context(), false)
		require.ErrorIs(t, err, told)
	}
}

// What was erased never comes to a view that waits for it.
func TestAViewHasReachedWhatIsErased(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	f := &events.SessionLinked{SessionID: "s", IdentityID: "alice"}
	ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
	require.NoError(t, err)
	view := fleet.NewPlace(log, "recent", func(context.Context, int) (events.Position, error) {
		return events.Position{}, nil
	})
	reached, err := view.Reached(t.Context(), ack.Position)
	require.NoError(t, err)
	require.False(t, reached)
	_, err = overwrite.On(log).Erase(t.Context(), ack.Position)
	require.NoError(t, err)
	reached, err = view.Reached(t.Context(), ack.Position)
	require.NoError(t, err)
	require.True(t, reached)
}

// A retention purges nothing that the memory outside still has, or may yet be given.
func TestARetentionWaitsForTheMemory(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	js, err := jetstream.New(natstest.Connect(t, s))
	require.NoError(t, err)
	service := memorytest.New(t)
	store := supermemory.NewV5(supermemory.Config{URL: service.URL, Key: "k"})
	a := &app{views: &views{}, memory: memory.NewOutside(log, js, store, memory.OutsideConfig{
		Registry: prometheus.NewRegistry(),
	})}
	require.NoError(t, store.Put(t.Context(), memory.Scope("", "s"),
		memory.Document{TurnID: uuid.New(), SessionID: "s", Question: "SECRET"}))
	purged := 0
	forget := func(upTo uint64) error {
		return a.forget(t.Context(), "s", 0, []uint64{upTo}, func(context.Context) error { purged++; return nil })
	}
	require.ErrorIs(t, forget(1), projections.ErrNotYet, "nothing was forwarded yet")
	require.Zero(t, purged)
	require.Len(t, service.Documents(), 1)
	require.NoError(t, forget(0))
	require.Equal(t, 1, purged)
	require.Empty(t, service.Documents())
}
