package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// A copy of a block that a killed server had half written holds what is erased later.
func TestLeftoversOfAKilledServerAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "a [dir]"), Sync: embedded.Group}
	s := start(t, cfg)
	nc, err := s.Connect()
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", []byte("kept"))
	require.NoError(t, err)
	nc.Close()
	s.Stop()
	msgs := filepath.Join(cfg.Dir, "jetstream", "$G", "streams", "S", "msgs")
	for _, name := range []string{"1.blk.tmp", "1.new"} {
		require.NoError(t, os.WriteFile(filepath.Join(msgs, name), []byte("SECRET"), 0o600))
	}
	s = start(t, cfg)
	require.NoFileExists(t, filepath.Join(msgs, "1.blk.tmp"))
	require.NoFileExists(t, filepath.Join(msgs, "1.new"))
	nc, err = s.Connect()
	require.NoError(t, err)
	defer nc.Close()
	js, err = jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "S")
	require.NoError(t, err)
	m, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "kept", string(m.Data))
}
