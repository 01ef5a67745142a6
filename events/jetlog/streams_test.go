package jetlog_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// made opens a log of some partitions and gives its connection and its stream 0.
func made(t *testing.T, partitions int) (*nats.Conn, jetstream.JetStream, jetstream.StreamConfig) {
	t.Helper()
	nc := natstest.Connect(t, natstest.Server(t))
	_, err := jetlog.Open(t.Context(), nc, jetlog.Config{Partitions: partitions})
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), events.StreamName(0))
	require.NoError(t, err)
	return nc, js, stream.CachedInfo().Config
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
	for _, from := range []int{1, 8} {
		for _, to := range []int{1, 8} {
			if from == to {
				continue
			}
			t.Run(fmt.Sprint(from, " to ", to), func(t *testing.T) {
				t.Parallel()
				nc, js, _ := made(t, from)
				refused(t, nc, jetlog.Config{Partitions: to}, fmt.Sprintf("was made with %d partitions", from),
					fmt.Sprintf("set TURNLEDGER_PARTITIONS=%d", from))
				// Also where the first stream is gone.
				require.NoError(t, js.DeleteStream(t.Context(), events.StreamName(0)))
				if from > to {
					refused(t, nc, jetlog.Config{Partitions: to}, "captures subjects", "TURNLEDGER_PARTITIONS")
				}
			})
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
	undo := "undo it with: nats stream edit TURNS-0"
	cases := map[string]struct {
		change func(*jetstream.StreamConfig)
		says   []string
	}{
		"messages":    {func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, []string{"limits", undo}},
		"bytes":       {func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, []string{"limits", undo}},
		"age":         {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, []string{"limits", undo}},
		"per subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 3 }, []string{"limits", undo}},
		"size":        {func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }, []string{"size", undo}},
		"consumers":   {func(c *jetstream.StreamConfig) { c.MaxConsumers = 3 }, []string{"consumers"}},
		"atomic":      {func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, []string{"atomic", undo}},
		"direct":      {func(c *jetstream.StreamConfig) { c.AllowDirect = false }, []string{"direct", undo}},
		"no ack": {func(c *jetstream.StreamConfig) { c.NoAck, c.AllowAtomicPublish = true, false },
			[]string{"acknowledgements", undo}},
		"deletes":  {func(c *jetstream.StreamConfig) { c.DenyDelete = true }, []string{"erasure"}},
		"roll-ups": {func(c *jetstream.StreamConfig) { c.AllowRollup = true }, []string{"roll-ups", undo}},
		"TTL":      {func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, []string{"TTL"}},
		"compression": {func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression }, []string{"erased",
			undo}},
		"window": {func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, []string{"--dupe-window 2m"}},
		"subjects": {func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[:1] }, []string{"subjects",
			"restore them"}},
		"foreign": {func(c *jetstream.StreamConfig) { c.Metadata = nil }, []string{"was not made by Turnledger",
			"a NATS account of its own"}},
		"memory": {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
			[]string{"make the log anew on file storage"}},
		"retention": {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
			[]string{"retention"}},
		"persistence": {func(c *jetstream.StreamConfig) {
			c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false
		}, []string{"persistence"}},
		"transform": {func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "turns.*.*",
				Destination: "x.{{wildcard(1)}}.{{wildcard(2)}}"}
		}, []string{"transform", undo}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, js, cfg := made(t, 1)
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
	js, err := jetstream.New(nc)
	require.NoError(t, err)
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
}

// small connects to a server that takes small messages only.
func small(t *testing.T, most int32) *nats.Conn {
	t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir: t.TempDir(), MaxPayload: most})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func TestServerMustTakeTheLargestEvent(t *testing.T) {
	t.Parallel()
	refused(t, small(t, 100_000), jetlog.Config{}, "set max_payload")
}

func TestSeveralProcessesMayOpenAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	var all sync.WaitGroup
	for range 8 {
		nc := natstest.Connect(t, s)
		all.Go(func() {
			if _, err := jetlog.Open(t.Context(), nc, jetlog.Config{Partitions: 2, GateDir: s.GateDir()}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
