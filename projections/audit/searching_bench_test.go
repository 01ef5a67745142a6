package audit_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

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
					_, _, _, err := a.Search(b.Context(), f, 10, "")
					require.NoError(b, err)
					took, floor = append(took, time.Since(read)), append(floor, read.Sub(began))
				}
				slices.Sort(took)
				slices.Sort(floor)
				half := len(took) / 2
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(took[half].Microseconds())/1000, "p50-ms")
				b.ReportMetric(took[half].Seconds()/floor[half].Seconds(), "x_floor")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
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
	return append(out, &events.TurnStarted{TurnID: id(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: text(20)}},
		&events.TurnFinalized{TurnID: id(session, request), SessionID: session,
			Answer: events.Answer{AnswerNeutral: answer}})
}
