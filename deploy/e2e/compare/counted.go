package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// counted records a fixed number of turns in each way, and reads as many contexts, on a `dev` of its own with profiles.
// Its figures are counts of the Go runtime and processor time, which a busy machine disturbs little: what is live after
// a collection (beyond what a fresh server holds), what a turn allocates, and what it costs.
func (c *comparison) counted(ctx context.Context) (err error) {
	pprof, err := freePort()
	if err != nil {
		return err
	}
	dir := c.dir + "/counted"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := &turnledger{binary: c.binary, env: []string{"TURNLEDGER_PPROF=" + pprof}}
	if err := t.start(ctx, dir); err != nil {
		return err
	}
	defer func() {
		if stopped := t.stop(); err == nil {
			err = stopped
		}
	}()
	m := &meter{turnledger: t, url: "http://" + pprof + "/debug/pprof/"}
	fresh, err := m.read(ctx)
	if err != nil {
		return err
	}
	fmt.Println("| of all turns so far | turns | live heap | times the texts | objects a turn | a turn of these: " +
		"allocations | bytes allocated | processor of Go | of its children | peak |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	total := 0
	for _, w := range []workload{batches, twoCalls, oneCall, reads} {
		n := c.turns
		if w == reads {
			if err := c.filled(ctx, t, w, true); err != nil {
				return err
			}
			total += 100 * readMessages / 2
		}
		before, err := m.read(ctx)
		if err != nil {
			return err
		}
		profiled := m.profile(ctx, c.profiles, w)
		if n, err = t.times(ctx, w, n); err != nil {
			return err
		}
		if err := profiled(); err != nil {
			return err
		}
		if err := t.settle(ctx); err != nil {
			return err
		}
		after, err := m.read(ctx)
		if err != nil {
			return err
		}
		if w != reads {
			total += n
		}
		each := func(f func(usage) int64) int64 { return (f(after) - f(before)) / int64(n) }
		live, texts := after.live-fresh.live, int64(total*(len(question())+len(answer())))
		fmt.Printf("| %s | %d | %d MB | %.2f | %.1f | %d | %d | %v | %v | %d MB |\n", w, total, live>>20,
			float64(live)/float64(texts), float64(after.objects-fresh.objects)/float64(total),
			each(func(u usage) int64 { return u.allocations }), each(func(u usage) int64 { return u.allocated }),
			time.Duration(each(func(u usage) int64 { return int64(u.own) })).Round(time.Microsecond),
			time.Duration(each(func(u usage) int64 { return int64(u.whole - u.own) })).Round(time.Microsecond),
			peak(t.process.cmd.Process.Pid)>>20)
	}
	return nil
}

// times does a workload at least n times, by 64 clients in sessions of 20 turns, and returns how often it was done.
func (t *turnledger) times(ctx context.Context, w workload, n int) (int, error) {
	var next, done atomic.Int64
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range 64 {
		c, _ := t.client(ctx, w)
		group.Go(func() {
			for turn := 0; failed.Load() == nil && done.Load() < int64(n); turn++ {
				session := strings.ReplaceAll(fmt.Sprint(w, i, "-", turn/turnsOfSession), " ", "")
				if w == reads {
					session = "read-" + strconv.FormatInt(next.Add(1)%100, 10)
				}
				k, err := c.do(ctx, session)
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				done.Add(int64(k))
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return int(done.Load()), nil
}

// meter reads what a process uses.
type meter struct {
	*turnledger
	url string
}

// usage is what a process and its children use: counts of the Go runtime, and processor time.
type usage struct {
	live, objects, allocations, allocated int64
	own, whole                            time.Duration
}

func (m *meter) read(ctx context.Context) (u usage, err error) {
	u.own, u.whole = ticks(m.process.cmd.Process.Pid, 2), m.processor()
	for range 2 { // what finalizers and pools hold goes with the second collection
		u.live, u.objects, u.allocations, u.allocated, err = m.heap(ctx)
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

// heap returns what runtime.MemStats says after a collection.
func (m *meter) heap(ctx context.Context) (live, objects, allocations, allocated int64, err error) {
	text, err := m.get(ctx, "heap?gc=1&debug=1")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "# ")), " = ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "HeapAlloc":
			live = n
		case "HeapObjects":
			objects = n
		case "Mallocs":
			allocations = n
		case "TotalAlloc":
			allocated = n
		}
	}
	return live, objects, allocations, allocated, err
}

// profile takes a processor profile of up to ten seconds, and of the heap when the function is called that it returns.
func (m *meter) profile(ctx context.Context, folder string, w workload) func() error {
	if folder == "" {
		return func() error { return nil }
	}
	write := func(what, query string) error {
		got, err := m.get(ctx, query)
		if err != nil {
			return err
		}
		return os.WriteFile(folder+"/"+strings.ReplaceAll(string(w), " ", "-")+"."+what, got, 0o644)
	}
	taken := make(chan error, 1)
	go func() { taken <- write("cpu", "profile?seconds=10") }()
	return func() error {
		if err := <-taken; err != nil {
			return err
		}
		if err := write("allocs", "allocs"); err != nil {
			return err
		}
		return write("heap", "heap?gc=1")
	}
}

func (m *meter) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}
