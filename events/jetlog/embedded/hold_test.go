package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

const begunAnew = "JetStream is begun anew"

func times(log *printed.Buffer, text string) int { return strings.Count(log.String(), text) }

// watched runs a server that is looked at each millisecond, with what it logs.
func watched(t *testing.T) (s *embedded.Server, js jetstream.JetStream, streams string, log *printed.Buffer) {
	t.Helper()
	log = &printed.Buffer{}
	cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, LookEvery: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil))}
	s = start(t, cfg)
	nc := must.Get(s.Connect())(t)
	t.Cleanup(nc.Close)
	js = must.Get(jetstream.New(nc))(t)
	must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return s, js, filepath.Join(cfg.Dir, "jetstream", "$G", "streams"), log
}

// While the server is held, a folder without a stream, as a restore has one for as long as the server reads the copy,
// is no reason to begin JetStream anew under it; afterwards it is one.
func TestAHeldServerIsNotBegunAnew(t *testing.T) {
	t.Parallel()
	s, _, streams, log := watched(t)
	release := s.Hold()
	require.NoError(t, os.Mkdir(filepath.Join(streams, "BEING-RESTORED"), 0o700))
	hang.Until(t, func() bool { return times(log, "no turn can be recorded") > 0 }, "Run sees it")
	require.Never(t, func() bool { return times(log, begunAnew) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	release()
	hang.Until(t, func() bool { return times(log, begunAnew) > 0 })
}

// Another process restores over the listener, and can't hold the server: the stream that stands as long as it restores
// does.
func TestAServerInWhichAnotherProcessRestoresIsNotBegunAnew(t *testing.T) {
	t.Parallel()
	_, js, streams, log := watched(t)
	must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: layout.RestoringStream}))(t)
	require.NoError(t, os.Mkdir(filepath.Join(streams, "BEING-RESTORED"), 0o700))
	hang.Until(t, func() bool { return times(log, "no turn can be recorded") > 0 }, "Run sees it")
	require.Never(t, func() bool { return times(log, begunAnew) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, js.DeleteStream(t.Context(), layout.RestoringStream))
	hang.Until(t, func() bool { return times(log, begunAnew) > 0 })
}

// Streams that are made and deleted one after the other have a folder without a stream for a moment each: that two
// looks see two of them says nothing of either.
func TestTwoLooksThatSeeTwoStreamsAreNoReasonToBeginAnew(t *testing.T) {
	t.Parallel()
	log := &printed.Buffer{}
	s := start(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Logger: slog.New(slog.NewTextHandler(log,
		nil))})
	look := s.Watch()
	streams := filepath.Join(s.GateDir(), "jetstream", "$G", "streams")
	for i := range 4 {
		folder := filepath.Join(streams, fmt.Sprint("S", i))
		require.NoError(t, os.MkdirAll(folder, 0o700))
		look()
		require.NoError(t, os.Remove(folder))
	}
	require.Zero(t, times(log, "no turn can be recorded")+times(log, begunAnew))
	require.NoError(t, os.Mkdir(filepath.Join(streams, "S"), 0o700))
	look()
	look()
	require.Equal(t, 1, times(log, begunAnew))
}
