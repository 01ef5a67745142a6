package weaviate_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// atRestOfMeaning is the time after which Weaviate has written and merged the files of an import.
const atRestOfMeaning = 2 * time.Minute

// BenchmarkSearchByMeaning searches b.N turns over HTTP, one search after the other, and sets each mode against a bare
// search of Weaviate: right after the import, and at rest. A search embeds its query at an endpoint of the benchmark's
// own process; how long that takes alone is measured, too.
func BenchmarkSearchByMeaning(b *testing.B) {
	w, e := weaviatetest.StartWith(b, rand.Text(), "GOGC=400"), embeddingstest.Start(b) // as docker-compose.index.yml
	p := stack.Serve(b, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(b)), "--roles", everyRole)
	importTurns(b, p, b.N)
	client := w.Client()
	all, err := client.List(b.Context())
	require.NoError(b, err)
	search := func(when string) {
		took := map[string][]time.Duration{}
		timed := func(what string, do func()) {
			began := time.Now()
			do()
			took[when+what] = append(took[when+what], time.Since(began))
		}
		for i := range 1000 {
			asked := benchQuestion(i * 7919 % b.N)
			timed("bare", func() {
				_, err := client.Near(b.Context(), all[0].Name, index.Near{
					Half: projections.QuestionHalf, Limit: 15,
					Vector: embeddingstest.Vector(asked, embeddingstest.Dimensions),
				})
				require.NoError(b, err)
			})
			timed("embedder", func() {
				resp, err := http.Post(e.URL()+"/embeddings", "application/json",
					strings.NewReader(fmt.Sprintf(`{"input":[%q],"encoding_format":"base64"}`, asked)))
				require.NoError(b, err)
				require.NoError(b, json.NewDecoder(resp.Body).Decode(&body{}))
				require.NoError(b, resp.Body.Close())
			})
			for _, mode := range []string{"meaning", "hybrid", "words"} {
				timed(mode, func() {
					p.Must(b, http.StatusOK, http.MethodPost, "/v1/search", body{"query": asked, "mode": mode})
				})
				timed(mode+"-of-one", func() {
					p.Must(b, http.StatusOK, http.MethodPost, "/v1/search",
						body{"query": asked, "mode": mode, "identity_id": "identity 1"})
				})
			}
		}
		report(b, took)
	}
	search("after-import-")
	<-time.After(atRestOfMeaning)
	search("")
}

func report(b *testing.B, took map[string][]time.Duration) {
	b.Helper()
	for what, times := range took {
		slices.Sort(times)
		for _, q := range []int{50, 99} {
			p := times[len(times)*q/100]
			b.ReportMetric(float64(p)/float64(time.Millisecond), fmt.Sprintf("%s-p%d-ms", what, q))
		}
	}
	b.ReportMetric(0, "ns/op")
}

const benchTurnsOfSession = 20

var benchWords = strings.Fields("bicycle tyre lever pump garden key stone invoice refund parcel address winter " +
	"summer train ticket window battery charger screen cable printer recipe flour sugar butter oven doctor letter " +
	"tax form")

func benchQuestion(i int) string {
	n := len(benchWords)
	return fmt.Sprintf("question %d about the %s and the %s of a %s", i, benchWords[i%n], benchWords[i/n%n],
		benchWords[i/n/n%n])
}

// importTurns imports turns of 1,000 identities, and waits until all views have them.
func importTurns(b *testing.B, p *stack.Process, turns int) {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "turns.jsonl"))
	require.NoError(b, err)
	to := json.NewEncoder(f)
	for from := 0; from < turns; from += benchTurnsOfSession {
		session := fmt.Sprint("s", from/benchTurnsOfSession)
		p.LinkIdentity(b, session, fmt.Sprint("identity ", from/benchTurnsOfSession%1000))
		var messages []any
		for i := from; i < min(from+benchTurnsOfSession, turns); i++ {
			answer := fmt.Sprintf("answer %d: %s", i, strings.Repeat("as it was said. ", 20))
			messages = append(messages, body{"role": "user", "content": benchQuestion(i)},
				body{"role": "assistant", "content": answer})
		}
		require.NoError(b, to.Encode(stack.Conversation{ID: session, Messages: messages}))
	}
	require.NoError(b, f.Close())
	began := time.Now()
	code, out, errs := p.Run(b, "import", f.Name())
	require.Equal(b, stack.ExitDone, code, out+errs)
	for behind(b, p) {
		<-time.After(20 * time.Millisecond)
	}
	b.ReportMetric(float64(turns)/time.Since(began).Seconds(), "imported-turns/s")
}

// BenchmarkRecordingBesideTheIndex records b.N turns over HTTP by 16 writers, in five rounds of each of two servers in
// turns: one feeds an index, the other does not. They record as many turns as go, and then half as many a second. The
// views catch up between rounds, outside the time. Weaviate gives way to the writers on the same processors, as deploy/
// has it do.
func BenchmarkRecordingBesideTheIndex(b *testing.B) {
	const rounds, writers = 5, 16
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = writers
	w, e := weaviatetest.StartWith(b, rand.Text(), "GOGC=400"), embeddingstest.Start(b) // as docker-compose.index.yml
	w.GiveWay()
	with := stack.Serve(b, environment(w, e), "--roles", "api,context,index")
	without := stack.Serve(b, nil, "--roles", "api,context")
	turns := max(b.N/rounds/writers, 1)
	pace := time.Duration(0)
	for _, how := range []string{"unpaced", "half"} {
		took, each := map[*stack.Process]time.Duration{}, map[string][]time.Duration{}
		for round := range rounds {
			for name, p := range map[string]*stack.Process{"with": with, "without": without} {
				began := time.Now()
				run := fmt.Sprint(b.N, how, round)
				each[name] = append(each[name], recordTurns(b, p, run, writers, turns, pace)...)
				took[p] += time.Since(began)
				for behind(b, p) {
					<-time.After(20 * time.Millisecond)
				}
			}
		}
		for name, times := range each {
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2].Seconds()*1000, how+"-"+name+"-p50-ms")
			b.ReportMetric(times[len(times)*99/100].Seconds()*1000, how+"-"+name+"-p99-ms")
		}
		b.ReportMetric(took[without].Seconds()/took[with].Seconds(), "x_"+how)
		b.ReportMetric(float64(rounds*writers*turns)/took[without].Seconds(), how+"-turns/s")
		pace = 2 * took[without] / time.Duration(rounds*turns)
	}
	b.ReportMetric(0, "ns/op")
}

// recordTurns returns how long each turn took. With a pace, each writer begins a turn so often.
func recordTurns(
	b *testing.B, p *stack.Process, run string, writers, turns int, pace time.Duration,
) (all []time.Duration) {
	b.Helper()
	took := make([][]time.Duration, writers)
	var g errgroup.Group
	for n := range writers {
		g.Go(func() error {
			due := time.Now()
			for i := range turns {
				session, request := fmt.Sprint(run, "-", n, "-", i/benchTurnsOfSession), fmt.Sprint(i)
				<-time.After(time.Until(due))
				began := time.Now()
				if err := recordTurn(b, p, session, request); err != nil {
					return err
				}
				took[n] = append(took[n], time.Since(began))
				due = due.Add(pace)
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	return slices.Concat(took...)
}

// recordTurn records a turn of a session of an identity by two calls.
func recordTurn(b *testing.B, p *stack.Process, session, request string) error {
	turn := events.TurnID(session, request).String()
	for _, c := range []struct {
		path string
		body body
	}{
		{"/turns", body{"request_id": request, "identity_id": "ada", "question_neutral": benchQuestion(len(request))}},
		{"/turns/" + turn + "/finalize", body{"answer_neutral": strings.Repeat("as it was said. ", 20)}},
	} {
		status, out, err := p.Call(b.Context(), http.MethodPost, stack.SessionPath(session)+c.path, c.body)
		if err != nil || status >= http.StatusMultipleChoices {
			return fmt.Errorf("%d %v: %w", status, out["code"], err)
		}
	}
	return nil
}
