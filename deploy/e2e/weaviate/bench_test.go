package weaviate_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"math"
	mathrand "math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/index/weaviate"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

const (
	benchDimensions = 256
	benchPartitions = 4
	// topics are what the texts of the benchmark are about: vectors of one topic are near each other.
	topics = 500
	// batchOfEvents is what a process feeds the index with at once (cmd/turnledger).
	batchOfEvents = 1000
	// asked is how many turns a search for a page of ten asks for (services/read/search).
	asked = 15
	// collector is how often Weaviate collects garbage, as docker-compose.index.yml has it.
	collector = "GOGC=400"
	// atRest is the time after which Weaviate has written and merged the files of an import.
	atRest = 2 * time.Minute
)

// instant makes vectors without an endpoint, so that a benchmark measures the index alone.
type instant struct{ centers [topics][]float32 }

func newInstant() *instant {
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	e := &instant{}
	for i := range e.centers {
		e.centers[i] = make([]float32, benchDimensions)
		for k := range e.centers[i] {
			e.centers[i][k] = float32(rng.NormFloat64())
		}
	}
	return e
}

// Model implements index.Embedder.
func (*instant) Model() string { return "instant/256" }

// Dimensions implements index.Embedder.
func (*instant) Dimensions(context.Context) (int, error) { return benchDimensions, nil }

// Embed implements index.Embedder.
func (e *instant) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = e.vector(text)
	}
	return out, nil
}

func (e *instant) vector(text string) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	seed := h.Sum64()
	center, v, sum := e.centers[seed%topics], make([]float32, benchDimensions), 0.0
	for k := range v {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		v[k] = center[k] + 2*(float32(seed>>40)/(1<<23)-1)
		sum += float64(v[k] * v[k])
	}
	for k := range v {
		v[k] /= float32(math.Sqrt(sum))
	}
	return v
}

// BenchmarkIndex imports b.N turns of 20 a session, rebuilds the index with the vectors taken over, and searches it. It
// sets each against the same work on the bare server, in the same run: batches of the same objects, and searches.
func BenchmarkIndex(b *testing.B) {
	e := newInstant()
	server := weaviatetest.StartWith(b, rand.Text(), collector)
	w := indextest.NewWorld(b, server.Client().Store(), benchPartitions)
	objects := fill(b, w, b.N)
	for i := range objects {
		o := &objects[i]
		o.Question.Vector, o.Answer.Vector = e.vector(o.Question.Neutral), e.vector(o.Answer.Neutral)
	}
	bare := insertBare(b, objects)
	for i := range objects { // they are not to be in the memory that is measured
		objects[i].Question.Vector, objects[i].Answer = nil, index.Half{}
	}
	rate := func(took time.Duration) float64 { return float64(b.N) / took.Seconds() }

	v := w.Open(b, func(c *index.Config) { c.Embedder = e })
	b.ResetTimer() // it drops what was reported
	b.ReportMetric(rate(bare), "bare-turns/s")
	heap := watchHeap()
	began := time.Now()
	feed(b, w, v)
	took := time.Since(began)
	first, second := heap()
	b.ReportMetric(rate(took), "import-turns/s")
	b.ReportMetric(float64(bare)/float64(took), "x_import")
	b.ReportMetric(first, "heap-first-half-MB")
	b.ReportMetric(second, "heap-second-half-MB")
	b.ReportMetric(float64(server.Memory())/(1<<20), "weaviate-MB")
	b.ReportMetric(float64(server.Disk())/1024/float64(b.N), "disk-KB/turn")
	searches(b, w, v, e, objects, "after-import-")
	<-time.After(atRest)
	searches(b, w, v, e, objects, "")
	b.ReportMetric(recall(b, w, e, objects), "recall-of-10")
	sweeps(b, w, e)

	began = time.Now()
	r, err := rebuild.Begin(b.Context(), w.Log, v, v, rebuild.Config{Rules: w.Rules})
	require.NoError(b, err)
	require.NoError(b, r.Run(b.Context()))
	took = time.Since(began)
	b.ReportMetric(rate(took), "rebuild-turns/s")
	b.ReportMetric(float64(bare)/float64(took), "x_rebuild")
	b.ReportMetric(0, "ns/op")
}

// fill writes turns to the log, and returns what the index has to hold of them.
func fill(b *testing.B, w *indextest.World, turns int) (objects []index.Object) {
	b.Helper()
	const each = 20
	var g errgroup.Group
	g.SetLimit(32)
	for from := 0; from < turns; from += each {
		session := fmt.Sprint("s", from/each)
		facts := []events.Fact{indextest.Linked(session, fmt.Sprint("identity ", from/each%1000))}
		for i := from; i < min(from+each, turns); i++ {
			question, answer := fmt.Sprintf("question %d: %s", i, benchText), fmt.Sprintf("answer %d: %s", i, benchText)
			facts = append(facts, turntest.Turn(session, fmt.Sprint(i), question, answer)...)
			objects = append(objects, index.Object{
				ID: events.TurnID(session, fmt.Sprint(i)), Session: session,
				Identity: fmt.Sprint("identity ", from/each%1000), Partition: i % benchPartitions,
				StartSeq: uint64(i + 1), Version: 1, CreatedAt: time.Now(),
				Question: index.Half{Neutral: question, Digest: "q"}, Answer: index.Half{Neutral: answer, Digest: "a"},
			})
		}
		g.Go(func() error {
			for _, f := range facts {
				if _, err := w.Log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{f}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	return objects
}

var benchText = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 6)

// insertBare returns how long a server takes for the same objects, in the batches in which the index writes them.
func insertBare(b *testing.B, objects []index.Object) time.Duration {
	b.Helper()
	s := weaviatetest.StartWith(b, rand.Text(), collector)
	defer s.Kill()
	w := s.Client()
	c := index.Collection{Name: index.Prefix + "a_000001", Mark: "the mark"}
	require.NoError(b, w.Create(b.Context(), c))
	var g errgroup.Group
	g.SetLimit(benchPartitions)
	began := time.Now()
	for batch := range slices.Chunk(objects, batchOfEvents/2) {
		g.Go(func() error { return w.Put(b.Context(), c.Name, batch) })
	}
	require.NoError(b, g.Wait())
	return time.Since(began)
}

// feed feeds a view with all of the log.
func feed(b *testing.B, w *indextest.World, v *index.View) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	r := runner.New(w.Log, v, runner.Config{Rules: w.Rules, Feeding: runner.Feeding{MaxBatch: batchOfEvents}})
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for k := 0; k < w.Log.Partitions(); {
		head, err := w.Log.Head(b.Context(), k)
		require.NoError(b, err)
		at, err := v.Applied(b.Context(), k)
		require.NoError(b, err)
		if at.Seq >= head.Seq {
			k++
			continue
		}
		<-time.After(50 * time.Millisecond)
	}
	cancel()
	require.NoError(b, <-done)
}

// sweeps compares the whole index with the log, as a process does that has just started, and once more. It reports the
// processor time of this process, with its log, and what it keeps from one sweep to the next.
func sweeps(b *testing.B, w *indextest.World, e index.Embedder) {
	b.Helper()
	v := w.Open(b, func(c *index.Config) { c.Embedder = e })
	for k := range w.Log.Partitions() {
		_, err := v.Claim(b.Context(), k)
		require.NoError(b, err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, name := range []string{"first-sweep", "sweep"} {
		used := processorTime(b)
		require.NoError(b, v.Sweep(b.Context()))
		b.ReportMetric(float64((processorTime(b)-used).Microseconds())/float64(b.N), name+"-us/turn")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(b.N), "sweep-B/turn")
	runtime.KeepAlive(v)
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// watchHeap looks each second at what the last collection found live, the embedded log's memory included, until stop is
// called, which returns the most of each half of the time, in MB.
func watchHeap() (stop func() (first, second float64)) {
	over, done := make(chan struct{}), make(chan []float64)
	go func() {
		var seen []float64
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-over:
				done <- seen
				return
			case <-time.After(time.Second):
			}
			metrics.Read(live)
			seen = append(seen, float64(live[0].Value.Uint64())/(1<<20))
		}
	}()
	return func() (float64, float64) {
		close(over)
		seen := append(<-done, 0, 0)
		return slices.Max(seen[:len(seen)/2]), slices.Max(seen[len(seen)/2:])
	}
}

// recall returns which part of the ten nearest questions a search finds, of questions drawn anew beside those that are
// there. The texts say nothing, so their vectors are as hard to tell apart as can be.
func recall(b *testing.B, w *indextest.World, e *instant, objects []index.Object) float64 {
	b.Helper()
	const questions, most = 100, 10
	all, err := w.Store.List(b.Context())
	require.NoError(b, err)
	vectors := make([][]float32, len(objects))
	for i := range objects {
		vectors[i] = e.vector(objects[i].Question.Neutral)
	}
	found := 0
	for i := range questions {
		wanted := e.vector(fmt.Sprint("another question ", i))
		near := func(i int) (sum float32) {
			for k, x := range vectors[i] {
				sum += x * wanted[k]
			}
			return sum
		}
		type one struct {
			id   uuid.UUID
			near float32
		}
		exact := make([]one, len(objects))
		for i := range objects {
			exact[i] = one{objects[i].ID, near(i)}
		}
		slices.SortFunc(exact, func(a, b one) int { return cmp.Compare(b.near, a.near) })
		hits, err := w.Store.Objects.(*weaviate.Weaviate).Near(b.Context(), all[0].Name, index.Near{
			Half: projections.QuestionHalf, Limit: asked, Vector: wanted,
		})
		require.NoError(b, err)
		for _, x := range exact[:min(most, len(exact))] {
			is := func(h projections.Hit) bool { return h.TurnID == x.id }
			if slices.ContainsFunc(hits[:min(most, len(hits))], is) {
				found++
			}
		}
	}
	return float64(found) / (questions * most)
}

// searches searches one after the other, by the view and by the bare client, in turns.
func searches(
	b *testing.B, w *indextest.World, v *index.View, e *instant, objects []index.Object, when string,
) {
	b.Helper()
	all, err := w.Store.List(b.Context())
	require.NoError(b, err)
	bare := w.Store.Objects.(*weaviate.Weaviate)
	for name, identity := range map[string]string{"all": "", "one": "identity 1"} {
		took := map[string][]time.Duration{}
		for i := range 1000 {
			near := index.Near{
				Half: projections.QuestionHalf, Limit: asked, Filter: index.Filter{IdentityID: identity},
				Vector: e.vector(objects[i*7919%len(objects)].Question.Neutral),
			}
			began := time.Now()
			_, err := bare.Near(b.Context(), all[0].Name, near)
			require.NoError(b, err)
			took["bare"] = append(took["bare"], time.Since(began))
			began = time.Now()
			_, _, err = v.Nearest(b.Context(), projections.QuestionHalf, near)
			require.NoError(b, err)
			took["ours"] = append(took["ours"], time.Since(began))
			began = time.Now()
			_, _, err = v.Nearest(b.Context(), "", near)
			require.NoError(b, err)
			took["both"] = append(took["both"], time.Since(began))
		}
		for of, times := range took {
			slices.Sort(times)
			ms := func(q int) float64 { return float64(times[len(times)*q/100]) / float64(time.Millisecond) }
			b.ReportMetric(ms(50), fmt.Sprintf("%s%s-%s-p50-ms", when, name, of))
			b.ReportMetric(ms(99), fmt.Sprintf("%s%s-%s-p99-ms", when, name, of))
		}
	}
}
