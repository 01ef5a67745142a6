package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

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
	stats := must.Get(filepath.Glob("/proc/[0-9]*/stat"))(b)
	for _, stat := range stats {
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
