//go:build linux

package cutfs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
)

// serve runs a private server on the disk and returns its JetStream; both end with the test.
func serve(t *testing.T, d *disk, syncAlways bool) jetstream.JetStream {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		StoreDir: d.dir, JetStream: true, DontListen: true, NoSigs: true, NoLog: true,
		SyncAlways: syncAlways, SyncInterval: time.Hour,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func publish(t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		ack, err := js.Publish(t.Context(), "log.x", fmt.Appendf(nil, "message %d", i))
		require.NoError(t, err)
		require.EqualValues(t, i, ack.Sequence)
	}
}

func TestServerWithSyncAlwaysKeepsEverything(t *testing.T) {
	t.Parallel()
	// Not strict POSIX: SyncAlways fsyncs the block files, but not the directories they are new in.
	d := mount(t, cutfs.Options{FsyncFileMakesNewNameDurable: true})
	js := serve(t, d, true)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log.>"}})
	require.NoError(t, err)
	publish(t, js, 1, 200)
	for seed := range int64(5) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			js := serve(t, remount(t, d.Cut(seed)), true)
			stream, err := js.Stream(t.Context(), "LOG")
			require.NoError(t, err)
			for i := 1; i <= 200; i++ {
				msg, err := stream.GetMsg(t.Context(), uint64(i))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("message %d", i), string(msg.Data))
			}
			publish(t, js, 201, 210)
		})
	}
}

func TestServerWithoutSyncLosesMessages(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{FsyncFileMakesNewNameDurable: true})
	js := serve(t, d, false)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log.>"}})
	require.NoError(t, err)
	publish(t, js, 1, 200)
	for seed := range int64(20) {
		stream, err := serve(t, remount(t, d.Cut(seed)), false).Stream(t.Context(), "LOG")
		if err != nil || stream.CachedInfo().State.LastSeq < 200 {
			return
		}
	}
	t.Fatal("no loss in 20 cuts: the disk forgets nothing")
}
