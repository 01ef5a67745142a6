package systemtest_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// BenchmarkCapacity measures what docs/operations.md tells of room: a server of its own is
// given sessions of five turns of 1 KB, and is killed (kill -9) and started again. Memory
// is that of the whole process, so that it holds the log's index and the view.
func BenchmarkCapacity(b *testing.B) {
	const sessions, turns = 20_000, 5
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 64
	stack.Binary(b) // is built before anything is timed
	for b.Loop() {
		dir := stack.DataDir(b)
		began := time.Now()
		p := stack.Start(b, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		empty, before := time.Since(began), p.ResidentMemory(b)
		recordSessions(b, p, sessions, turns)
		held, disk := p.ResidentMemory(b)-before, sizeOf(b, filepath.Join(dir, "nats"))
		p.Kill(b)
		began = time.Now()
		p = stack.Start(b, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		again := time.Since(began)
		fresh := p.ResidentMemory(b) - before
		require.EqualValues(b, turns, p.TurnCount(b, fmt.Sprint("s", sessions-1)))
		p.Kill(b)
		b.ReportMetric(float64(held)/sessions, "B/session")
		b.ReportMetric(float64(fresh)/sessions, "B/session-restarted")
		b.ReportMetric(float64(disk)/(sessions*turns), "disk-B/turn")
		b.ReportMetric((again-empty).Seconds()*float64(1<<30)/float64(disk), "s/GB-recovered")
		b.ReportMetric(empty.Seconds(), "s-empty-start")
		b.ReportMetric(0, "ns/op")
	}
}

// recordSessions records sessions of so many turns, 64 at once.
func recordSessions(b *testing.B, p *stack.Process, sessions, turns int) {
	b.Helper()
	question, answer := strings.Repeat("q", 200), strings.Repeat("a", 800)
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(64)
	for s := range sessions {
		g.Go(func() error {
			id := fmt.Sprint("s", s)
			for n := range turns {
				request := fmt.Sprint("r", n)
				turn := events.TurnID(id, request).String()
				for _, c := range []struct {
					path string
					body map[string]any
				}{
					{"/turns", map[string]any{"request_id": request, "question_neutral": question}},
					{"/turns/" + turn + "/finalize", map[string]any{"answer_neutral": answer}},
				} {
					if status, out, err := p.Call(ctx, http.MethodPost, stack.SessionPath(id)+c.path,
						c.body); err != nil || status >= http.StatusMultipleChoices {
						return fmt.Errorf("%d %v: %w", status, out["code"], err)
					}
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
}

// sizeOf is what all files of a folder hold, in bytes.
func sizeOf(b *testing.B, dir string) (n int64) {
	b.Helper()
	require.NoError(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}
