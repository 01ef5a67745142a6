package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

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
	stream := must.Get(js.Stream(t.Context(), "S"))(t)
	m := must.Get(stream.GetMsg(t.Context(), 1))(t)
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
			stream := must.Get(js.Stream(t.Context(), "S"))(t)
			require.EqualValues(t, 1, stream.CachedInfo().State.Msgs)
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
		ack := must.Get(js.PublishMsg(t.Context(), m))(t)
		return ack.Sequence
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
			m := must.Get(stream.GetMsg(t.Context(), seq))(t)
			require.Equal(t, text, string(m.Data))
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
