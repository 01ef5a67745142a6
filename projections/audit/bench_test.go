package audit_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/localpg"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

// benchEvents of a log; a rebuild's log has a million.
const (
	benchEvents   = 100_000
	rebuildEvents = 1_000_000
)

// BenchmarkPlainCopy is the floor by itself: the finished rows of turns and of the ledger, encoded beforehand, in
// one COPY for each of the same indexed tables.
func BenchmarkPlainCopy(b *testing.B) {
	s := newStage(b, load{events: benchEvents, active: 64, batch: 10_000})
	var floor time.Duration
	for b.Loop() {
		floor += s.floor(b)
	}
	b.ReportMetric(float64(b.N*s.rows)/floor.Seconds(), "rows/s")
	b.ReportMetric(float64(s.bytes)/float64(s.rows), "B/row")
}

// BenchmarkAuditApply is a full catch-up from empty tables, in the batches that the wiring asks for.
func BenchmarkAuditApply(b *testing.B) {
	benchmark(b, load{events: benchEvents, active: 64, batch: 10_000})
}

// BenchmarkAuditLive is a projection that keeps up with 64 writers.
func BenchmarkAuditLive(b *testing.B) {
	benchmark(b, load{events: benchEvents, active: 64, batch: 500})
}

// BenchmarkAuditLiveLate is the same where so many sessions are active that every turn is answered in a later batch
// than it was opened in, as with a model that takes its time.
func BenchmarkAuditLiveLate(b *testing.B) {
	benchmark(b, load{events: benchEvents, active: 2000, batch: 500})
}

// BenchmarkAuditCatchUp is the same through a runner that reads the events from a real log, as serve does.
func BenchmarkAuditCatchUp(b *testing.B) {
	l := load{events: benchEvents, active: 64, batch: 10_000}
	log := l.append(b)
	s := newStage(b, l)
	var floor, apply time.Duration
	for b.Loop() {
		floor += s.floor(b)
		s.empty(b)
		began := time.Now()
		catchUp(b, log, s.audit, l)
		apply += time.Since(began)
	}
	s.report(b, floor, apply)
}

// BenchmarkAuditRebuild is a new generation filled from a real log of a million events beside the served one,
// swapped in, and the former one dropped: in a process by itself, as serve does it, and in one with the log's server
// in it, as dev does.
func BenchmarkAuditRebuild(b *testing.B) {
	l := load{events: rebuildEvents, active: 64}
	b.Run("serve", func(b *testing.B) { rebuildOfMany(b, l.outside(b)) })
	b.Run("dev", func(b *testing.B) { rebuildOfMany(b, l.append(b)) })
}

func rebuildOfMany(b *testing.B, log *jetlog.Log) {
	s := openStage(b, rebuildEvents)
	s.rebuild(b, log)
	s.take(b)
	var floor, took time.Duration
	for b.Loop() {
		floor += s.floor(b)
		took += s.rebuild(b, log)
	}
	s.report(b, floor, took)
	b.ReportMetric(float64(s.memory)/1024, "MB")
}

func (s *stage) rebuild(b *testing.B, log *jetlog.Log) time.Duration {
	b.Helper()
	debug.FreeOSMemory()
	require.NoError(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the peak begins anew: proc(5)
	began := time.Now()
	r := must.Get(rebuild.Begin(b.Context(), log, s.audit, s.audit, rebuild.Config{Rules: rules}))(b)
	require.NoError(b, r.Run(b.Context()))
	took := time.Since(began)
	status := must.Get(os.ReadFile("/proc/self/status"))(b)
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	must.Get(fmt.Sscan(peak, &s.memory))(b)
	return took
}

// append writes the log. What the server keeps to tell duplicates by is gone, as it is from a log that was not
// written a minute ago.
func (l load) append(b *testing.B) *jetlog.Log {
	b.Helper()
	srv := natstest.Server(b)
	log := natstest.LogOn(b, srv, 1)
	l.write(b, log)
	forgetDuplicates(b, natstest.Connect(b, srv))
	return log
}

// outside is the same log, in a server of its own.
func (l load) outside(b *testing.B) *jetlog.Log {
	b.Helper()
	dir := b.TempDir()
	srv := natstest.ServerIn(b, dir, embedded.Group)
	l.write(b, natstest.LogOn(b, srv, 1))
	srv.Stop()
	// nothing is written any more: what it acknowledges when does not matter
	return must.Get(jetlog.Open(b.Context(), natstest.Alone(b, dir), jetlog.Config{Partitions: 1}))(b)
}

// write appends each session's events in order, 64 sessions at once.
func (l load) write(b *testing.B, log *jetlog.Log) {
	b.Helper()
	var turn [64]chan events.Fact
	var g errgroup.Group
	for w := range turn {
		turn[w] = make(chan events.Fact, 100)
		g.Go(func() error {
			for f := range turn[w] {
				if _, err := log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{f}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for e := range l.log() {
		turn[events.Bucket(e.Fact.Subject())%64] <- e.Fact
	}
	for _, c := range turn {
		close(c)
	}
	require.NoError(b, g.Wait())
}

func forgetDuplicates(b *testing.B, nc *nats.Conn) {
	b.Helper()
	js := must.Get(jetstream.New(nc))(b)
	stream := must.Get(js.Stream(b.Context(), "TURNS-0"))(b)
	with := stream.CachedInfo().Config
	with.Duplicates = 100 * time.Millisecond
	must.Get(js.UpdateStream(b.Context(), with))(b)
}

// catchUp feeds the projection until it has the whole log.
func catchUp(b *testing.B, log *jetlog.Log, a *audit.Audit, l load) {
	b.Helper()
	r := runner.New(log, a, runner.Config{Rules: rules, Feeding: runner.Feeding{MaxBatch: l.batch}})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	hang.Until(b, func() bool {
		at, err := a.Applied(ctx, 0)
		return err == nil && at.Seq >= uint64(l.events)
	})
	stop()
	require.NoError(b, <-ended)
}

// benchmark reports which part of the floor's speed, measured beside it, is reached.
func benchmark(b *testing.B, l load) {
	s := newStage(b, l)
	var floor, apply time.Duration
	for b.Loop() {
		floor += s.floor(b)
		apply += s.apply(b)
	}
	s.report(b, floor, apply)
}

func (s *stage) report(b *testing.B, floor, apply time.Duration) {
	b.ReportMetric(floor.Seconds()/apply.Seconds(), "x_copy")
	b.ReportMetric(float64(b.N*s.rows)/apply.Seconds(), "rows/s")
	b.ReportMetric(float64(b.N*s.events)/apply.Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}

// load is how a log of so many events was written, and how it is read: so many sessions take turns, in batches of so
// many.
type load struct{ events, active, batch int }

// stage is a PostgreSQL with default durability, the batches of a log, and its finished rows, in files.
type stage struct {
	pool    *pgxpool.Pool
	audit   *audit.Audit
	batches []projections.Batch
	done    string
	events  int
	rows    int
	bytes   int64
	memory  int // KB
}

var finished = []string{"questions", "answers", "event_ledger"}

func newStage(b *testing.B, l load) *stage {
	b.Helper()
	s := openStage(b, l.events)
	s.batches = l.batches(b)
	s.apply(b)
	s.take(b)
	return s
}

func openStage(b *testing.B, events int) *stage {
	b.Helper()
	srv := must.Get(localpg.Start(b.Context(), localpg.Config{DataDir: b.TempDir()}))(b)
	b.Cleanup(func() { _ = srv.Stop(context.Background()) })
	s := &stage{events: events, done: b.TempDir()}
	s.pool = must.Get(pgxpool.New(b.Context(), srv.URL()))(b)
	b.Cleanup(s.pool.Close)
	s.audit = must.Get(audit.Open(b.Context(), audit.Config{URL: srv.URL()}))(b)
	b.Cleanup(s.audit.Close)
	return s
}

// take keeps the finished rows in the form in which COPY reads them.
func (s *stage) take(b *testing.B) {
	b.Helper()
	conn := must.Get(s.pool.Acquire(b.Context()))(b)
	defer conn.Release()
	for _, table := range finished {
		out := must.Get(os.Create(filepath.Join(s.done, table)))(b)
		n := must.Get(conn.Conn().PgConn().CopyTo(b.Context(), out, "copy turnledger."+table+" to stdout binary"))(b)
		s.rows += int(n.RowsAffected())
		size := must.Get(out.Seek(0, io.SeekCurrent))(b)
		s.bytes += size
		require.NoError(b, out.Close())
	}
}

func (s *stage) floor(b *testing.B) time.Duration {
	b.Helper()
	s.empty(b)
	conn := must.Get(s.pool.Acquire(b.Context()))(b)
	defer conn.Release()
	began := time.Now()
	for _, table := range finished {
		rows := must.Get(os.Open(filepath.Join(s.done, table)))(b)
		must.Get(conn.Conn().PgConn().CopyFrom(b.Context(), rows, "copy turnledger."+table+" from stdin binary"))(b)
		require.NoError(b, rows.Close())
	}
	return time.Since(began)
}

func (s *stage) apply(b *testing.B) time.Duration {
	b.Helper()
	s.empty(b)
	return s.feed(b)
}

func (s *stage) feed(b *testing.B) time.Duration {
	b.Helper()
	at := must.Get(s.audit.Claim(b.Context(), 0))(b)
	began := time.Now()
	for _, batch := range s.batches {
		batch.From.Epoch, batch.To.Epoch = at.Epoch, at.Epoch
		require.NoError(b, s.audit.Apply(b.Context(), batch))
	}
	return time.Since(began)
}

// empty brings the database back to where both begin.
func (s *stage) empty(b *testing.B) {
	b.Helper()
	var all []string
	for _, table := range names {
		all = append(all, "turnledger."+table)
	}
	for _, sql := range []string{"truncate " + strings.Join(all, ", "), "vacuum", "checkpoint"} {
		must.Get(s.pool.Exec(b.Context(), sql))(b)
	}
}

// batches judges the log.
func (l load) batches(b *testing.B) []projections.Batch {
	b.Helper()
	judge := projections.NewJudge(newJournal(), rules, 0)
	var out []projections.Batch
	var next projections.Batch
	for e := range l.log() {
		judged := must.Get(judge.Judge(b.Context(), e))(b)
		next.Events = append(next.Events, judged)
		if len(next.Events) == l.batch || e.Position.Seq == uint64(l.events) {
			next.To.Seq, next.To.EventID = e.Position.Seq, e.ID
			out = append(out, next)
			next = projections.Batch{From: next.To}
		}
	}
	return out
}

// log is of sessions that are linked at their start and have ten turns of 0.5 to 1 KB.
func (l load) log() iter.Seq[events.Recorded] {
	const steps = 21
	return func(yield func(events.Recorded) bool) {
		for i := range l.events {
			group, rest := i/(steps*l.active), i%(steps*l.active)
			session := group*l.active + rest%l.active
			at := day.Add(time.Duration(i) * 1234567)
			if !yield(recorded(benchFact(session, rest/l.active), uint64(i)+1, at)) {
				return
			}
		}
	}
}

var prose = strings.Repeat("the quick brown fox jumps over the lazy dog and asks what comes next ", 16)

func benchFact(n, step int) events.Fact {
	session, user := fmt.Sprintf("session-%08d", n), n/3
	if step == 0 {
		return linked(session, fmt.Sprintf("user-%06d@example.org", user))
	}
	request := fmt.Sprintf("request-%s-%d", session, (step-1)/2)
	size := 150 + (step*37+user*53)%150
	if step%2 == 1 {
		return &events.TurnStarted{TurnID: id(session, request), SessionID: session, RequestID: request,
			Question: events.Question{
				PipelineName: "support", Consultant: "general", QuestionNeutral: prose[user%60 : user%60+size],
				Metadata: []byte(`{"channel":"web","locale":"en-GB","device_type":"phone"}`),
			}}
	}
	return &events.TurnFinalized{TurnID: id(session, request), SessionID: session,
		Answer: events.Answer{AnswerNeutral: prose[user%60 : user%60+2*size]}}
}
