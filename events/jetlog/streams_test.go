package jetlog_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/disktest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

// made opens a log of some partitions and gives its connection and its stream 0.
func made(t *testing.T, partitions int) (*nats.Conn, jetstream.JetStream, jetstream.StreamConfig) {
	t.Helper()
	nc := natstest.Connect(t, natstest.Server(t))
	openOn(t, nc, jetlog.Config{Partitions: partitions})
	return nc, natstest.JetStream(t, nc), natstest.Stream(t, nc, events.StreamName(0)).CachedInfo().Config
}

func refused(t *testing.T, nc *nats.Conn, cfg jetlog.Config, says ...string) {
	t.Helper()
	_, err := jetlog.Open(t.Context(), nc, cfg)
	require.ErrorIs(t, err, jetlog.ErrStream)
	for _, s := range says {
		require.ErrorContains(t, err, s)
	}
}

func TestPartitionsAreFixed(t *testing.T) {
	t.Parallel()
	for from, to := range map[int]int{1: 8, 8: 1} {
		nc, js, _ := made(t, from)
		refused(t, nc, jetlog.Config{Partitions: to}, fmt.Sprintf("was made with %d partitions", from),
			fmt.Sprintf("set TURNLEDGER_PARTITIONS=%d", from))
		if from > to { // also where the first stream is gone
			require.NoError(t, js.DeleteStream(t.Context(), events.StreamName(0)))
			refused(t, nc, jetlog.Config{Partitions: to}, "captures subjects", "TURNLEDGER_PARTITIONS")
		}
	}
}

// again makes a stream whose namesake was just deleted: the server may still remove its files.
func again(t testing.TB, do func() error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, do()) }, hang.Limit,
		10*time.Millisecond)
}

func TestChangedStreamIsRefused(t *testing.T) {
	t.Parallel()
	type config = jetstream.StreamConfig
	nc, js, made := made(t, 1)
	undo := "undo it with: nats stream edit TURNS-0"
	words := func(words ...string) []string { return words }
	for name, c := range map[string]struct {
		change func(*config)
		says   []string
	}{
		"messages":    {func(c *config) { c.MaxMsgs = 10 }, words("limits", undo)},
		"bytes":       {func(c *config) { c.MaxBytes = 1 << 20 }, words("limits", undo)},
		"age":         {func(c *config) { c.MaxAge = time.Hour }, words("limits", undo)},
		"per subject": {func(c *config) { c.MaxMsgsPerSubject = 3 }, words("limits", undo)},
		"size":        {func(c *config) { c.MaxMsgSize = 1000 }, words("size", undo)},
		"consumers":   {func(c *config) { c.MaxConsumers = 3 }, words("consumers")},
		"atomic":      {func(c *config) { c.AllowAtomicPublish = false }, words("atomic", undo)},
		"direct":      {func(c *config) { c.AllowDirect = false }, words("direct", undo)},
		"no ack":      {func(c *config) { c.NoAck, c.AllowAtomicPublish = true, false }, words("acknowledgements", undo)},
		"deletes":     {func(c *config) { c.DenyDelete = true }, words("erasure")},
		"roll-ups":    {func(c *config) { c.AllowRollup = true }, words("roll-ups", undo)},
		"TTL":         {func(c *config) { c.AllowMsgTTL = true }, words("TTL")},
		"compression": {func(c *config) { c.Compression = jetstream.S2Compression }, words("erased", undo)},
		"window":      {func(c *config) { c.Duplicates = time.Second }, words("--dupe-window 2m")},
		"subjects":    {func(c *config) { c.Subjects = c.Subjects[:1] }, words("subjects", "restore them")},
		"foreign":     {func(c *config) { c.Metadata = nil }, words("was not made by Turnledger", "a NATS account of its own")},
		"memory":      {func(c *config) { c.Storage = jetstream.MemoryStorage }, words("make the log anew on file storage")},
		"retention":   {func(c *config) { c.Retention = jetstream.InterestPolicy }, words("retention")},
		"persistence": {func(c *config) { c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false },
			words("persistence")},
		"transform": {func(c *config) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "turns.*.*",
				Destination: "x.{{wildcard(1)}}.{{wildcard(2)}}"}
		}, words("transform", undo)},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := made
			require.NoError(t, js.DeleteStream(t.Context(), cfg.Name))
			c.change(&cfg)
			again(t, func() error {
				_, err := js.CreateStream(t.Context(), cfg)
				return err
			})
			refused(t, nc, jetlog.Config{}, c.says...)
		})
	}
}

func TestReplicasMustBeWhatTheLogHas(t *testing.T) {
	t.Parallel()
	nc, _, _ := made(t, 1)
	refused(t, nc, jetlog.Config{Replicas: 3}, "has 1 replicas", "set TURNLEDGER_REPLICAS=1",
		"turnledger streams apply --replicas 3")
	refused(t, natstest.Connect(t, natstest.Server(t)), jetlog.Config{Replicas: 3}, "not in a cluster",
		"set TURNLEDGER_REPLICAS=1")
}

func TestLostStreamIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 4)
	nc := natstest.Connect(t, s)
	js := natstest.JetStream(t, nc)
	// Nothing was written yet: a start that was broken off is taken up again.
	require.NoError(t, js.DeleteStream(t.Context(), events.StreamName(3)))
	again(t, func() error {
		_, err := jetlog.Open(t.Context(), nc, jetlog.Config{Partitions: 4})
		return err
	})
	at := logtest.Add(t, log, "s", "r", "x")
	lost := (at.Partition + 1) % 4
	require.NoError(t, js.DeleteStream(t.Context(), events.StreamName(lost)))
	refused(t, nc, jetlog.Config{Partitions: 4}, events.StreamName(lost)+" is missing", "restore it from a backup")
}

func TestConfigIsHeldAgainstItsBounds(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	refused(t, nc, jetlog.Config{Partitions: 3, Replicas: 9}, "power of two", "replicas must be 1 to 5")
	refused(t, nc, jetlog.Config{Partitions: 512}, "power of two")
	refused(t, nc, jetlog.Config{Partitions: -2}, "power of two")
	refused(t, nc, jetlog.Config{Replicas: 3, GateDir: t.TempDir()}, "TURNLEDGER_SYNC=always")
	refused(t, small(t, 100_000), jetlog.Config{}, "set max_payload")
}

// small connects to a server that takes small messages only.
func small(t *testing.T, most int32) *nats.Conn {
	t.Helper()
	return connectTo(t, plainServer(t, server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: most}))
}

func TestSeveralProcessesMayOpenAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	var all sync.WaitGroup
	for range 8 {
		nc := natstest.Connect(t, s)
		all.Go(func() {
			_, err := jetlog.Open(t.Context(), nc, jetlog.Config{Partitions: 2, GateDir: s.GateDir()})
			assert.NoError(t, err)
		})
	}
	all.Wait()
}

// A process that can't see the gate must neither acknowledge nor show what is
// behind it.
func TestAnotherProcessMayNotUseALogBehindAGate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(sync embedded.Sync) error {
		s := must.Get(embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: sync, Listen: "127.0.0.1:0"}))(t)
		defer s.Stop()
		own := must.Get(s.Connect())(t)
		defer own.Close()
		must.Get(jetlog.Open(t.Context(), own, jetlog.Config{GateDir: s.GateDir()}))(t)
		nc := must.Get(nats.Connect(s.URL()))(t)
		defer nc.Close()
		_, err := jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		return err
	}
	err := open(embedded.Group)
	require.ErrorIs(t, err, jetlog.ErrStream)
	require.ErrorContains(t, err, "TURNLEDGER_SYNC=always")
	require.NoError(t, open(embedded.Always))
	require.ErrorIs(t, open(embedded.Group), jetlog.ErrStream)
}

// Nodes that have it from another time agree on when a stream was restored, and one that was
// restored otherwise later is not taken for it.
func TestWhenAStreamWasRestoredCounts(t *testing.T) {
	t.Parallel()
	restored := time.Date(2026, 11, 22, 9, 0, 0, 5, time.UTC)
	marks := map[string]string{"turnledger.restored": restored.Format(time.RFC3339Nano)}
	for created, want := range map[time.Time]time.Time{
		restored.Add(time.Second):    restored,
		restored.Add(-time.Minute):   restored,
		restored.AddDate(-1, 0, 0):   restored,
		restored.Add(25 * time.Hour): restored.Add(25 * time.Hour),
	} {
		require.Equal(t, want, layout.Made(created, marks))
		require.Equal(t, created, layout.Made(created, nil))
	}
}

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
		require.Equal(t, "first", must.Get(notes.Once(t.Context(), "key", func() string { return draw }))(t))
		require.Positive(t, disk.Syncs())
	}
}
