package jetlog_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/disktest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
)

// A process that starts while the server is busy waits for it.
func TestASlowServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"streams", "notes"} {
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			nc, wire := natstest.Wired(t)
			ask := func(what string) {
				if what == slow {
					wire.Lock()
					time.AfterFunc(6*time.Second, wire.Unlock) // JetStream's client gives a question up after 5 s
				}
			}
			ask("streams")
			log := openOn(t, nc, jetlog.Config{})
			ask("notes")
			must.Get(log.Notes(t.Context()))(t)
		})
	}
}

// A committed note survives a power cut, and so does that a note was taken away; it is written only while what
// guards it stands.
func TestACommittedNoteIsDurable(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	notes := must.Get(natstest.LogOn(t, s, 1).Notes(t.Context()))(t)
	guard := must.Get(notes.Write(t.Context(), "guard", 1, 0))(t)
	disk, msgs := disktest.New(), filepath.Join(s.GateDir(), "jetstream", "$G", "streams", "KV_TURNLEDGER", "msgs")
	require.NoError(t, notes.SetFsync(t.Context(), disk.Fsync))
	for _, value := range []any{"one", nil, "two"} {
		before := disk.Syncs()
		require.NoError(t, notes.Commit(t.Context(), "a.b", value, "guard", guard))
		require.Greater(t, disk.Syncs(), before)
		require.Positive(t, disk.Durable(t, msgs))
		var stands string
		must.Get(notes.Read(t.Context(), "a.b", &stands))(t)
		if value == nil {
			value = ""
		}
		require.Equal(t, value, stands)
	}
	must.Get(notes.Write(t.Context(), "guard", 2, guard))(t)
	require.ErrorIs(t, notes.Commit(t.Context(), "a.b", "three", "guard", guard), jetlog.ErrConflict)
	require.ErrorIs(t, notes.Remove(t.Context(), "a.b", "guard", guard), jetlog.ErrConflict)
}

// A value that processes agree on for ever survives a power cut, as do the events that are read by it.
func TestAValueForEverIsDurable(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	notes := must.Get(natstest.LogOn(t, s, 1).Notes(t.Context()))(t)
	disk := disktest.New()
	require.NoError(t, notes.SetFsync(t.Context(), disk.Fsync))
	for _, draw := range []string{"first", "second"} {
		value := must.Get(notes.Once(t.Context(), "key", func() string { return draw }))(t)
		require.Equal(t, "first", value)
		require.Positive(t, disk.Syncs())
	}
}
