//go:build linux

package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// processorTime returns the processor time that a process has taken.
func processorTime(b *testing.B, p *stack.Process) time.Duration {
	b.Helper()
	raw := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid)))(b)
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime, of proc(5), in hundredths of a second
		n := must.Get(strconv.Atoi(f))(b)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkClusterContexts builds contexts of sessions of 50 turns on three NATS nodes and
// a Redis, 32 at a time, at one context process and then at two, as many as they can and then
// 1,000 a second. A second process adds throughput only where it has cores of its own, so the cost of a request is
// measured as the processor time of the context processes. Asked for: it must not grow. (On a machine whose threads are
// all busy it seems larger.)
func BenchmarkClusterContexts(b *testing.B) {
	const sessions, during = 20, 15 * time.Second
	nodes := natstest.StartNodes(b, natstest.NodesOptions{})
	env := []string{
		"TURNLEDGER_NATS_URL=" + nodes.URL(), "TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_REPLICAS=3",
		"TURNLEDGER_PARTITIONS=8",
		"TURNLEDGER_REDIS_URL=" + redistest.Start(b).URL(),
	}
	writer := stack.Start(b, env, "serve", "--roles", "api,recent")
	for s := range sessions {
		for i := range 50 {
			writer.RecordTurn(b, fmt.Sprint("s", s), fmt.Sprint(i), strings.Repeat("question ", 30),
				strings.Repeat("answer ", 30))
		}
	}
	writer.WaitCaughtUp(b, "recent")
	var readers []*stack.Process
	for range 2 {
		readers = append(readers, stack.Start(b, env, "serve", "--roles", "context"))
	}
	var most [3]float64
	run := func(n int, pace rate.Limit) (perSecond float64, each time.Duration) {
		before, began := totalProcessorTime(b, readers), time.Now()
		requests := contextsAt(b, readers[:n], sessions, during, pace)
		each = (totalProcessorTime(b, readers) - before) / time.Duration(requests)
		perSecond = float64(requests) / time.Since(began).Seconds()
		b.Logf("%d processes: %.0f requests/s, %s of their processor time each", n, perSecond, each)
		return perSecond, each
	}
	for _, n := range []int{1, 2, 1, 2} {
		var each time.Duration
		most[n], each = run(n, rate.Inf)
		b.ReportMetric(most[n], fmt.Sprintf("req/s-with-%d", n))
		b.ReportMetric(float64(each.Microseconds()), fmt.Sprintf("CPU-µs/req-with-%d", n))
	}
	for _, n := range []int{1, 2, 1, 2} {
		_, each := run(n, 1000)
		b.ReportMetric(float64(each.Microseconds()), fmt.Sprintf("CPU-µs/req-paced-with-%d", n))
	}
	b.ReportMetric(most[2]/most[1]-1, "x_added")
	b.ReportMetric(0, "ns/op")
}

func totalProcessorTime(b *testing.B, of []*stack.Process) (sum time.Duration) {
	for _, p := range of {
		sum += processorTime(b, p)
	}
	return sum
}

// contextsAt builds contexts for a time, so many a second at most, and counts them.
func contextsAt(b *testing.B, at []*stack.Process, sessions int, during time.Duration, pace rate.Limit) int64 {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	for _, p := range at {
		p.Client = client
	}
	limit := rate.NewLimiter(pace, 1)
	var n atomic.Int64
	var all sync.WaitGroup
	for end, w := time.Now().Add(during), 0; w < 32; w++ {
		all.Go(func() {
			for i := w; limit.Wait(b.Context()) == nil && time.Now().Before(end); i++ {
				id := fmt.Sprint("s", rand.IntN(sessions))
				status, out, err := at[i%len(at)].Call(b.Context(), http.MethodPost, stack.SessionPath(id)+"/context",
					map[string]any{"message": "now"})
				if err != nil || status != http.StatusOK || out["history_messages"] != 20.0 {
					b.Errorf("%d %v: %v", status, out["code"], err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load()
}
