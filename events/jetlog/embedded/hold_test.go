package embedded_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

const begunAnew = "JetStream is begun anew"

// While the server is held, a folder without a stream, as a restore has one for as long as the server reads the copy,
// is no reason to begin JetStream anew under it; afterwards it is one.
func TestAHeldServerIsNotBegunAnew(t *testing.T) {
	t.Parallel()
	log := &lines{}
	cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, LookEvery: time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))}
	s := start(t, cfg)
	nc, err := s.Connect()
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer stop()
	release := s.Hold()
	folder := filepath.Join(cfg.Dir, "jetstream", "$G", "streams", "BEING-RESTORED")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.Eventually(t, func() bool { return log.count("no turn can be recorded") > 0 }, 10*time.Second, time.Millisecond, "Run sees it")
	require.Never(t, func() bool { return log.count(begunAnew) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	release()
	require.Eventually(t, func() bool { return log.count(begunAnew) > 0 }, 10*time.Second, time.Millisecond)
}
