package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/effects"
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
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{TurnID: uuid.New(), SessionID: "s", RequestID: "r"}}})
	require.NoError(t, err)
	for why, told := range map[error]error{audit.ErrNotYet: projections.ErrNotYet, errors.New("gone"): projections.ErrUnavailable} {
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

// From the 202 on nobody is shown anything of an identity, whichever process is asked and
// though no eraser runs that would close its sessions; writes to them are 410.
func TestAnErasedIdentityIsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	nats := freeAddress(t)
	env := []string{"TURNLEDGER_PARTITIONS=4", "TURNLEDGER_POSTGRES_URL=" + pgtest.URL(t)}
	a := start(t, append([]string{"TURNLEDGER_NATS_LISTEN=" + nats, "TURNLEDGER_SYNC=always"}, env...), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,audit")
	b := start(t, append([]string{"TURNLEDGER_NATS_URL=nats://" + nats, "TURNLEDGER_NATS_LISTEN="}, env...), "serve", "--roles", "api,context,recent")
	ids := []string{"a", "b", "c", "d", "e"}
	link := func(id, identity string) {
		a.must(t, http.StatusOK, http.MethodPut, session(id)+"/identity", map[string]any{"identity_id": identity})
	}
	for _, id := range ids {
		a.turn(t, id, "r1", "SECRET cats", "SECRET answer")
		link(id, "alice")
	}
	turn := a.turn(t, "other", "r1", "KEPT cats", "KEPT answer")
	link("other", "bob")
	shown := func(p *process, id string) string {
		t.Helper()
		out := fmt.Sprint(p.must(t, http.StatusOK, http.MethodGet, session(id)+"/history", nil), p.tombstones(t, id), p.context(t, id))
		asOf := map[string]any{"message": "m", "as_of": map[string]any{"position": fmt.Sprintf("%d:1000", 0)}}
		if code, got, err := p.call(t.Context(), http.MethodPost, session(id)+"/context", asOf); err == nil && code == http.StatusOK {
			out += fmt.Sprint(got)
		}
		return out + fmt.Sprint(p.must(t, http.StatusOK, http.MethodPost, session("new")+"/context", map[string]any{"message": "cats", "memory": true, "identity_id": "alice"}))
	}
	require.Contains(t, shown(b, "a"), "SECRET", "the test sees what there is")
	require.Contains(t, fmt.Sprint(b.must(t, http.StatusOK, http.MethodGet, "/v1/identities/alice/turns", nil)), "SECRET")

	receipt := a.must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)["receipt_id"].(string)
	for _, p := range []*process{b, a} {
		for _, id := range ids {
			require.NotContains(t, shown(p, id), "SECRET")
		}
		require.NotContains(t, fmt.Sprint(p.must(t, http.StatusOK, http.MethodGet, "/v1/identities/alice/turns", nil)), "SECRET")
		code, out, errs := said(t, "replay", "--url", p.url)
		require.Equal(t, exitDone, code, errs)
		require.NotContains(t, out, "SECRET")
		require.Contains(t, out, "KEPT")
	}
	for i, id := range ids {
		p := []*process{a, b}[i%2]
		refused := p.must(t, http.StatusGone, http.MethodPost, session(id)+"/turns", map[string]any{"request_id": "r9", "question_neutral": "SECRET late"})
		require.Equal(t, "session_erased", refused["code"])
	}
	require.Equal(t, receipt, b.must(t, http.StatusAccepted, http.MethodDelete, session("a"), nil)["receipt_id"])
	require.Equal(t, receipt, b.must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)["receipt_id"])

	// Nothing is begun anew, and what is linked later goes in the same way.
	b.must(t, http.StatusGone, http.MethodPost, session("anew")+"/turns", map[string]any{"request_id": "r1", "question_neutral": "SECRET anew", "identity_id": "alice"})
	require.Equal(t, false, b.must(t, http.StatusOK, http.MethodGet, session("anew"), nil)["found"])
	b.turn(t, "late", "r1", "SECRET cats", "SECRET answer")
	link("late", "alice")
	require.NotContains(t, shown(b, "late"), "SECRET")
	b.must(t, http.StatusGone, http.MethodPost, session("late")+"/turns", map[string]any{"request_id": "r2", "question_neutral": "q"})
	require.Contains(t, b.tombstones(t, "other"), turn)
	require.Len(t, b.context(t, "other"), 2)

	// The eraser knows nothing of what others keep in their memory.
	start(t, append([]string{"TURNLEDGER_NATS_URL=nats://" + nats, "TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_ERASE_RATE=1000"}, env...), "serve", "--roles", "eraser")
	for _, p := range []*process{a, b} {
		require.Equal(t, "done", placeOf(t, p.receipt(t, receipt), "recent")["state"])
	}
}

// What was erased never comes to a view that waits for it.
func TestAViewHasReachedWhatIsErased(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	f := &events.SessionLinked{SessionID: "s", IdentityID: "alice"}
	ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
	require.NoError(t, err)
	view := followed{log, "recent", func(context.Context, int) (events.Position, error) { return events.Position{}, nil }}
	reached, err := view.Reached(t.Context(), ack.Position)
	require.NoError(t, err)
	require.False(t, reached)
	_, err = log.Erase(t.Context(), ack.Position)
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
	forwarder := memory.NewForwarder(store, log, conversation.Rules{})
	a := &app{views: &views{}, memory: &outsideMemory{forwarder: forwarder, effect: effects.New(js, forwarder, effects.Config{Log: log})}}
	require.NoError(t, store.Put(t.Context(), memory.Scope("", "s"), memory.Document{TurnID: uuid.New(), SessionID: "s", Question: "SECRET"}))
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
