package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// row holds the results of one system in one workload with one number of connections, one result for each run.
type row struct {
	workload string
	conns    int
	system   string
	results  []result
}

// comparison is one run of the program.
type comparison struct {
	settings
	systems []system
	rows    []*row
}

func compare(ctx context.Context, s settings) (err error) {
	if s.binary, err = filepath.Abs(s.binary); err != nil {
		return err
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "compare"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(s.dir) }()
	}
	c := &comparison{settings: s}
	if c.wants(c.workloads, "counted") {
		return c.counted(ctx)
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.start(ctx); err != nil {
		return err
	}
	for run := range s.runs {
		fmt.Fprintf(os.Stderr, "run %d of %d\n", run+1, s.runs)
		if err := c.once(ctx, run); err != nil {
			return err
		}
	}
	c.print()
	return nil
}

// ids is where a system notes the sessions that it has given an identity; nil if none gets one.
func (c *comparison) ids() *sync.Map {
	if !c.settings.linked {
		return nil
	}
	return &sync.Map{}
}

func (c *comparison) start(ctx context.Context) error {
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return err
	}
	for name, s := range map[string]system{
		"dev":   &turnledger{binary: c.binary, linked: c.ids()},
		"serve": &turnledger{binary: c.binary, outside: true, linked: c.ids()},
		"pgx":   &postgres{}, "redis": &redis{}, "nats": &bareNATS{},
	} {
		if !c.wants(c.settings.systems, name) {
			continue
		}
		dir := filepath.Join(c.dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := s.start(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		c.systems = append(c.systems, s)
	}
	slices.SortFunc(c.systems, func(a, b system) int { return -strings.Compare(a.name(), b.name()) })
	return nil
}

func (c *comparison) stop() (err error) {
	for _, s := range c.systems {
		err = errors.Join(err, s.stop())
	}
	return err
}

// once runs each workload on each system, one after the other.
func (c *comparison) once(ctx context.Context, run int) error {
	conns, err := numbers(c.conns)
	if err != nil {
		return err
	}
	tag := "r" + strconv.Itoa(run)
	for _, w := range []workload{twoCalls, oneCall, batches, reads} {
		if !c.wants(c.workloads, string(w[:1])) {
			continue
		}
		for _, n := range conns {
			if err := c.each(ctx, w, n, func(client, turn int) string {
				if w == reads {
					return "read-" + strconv.Itoa((client*31+turn)%100)
				}
				return fmt.Sprintf("%s-%d-%d-%d", tag+strings.ReplaceAll(string(w), " ", ""), n, client,
					turn/turnsOfSession)
			}); err != nil {
				return err
			}
		}
	}
	if c.wants(c.workloads, "L") {
		if err := c.each(ctx, long, 16, func(client, _ int) string {
			return "long-" +
				strconv.Itoa(client)
		}); err != nil {
			return err
		}
	}
	if c.wants(c.workloads, "import") && run == 0 {
		return c.imports(ctx)
	}
	return nil
}

func numbers(list string) (out []int, err error) {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// each measures one workload on every system that has a client for it.
func (c *comparison) each(ctx context.Context, w workload, n int, session func(client, turn int) string) error {
	for _, s := range c.systems {
		probe, ok := s.client(ctx, w)
		if !ok {
			continue
		}
		probe.close()
		r := c.row(string(w), n, s.name())
		if err := c.filled(ctx, s, w, len(r.results) == 0); err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		clients := make([]client, n)
		for i := range clients {
			clients[i], _ = s.client(ctx, w)
		}
		got, err := job{clients: clients, session: session, duration: c.duration, warm: c.warm}.run(ctx, s)
		if err != nil {
			return err
		}
		r.results = append(r.results, got)
		fmt.Fprintf(os.Stderr, "%-18s %3d  %-18s %9.0f/s  p50 %-9v p99 %-9v %v of processor each\n",
			w, n, s.name(), got.perSecond, got.p50.Round(time.Microsecond), got.p99.Round(time.Microsecond),
			got.perTurn.Round(time.Microsecond))
	}
	return ctx.Err()
}

// filled makes the sessions that a workload reads, or the long sessions that it writes to. It makes them once.
func (c *comparison) filled(ctx context.Context, s system, w workload, first bool) error {
	done := slices.ContainsFunc(c.rows, func(r *row) bool {
		return r.workload == string(w) && r.system == s.name() && len(r.results) > 0
	})
	if !first || done {
		return nil
	}
	name, sessions, turns := "", 0, 0
	switch w {
	case reads:
		name, sessions, turns = "read-", 100, readMessages/2
	case long:
		name, sessions, turns = "long-", 16, longSession
	case twoCalls, oneCall, batches:
		return nil
	}
	for i := range sessions {
		if err := s.fill(ctx, name+strconv.Itoa(i), turns); err != nil {
			return err
		}
	}
	return s.settle(ctx)
}

func (c *comparison) imports(ctx context.Context) error {
	for _, s := range c.systems {
		before := s.processor()
		took, err := s.imported(ctx, c.settings.imports)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
		got := result{
			perSecond: float64(c.settings.imports) / took.Seconds(),
			perTurn:   (s.processor() - before) / time.Duration(c.settings.imports),
		}
		got.heap, got.highest = s.memory(ctx)
		r := c.row("import of "+strconv.Itoa(c.settings.imports), 0, s.name())
		r.results = append(r.results, got)
		fmt.Fprintf(os.Stderr, "import %s: %.0f/s\n", s.name(), got.perSecond)
		if t, ok := s.(*turnledger); ok {
			if err := t.again(ctx); err != nil {
				return err
			}
			var after result
			after.heap, after.highest = t.memory(ctx)
			r := c.row("after a restart", 0, s.name())
			r.results = append(r.results, after)
		}
	}
	return nil
}

func (c *comparison) row(workload string, conns int, system string) *row {
	for _, r := range c.rows {
		if r.workload == workload && r.conns == conns && r.system == system {
			return r
		}
	}
	r := &row{workload: workload, conns: conns, system: system}
	c.rows = append(c.rows, r)
	return r
}

// print writes a table of medians. The ratios are to the bare floors of the workload.
func (c *comparison) print() {
	fmt.Println("| workload | connections | system | per second (least–most) | to pgx | to Redis | p50 | p99 | " +
		"p99 / p50 | processor each | lag | live heap | peak |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range c.rows {
		m := r.median()
		each := make([]float64, len(r.results))
		for i, x := range r.results {
			each[i] = x.perSecond
		}
		fmt.Printf("| %s | %s | %s | %.0f (%.0f–%.0f) | %s | %s | %v | %v | %s | %v | %.1f s | %s | %s |\n",
			r.workload, orDash(r.conns), r.system, m.perSecond, slices.Min(each), slices.Max(each),
			c.ratio(r, "bare pgx"), c.ratio(r, "bare Redis list"), m.p50.Round(time.Microsecond),
			m.p99.Round(time.Microsecond), tail(m), m.perTurn.Round(time.Microsecond), m.lag,
			mega(m.heap), mega(m.highest))
	}
}

// ratio compares a row with a floor's row of the same workload. All ways to write a turn are compared with the floor of
// two calls.
func (c *comparison) ratio(r *row, floor string) string {
	kind := r.workload
	if strings.HasPrefix(kind, "W") {
		kind = string(twoCalls)
	}
	for _, f := range c.rows {
		same := f.conns == r.conns || r.workload == string(batches) && f.conns == 64
		if f.system == floor && f.workload == kind && same {
			return fmt.Sprintf("%.2f", r.median().perSecond/f.median().perSecond)
		}
	}
	return "–"
}

func (r *row) median() result {
	by := slices.Clone(r.results)
	slices.SortFunc(by, func(a, b result) int { return int(a.perSecond - b.perSecond) })
	return by[len(by)/2]
}

// tail returns how much longer the slow calls of a run take than most.
func tail(r result) string {
	if r.p50 == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", r.p99.Seconds()/r.p50.Seconds())
}

func orDash(n int) string {
	if n == 0 {
		return "–"
	}
	return strconv.Itoa(n)
}

func mega(n int64) string {
	if n == 0 {
		return "–"
	}
	return strconv.FormatInt(n>>20, 10) + " MB"
}

// ready repeats ask until it returns no error, for up to ten minutes.
func ready(ctx context.Context, ask func() error) error {
	every := backoff.WithBackOff(backoff.NewConstantBackOff(50 * time.Millisecond))
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, ask() }, every,
		backoff.WithMaxElapsedTime(10*time.Minute))
	return err
}

func unixDialer(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return d.DialContext(ctx, "unix", path)
}
