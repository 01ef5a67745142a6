package audit_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
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
	_, peak, _ := strings.Cut(string(must.Get(os.ReadFile("/proc/self/status"))(b)), "VmHWM:")
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
	with := must.Get(js.Stream(b.Context(), "TURNS-0"))(b).CachedInfo().Config
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
		s.bytes += must.Get(out.Seek(0, io.SeekCurrent))(b)
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
		next.Events = append(next.Events, must.Get(judge.Judge(b.Context(), e))(b))
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
	return turntest.Finalized(session, request, prose[user%60:user%60+2*size])
}

// The turns of BenchmarkSearch, those of the identity ada among them, and those that are written after the indexes are
// made, so that their entries lie where new entries do.
const (
	searchedTurns = 1_000_000
	adasTurns     = 10_000
	newestTurns   = 20_000
)

// BenchmarkSearch searches a million turns of 1,000 identities, and 10,000 turns of one: for words that are in most
// turns, in some, in three and in none. The floor is what any search has to read: the texts of 200 turns.
func BenchmarkSearch(b *testing.B) {
	a := searched(b)
	queries := []string{"w0", "w0 w1", "w7 w9", `"w1 w0"`, "every20", "every100", "every1000", "w5 every100",
		"every100 -w0", "three", "none"}
	for _, identity := range []string{"ada", ""} {
		for _, query := range queries {
			b.Run(cmp.Or(identity, "all")+"/"+query, func(b *testing.B) {
				f := projections.SearchFilter{Query: query, IdentityID: identity}
				var took, floor []time.Duration
				for b.Loop() {
					began := time.Now()
					a.read200(b, identity)
					read := time.Now()
					must.Three(a.Search(b.Context(), f, 10, ""))(b)
					took, floor = append(took, time.Since(read)), append(floor, read.Sub(began))
				}
				slices.Sort(floor)
				b.ReportMetric(percentiles(b, took).Seconds()/floor[len(floor)/2].Seconds(), "x_floor")
			})
		}
	}
}

// percentiles reports half and 99 % of the times, and returns the median.
func percentiles(b *testing.B, took []time.Duration) time.Duration {
	slices.Sort(took)
	half := took[len(took)/2]
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(half.Microseconds())/1000, "p50-ms")
	b.ReportMetric(0, "ns/op")
	return half
}

func (a *tables) read200(b *testing.B, identity string) {
	b.Helper()
	found, _ := a.pool.Query(b.Context(), `select question_neutral, coalesce(answer_neutral, '')
		from turnledger.questions q left join turnledger.answers using (turn_id)
		where $1 = '' or identity_id = $1 order by q.created_at desc limit 200`, identity)
	var question, answer string
	must.Get(pgx.ForEachRow(found, []any{&question, &answer}, func() error { return nil }))(b)
}

// searched fills tables. The indexes of the terms are made when most turns are there, as a restore would, which takes a
// fraction of the time.
func searched(b *testing.B) *tables {
	b.Helper()
	url := pg.Start(b).URL()
	opened := must.Get(audit.Open(b.Context(), audit.Config{URL: url, Rules: rules}))(b)
	b.Cleanup(opened.Close)
	a := connected(b, opened, url, "turnledger", nil)
	a.exec("drop index turnledger.questions_terms; drop index turnledger.answers_terms")
	at := must.Get(a.Claim(b.Context(), 0))(b)
	judge := projections.NewJudge(newJournal(), rules, 0)
	next, seq := projections.Batch{From: at}, uint64(0)
	apply := func() {
		next.To = at
		next.To.Seq, next.To.EventID = seq, next.Events[len(next.Events)-1].ID
		require.NoError(b, a.Apply(context.Background(), next))
		at = next.To
		next = projections.Batch{From: at}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	words := rand.NewZipf(rng, 1.1, 3, 20_000)
	for n := range searchedTurns {
		for _, f := range searchedTurn(n, words) {
			seq++
			judged := must.Get(judge.Judge(b.Context(), recorded(f, seq, day.Add(time.Duration(seq)*time.Second))))(b)
			next.Events = append(next.Events, judged)
		}
		if len(next.Events) >= 10_000 {
			apply()
		}
		if n == searchedTurns-newestTurns {
			a.exec(`set maintenance_work_mem = '512MB';
				create index questions_terms on turnledger.questions using gin (terms);
				create index answers_terms on turnledger.answers using gin (terms)`)
		}
	}
	apply()
	a.exec("vacuum analyze turnledger.questions")
	a.exec("vacuum analyze turnledger.answers")
	return a
}

// searchedTurn is a turn of a session with 50, which is linked at its start.
func searchedTurn(n int, words *rand.Zipf) (out []events.Fact) {
	text := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("w", words.Uint64())
		}
		return strings.Join(all, " ")
	}
	const every = searchedTurns / adasTurns // so many turns are between two of ada's
	owner, of := "ada", n/every
	if n%every != 0 {
		owner, of = fmt.Sprint("i", n%997), n/997
	}
	session, request := fmt.Sprint(owner, "-", of/50), fmt.Sprint(of%50)
	if of%50 <= 1 { // one of the two may be ada's
		out = append(out, linked(session, owner))
	}
	answer := text(80)
	spread := uint32(n) * 2654435761 >> 8
	for _, one := range []uint32{20, 100, 1000} {
		if spread%one == 0 {
			answer += fmt.Sprint(" every", one)
		}
	}
	if n >= 3*every && n < 6*every && n%every == 0 {
		answer += " three"
	}
	return append(out, turntest.Started(session, request, text(20)),
		turntest.Finalized(session, request, answer))
}

// BenchmarkRecall searches what an identity said, of 2,000 turns (all that are searched) and of 10,000, beside
// 10,000 of others. Texts are those of a chat: some 0.2 KB a question, 0.5 KB an answer, other words in each. Every
// one of them has a word of the query. A prompt waits 300 ms for its memory.
func BenchmarkRecall(b *testing.B) {
	for _, turns := range []int{2000, 10_000} {
		b.Run(fmt.Sprint("turns=", turns), func(b *testing.B) {
			log := newJournal()
			tell := func(session, user string, turns int) {
				log.add(linked(session, user))
				for i := range turns {
					at := i * 37 % 400
					log.add(turntest.Turn(session, fmt.Sprint("r", i),
						fmt.Sprint("What of item ", i, "? ", prose[at:at+180]),
						fmt.Sprint("Shelf ", i%97, ". ", prose[at:at+480]))...)
				}
			}
			tell("theirs", "other", 10_000)
			tell("s", "u", turns)
			a := filled(b, log, 5000)
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				found, _, err := a.Recall(b.Context(), "u", fmt.Sprint("where is item ", turns-7, " kept?"), 10)
				took = append(took, time.Since(began))
				require.NoError(b, err)
				require.Equal(b, 10, len(found))
			}
			percentiles(b, took)
		})
	}
}

// BenchmarkTerms is what searches cost those who write: the processor time, of this process and of PostgreSQL, of the
// same events with terms and their indexes and without, in turns. 64 writers that are kept up with, and a catch-up.
func BenchmarkTerms(b *testing.B) {
	for name, batch := range map[string]int{"live": 500, "catch-up": 10_000} {
		b.Run(name, func(b *testing.B) {
			l := load{events: benchEvents, active: 64, batch: batch}
			s := openStage(b, l.events)
			s.batches = l.batches(b)
			s.apply(b)
			var with, without time.Duration
			for b.Loop() {
				s.empty(b)
				with += s.processor(b, func() { s.feed(b) })
				s.sql(b, "drop index turnledger.questions_terms")
				s.sql(b, "drop index turnledger.answers_terms")
				s.audit.WithoutTerms(true)
				s.empty(b)
				without += s.processor(b, func() { s.feed(b) })
				s.audit.WithoutTerms(false)
				s.sql(b, "create index questions_terms on turnledger.questions using gin (terms)")
				s.sql(b, "create index answers_terms on turnledger.answers using gin (terms)")
			}
			b.ReportMetric(100*(with.Seconds()/without.Seconds()-1), "%_more")
			b.ReportMetric(float64(with.Microseconds())/float64(b.N*s.events), "us/event")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func (s *stage) sql(b *testing.B, sql string) {
	b.Helper()
	must.Get(s.pool.Exec(b.Context(), sql))(b)
}

// processor returns the processor time that do takes in this process and in PostgreSQL.
func (s *stage) processor(b *testing.B, do func()) time.Duration {
	b.Helper()
	var file string
	require.NoError(b, s.pool.QueryRow(b.Context(), "select pg_read_file('postmaster.pid')").Scan(&file))
	pid, _, _ := strings.Cut(file, "\n")
	before := spent(b, pid)
	do()
	return spent(b, pid) - before
}

// spent is the processor time of this process, and of a process with its children.
func spent(b *testing.B, pid string) time.Duration {
	b.Helper()
	var own syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	all := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	for _, stat := range must.Get(filepath.Glob("/proc/[0-9]*/stat"))(b) {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // proc(5): behind the name come state and parent
		field := strings.Fields(rest)
		last := 13 // the times of a process
		switch pid {
		case filepath.Base(filepath.Dir(stat)):
			last = 15 // with those of its children that have ended
		case field[1]:
		default:
			continue
		}
		for _, ticks := range field[11:last] {
			n, err := strconv.Atoi(ticks)
			require.NoError(b, err, fmt.Sprint(stat, ticks))
			all += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return all
}
