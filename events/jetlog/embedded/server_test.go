package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s := must.Get(embedded.Start(t.Context(), cfg))(t)
	t.Cleanup(s.Stop)
	return s
}

func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "made", "on", "the", "way"), Sync: embedded.Group}
	s := start(t, cfg)
	require.NoError(t, s.Healthy())
	_, err := embedded.Start(t.Context(), cfg)
	require.ErrorIs(t, err, embedded.ErrLocked)
	require.ErrorContains(t, err, cfg.Dir)
	require.ErrorContains(t, err, "TURNLEDGER_DATA_DIR")
	require.NoError(t, s.Healthy(), "the first goes on")
	s.Stop()
	s.Stop()
	require.Error(t, s.Healthy())
	start(t, cfg)
}

func TestAddressesThatMayNotBeUsed(t *testing.T) {
	t.Parallel()
	for listen, says := range map[string]string{
		"0.0.0.0:4222":     "credentials",
		":4222":            "credentials",
		"[::]:4222":        "credentials",
		"10.1.2.3:4222":    "credentials",
		"example.com:4222": "credentials",
		"127.0.0.1":        "host:port",
		"127.0.0.1:nats":   "port",
		"127.0.0.1:70000":  "port",
		"127.0.0.1:-2":     "port",
	} {
		for _, user := range []string{"", "u"} {
			dir := t.TempDir()
			_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: embedded.Group, Listen: listen,
				User: user})
			require.ErrorIs(t, err, embedded.ErrListen, listen)
			require.ErrorContains(t, err, says, listen)
		}
	}
}

func TestListenerAsksForCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Listen: "0.0.0.0:0", User: "u",
		Password: "p"})
	_, port := must.Two(net.SplitHostPort(s.URL()[len("nats://"):]))(t)
	address := "nats://127.0.0.1:" + port
	must.Fail(nats.Connect(address))(t, nats.ErrAuthorization)
	must.Fail(nats.Connect(address, nats.UserInfo("u", "wrong")))(t, nats.ErrAuthorization)
	nc := must.Get(nats.Connect(address, nats.UserInfo("u", "p")))(t)
	nc.Close()
	nc = must.Get(s.Connect())(t)
	nc.Close()
	require.NotContains(t, s.URL(), "p@")
}

func TestTakenPortFailsAtOnce(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: embedded.Group, Listen: l.Addr().String()})
	require.ErrorIs(t, err, embedded.ErrListen)
	start(t, embedded.Config{Dir: dir, Sync: embedded.Group}) // the directory is free again
}

func TestNoListenerUnlessAsked(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Always})
	require.Empty(t, s.URL())
	require.Empty(t, s.GateDir())
}

func TestStartThatCantBe(t *testing.T) {
	t.Parallel()
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Sync: "sometimes"})
	require.ErrorContains(t, err, "group, always or none")
	_, err = embedded.Start(t.Context(), embedded.Config{Sync: embedded.Group})
	require.ErrorContains(t, err, "store directory")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	must.Fail(embedded.Start(ctx, embedded.Config{Dir: dir, Sync: embedded.Group}))(t, context.Canceled)
	start(t, embedded.Config{Dir: dir, Sync: embedded.Group})
}

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

// A copy of a block that a killed server had half written holds what is erased later.
func TestLeftoversOfAKilledServerAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "a [dir]"), Sync: embedded.Group}
	s := start(t, cfg)
	nc := must.Get(s.Connect())(t)
	js := must.Get(jetstream.New(nc))(t)
	must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
	must.Get(js.Publish(t.Context(), "s", []byte("kept")))(t)
	nc.Close()
	s.Stop()
	msgs := filepath.Join(cfg.Dir, "jetstream", "$G", "streams", "S", "msgs")
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "turnledger.running"), nil, 0o600), "as if it was killed")
	for _, name := range []string{"1.blk.tmp", "1.new"} {
		require.NoError(t, os.WriteFile(filepath.Join(msgs, name), []byte("SECRET"), 0o600))
	}
	s = start(t, cfg)
	require.NoFileExists(t, filepath.Join(msgs, "1.blk.tmp"))
	require.NoFileExists(t, filepath.Join(msgs, "1.new"))
	nc = must.Get(s.Connect())(t)
	defer nc.Close()
	js = must.Get(jetstream.New(nc))(t)
	m := must.Get(must.Get(js.Stream(t.Context(), "S"))(t).GetMsg(t.Context(), 1))(t)
	require.Equal(t, "kept", string(m.Data))
}

// A server that is killed while it changes a stream leaves what the stream is without its sum, and does not open it any
// more, with all its events. The mark of a restore that was being deleted goes.
func TestAStreamThatWasBeingChangedIsOpened(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(sum string) error{
		"no sum":     os.Remove,
		"of another": func(sum string) error { return os.WriteFile(sum, []byte("0123456789abcdef"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group}
			s := start(t, cfg)
			nc := must.Get(s.Connect())(t)
			js := must.Get(jetstream.New(nc))(t)
			must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))(t)
			must.Get(js.Publish(t.Context(), "s", []byte("kept")))(t)
			nc.Close()
			s.Stop()
			streams := filepath.Join(cfg.Dir, "jetstream", "$G", "streams")
			require.NoError(t, damage(filepath.Join(streams, "S", "meta.sum")))
			require.NoError(t, os.Mkdir(filepath.Join(streams, layout.RestoringStream), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "turnledger.running"), nil, 0o600),
				"as if it was killed")

			s = start(t, cfg)
			require.NoError(t, s.Healthy())
			nc = must.Get(s.Connect())(t)
			defer nc.Close()
			js = must.Get(jetstream.New(nc))(t)
			require.EqualValues(t, 1, must.Get(js.Stream(t.Context(), "S"))(t).CachedInfo().State.Msgs)
		})
	}
}

// A server that is killed in an erasure forgets the event before it overwrites it. A plain
// delete leaves the same.
func TestWhatAKilledServerForgotIsOverwritten(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group}
	publish := func(js jetstream.JetStream, subject, text string) uint64 {
		m := nats.NewMsg(subject)
		m.Data = []byte(text)
		m.Header.Set("a", "header")
		return must.Get(js.PublishMsg(t.Context(), m))(t).Sequence
	}
	open := func() (*embedded.Server, *nats.Conn, jetstream.JetStream, jetstream.Stream) {
		s := start(t, cfg)
		nc := must.Get(s.Connect())(t)
		js := must.Get(jetstream.New(nc))(t)
		stream := must.Get(js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S",
			Subjects: []string{"s.*"}}))(t)
		return s, nc, js, stream
	}
	s, nc, js, stream := open()
	for i, text := range []string{"SECRET first", "KEPT one", "SECRET in the middle", "KEPT two", "SECRET last"} {
		require.EqualValues(t, i+1, publish(js, "s.a", text))
	}
	for _, seq := range []uint64{1, 3, 5} {
		require.NoError(t, stream.DeleteMsg(t.Context(), seq))
	}
	nc.Close()
	s.Stop()
	require.NoFileExists(t, filepath.Join(cfg.Dir, "turnledger.running"))
	block := filepath.Join(cfg.Dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk")
	raw := must.Get(os.ReadFile(block))(t)
	require.Contains(t, string(raw), "SECRET", "the search finds what there is")
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "turnledger.running"), nil, 0o600), "as if it was killed")

	for range 2 {
		s, nc, _, stream = open()
		raw = must.Get(os.ReadFile(block))(t)
		require.NotContains(t, string(raw), "SECRET")
		for seq, text := range map[uint64]string{2: "KEPT one", 4: "KEPT two"} {
			require.Equal(t, text, string(must.Get(stream.GetMsg(t.Context(), seq))(t).Data))
		}
		for _, seq := range []uint64{1, 3, 5} {
			must.Fail(stream.GetMsg(t.Context(), seq))(t, jetstream.ErrMsgNotFound)
		}
		info := must.Get(stream.Info(t.Context()))(t)
		require.EqualValues(t, 2, info.State.Msgs)
		require.EqualValues(t, 5, info.State.LastSeq, "sequences stay taken")
		nc.Close()
		s.Stop()
	}
	_, nc, js, _ = open()
	defer nc.Close()
	require.EqualValues(t, 6, publish(js, "s.a", "KEPT three"))
}
