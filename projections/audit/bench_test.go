package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

const benchEvents = 100_000

// BenchmarkPlainCopy is the floor: the finished rows of turns and of the ledger, encoded beforehand, each in one COPY into
// the same indexed tables. One operation is the whole log.
func BenchmarkPlainCopy(b *testing.B) {
	s := newBenchStage(b, 64, 2000)
	for b.Loop() {
		s.floor(b)
	}
	s.report(b)
}

// BenchmarkAuditApply is a full catch-up from empty tables; sessions are long-lived enough that some turns end in a later
// batch than they began in.
func BenchmarkAuditApply(b *testing.B) { benchmarkApply(b, 64, 2000) }

// BenchmarkAuditLive is the load of a projection that keeps up: batches are small, and so many sessions are active that
// every turn ends in a later batch than it began in.
func BenchmarkAuditLive(b *testing.B) { benchmarkApply(b, 2000, 1000) }

func benchmarkApply(b *testing.B, active, batch int) {
	s := newBenchStage(b, active, batch)
	var floor, apply time.Duration
	clear(audit.Times)
	defer func() {
		var up, hot int
		time.Sleep(time.Second)
		_ = s.pool.QueryRow(context.Background(), "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname='turns'").Scan(&up, &hot)
		fmt.Println("UPD", up, hot)
		for _, k := range slices.Sorted(maps.Keys(audit.Times)) {
			fmt.Println(k, audit.Times[k]/time.Duration(b.N))
		}
	}()
	for b.Loop() {
		floor += s.floor(b)
		apply += s.apply(b)
	}
	s.report(b)
	b.ReportMetric(floor.Seconds()/apply.Seconds(), "of_copy")
	b.ReportMetric(float64(b.N*(s.rows))/apply.Seconds(), "rows/s")
	b.ReportMetric(float64(b.N*(s.rows))/floor.Seconds(), "copy_rows/s")
	b.ReportMetric(0, "ns/op")
}

// benchStage is a database with default durability, the batches of a log, and its finished rows.
type benchStage struct {
	pool    *pgxpool.Pool
	url     string
	audit   *audit.Audit
	batches []projections.Batch
	done    map[string][]byte
	rows    int
	bytes   int
}

var copied = []string{"questions", "answers", "event_ledger"}

func newBenchStage(b *testing.B, active, batch int) *benchStage {
	b.Helper()
	srv, err := localpg.Start(b.Context(), localpg.Config{DataDir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = srv.Stop(context.Background()) })
	s := &benchStage{url: srv.URL(), done: map[string][]byte{}}
	s.pool, err = pgxpool.New(b.Context(), s.url+"&pool_max_conns=1")
	require.NoError(b, err)
	b.Cleanup(s.pool.Close)
	s.audit, err = audit.Open(b.Context(), audit.Config{Pool: s.pool})
	require.NoError(b, err)
	require.NoError(b, s.pool.QueryRow(b.Context(), "select pg_backend_pid()").Scan(&audit.Pid))
	b.Cleanup(s.audit.Close)
	s.batches = benchBatches(b, active, batch)
	s.apply(b)
	for _, table := range copied {
		var out bytes.Buffer
		s.withConn(b, func(c *pgx.Conn) {
			n, err := c.PgConn().CopyTo(b.Context(), &out, "copy turnledger."+table+" to stdout binary")
			require.NoError(b, err)
			s.rows += int(n.RowsAffected())
		})
		s.done[table] = out.Bytes()
		s.bytes += out.Len()
	}
	return s
}

func (s *benchStage) report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(s.rows), "rows")
	b.ReportMetric(float64(s.bytes)/float64(s.rows), "B/row")
}

func (s *benchStage) withConn(b *testing.B, do func(*pgx.Conn)) {
	b.Helper()
	c, err := s.pool.Acquire(b.Context())
	require.NoError(b, err)
	defer c.Release()
	do(c.Conn())
}

func (s *benchStage) empty(b *testing.B) {
	b.Helper()
	for _, sql := range []string{
		"truncate turnledger.questions, turnledger.answers, turnledger.event_ledger, turnledger.sessions, turnledger.session_links, turnledger.projection_checkpoints",
		"vacuum", "checkpoint",
	} {
		_, err := s.pool.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
}

func (s *benchStage) floor(b *testing.B) time.Duration {
	b.Helper()
	s.empty(b)
	began := time.Now()
	s.withConn(b, func(c *pgx.Conn) {
		for _, table := range copied {
			_ = audit.Timed("floor "+table, func() error {
				_, err := c.PgConn().CopyFrom(b.Context(), bytes.NewReader(s.done[table]), "copy turnledger."+table+" from stdin binary")
				require.NoError(b, err)
				return nil
			})
		}
	})
	return time.Since(began)
}

func (s *benchStage) apply(b *testing.B) time.Duration {
	b.Helper()
	s.empty(b)
	at, err := s.audit.Claim(b.Context(), 0)
	require.NoError(b, err)
	began := time.Now()
	for _, batch := range s.batches {
		batch.From.Epoch, batch.To.Epoch = at.Epoch, at.Epoch
		require.NoError(b, s.audit.ApplyTimed(b.Context(), batch))
	}
	return time.Since(began)
}

// benchBatches judges a log of sessions that are linked at their start and have ten turns of 0.5 to 1 KB; so many are active
// at once, and take turns.
func benchBatches(b *testing.B, active, batch int) []projections.Batch {
	b.Helper()
	judge := projections.NewJudge(nil, conversation.Rules{SessionTTL: 24 * time.Hour}, 0)
	from := projections.Checkpoint{}
	var out []projections.Batch
	var events []projections.Judged
	for e := range benchLog(active) {
		j, err := judge.Judge(b.Context(), e)
		require.NoError(b, err)
		if events = append(events, j); len(events) == batch {
			out, from = appendBatch(out, from, events)
			events = nil
		}
	}
	out, _ = appendBatch(out, from, events)
	return out
}

func appendBatch(out []projections.Batch, from projections.Checkpoint, batch []projections.Judged) ([]projections.Batch, projections.Checkpoint) {
	if len(batch) == 0 {
		return out, from
	}
	to := from
	to.Seq, to.EventID = batch[len(batch)-1].Position.Seq, batch[len(batch)-1].ID
	return append(out, projections.Batch{From: from, To: to, Events: batch}), to
}

func benchLog(active int) func(yield func(events.Recorded) bool) {
	const perSession = 21
	words := strings.Repeat("the quick brown fox jumps over the lazy dog and asks what comes next ", 16)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return func(yield func(events.Recorded) bool) {
		seq := uint64(0)
		for group := 0; seq < benchEvents; group++ {
			for step := range perSession {
				for n := range active {
					if seq == benchEvents {
						return
					}
					seq++
					session := fmt.Sprintf("session-%08d", group*active+n)
					e := recorded(benchFact(session, (group*active+n)/3, step, words), seq, now.Add(time.Duration(seq)*1234567))
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

func benchFact(session string, user, step int, words string) events.Fact {
	if step == 0 {
		return &events.SessionLinked{SessionID: session, IdentityID: fmt.Sprintf("user-%06d@example.org", user)}
	}
	request := fmt.Sprintf("request-%s-%d", session, (step-1)/2)
	id := events.TurnID(session, request)
	size := 120 + (step*37+user*53)%180
	if step%2 == 1 {
		return &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: events.Question{
			PipelineName: "support", Consultant: "general", QuestionNeutral: words[user%60 : user%60+size],
			Metadata: []byte(`{"channel":"web","locale":"en-GB","device_type":"phone"}`),
		}}
	}
	return &events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: words[user%60 : user%60+2*size]}}
}

var _ io.Reader = (*bytes.Reader)(nil)
