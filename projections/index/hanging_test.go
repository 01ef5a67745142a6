package index_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// promptly is how soon a deletion has to be in the index while the embedder hangs, on a busy machine. One call of an
// embedder that hangs takes 20 s.
const promptly = 15 * time.Second

// awaitCall waits until the embedder has got a call more than before.
func (w *world) awaitCall(t testing.TB, before int) {
	t.Helper()
	hang.Until(t, func() bool { return w.Endpoint.Calls() > before })
}

// withHangingEmbedder: a redaction behind a batch whose embedder never answers is applied within two seconds or so. The
// batch's turns have no vectors then, and get them later.
func withHangingEmbedder(t *testing.T, w *world) {
	now := newClock()
	v := w.fed(t, now.set)
	w.Append(t, annAsks("a question with a vector", "yes")...)
	w.CaughtUp(t, v)
	w.Endpoint.Hang()
	calls := w.Endpoint.Calls()
	w.Append(t, indextest.Turn("s", "2", "a question without a vector", "yes")...)
	w.awaitCall(t, calls)
	w.Append(t, redacted("1"))
	began := time.Now()
	w.CaughtUp(t, v)
	require.Empty(t, w.Found(t, v, "a question with a vector", ""))
	require.Nil(t, w.object(t, "s", "1"))
	require.Nil(t, w.object(t, "s", "2").Question.Vector)
	require.Less(t, time.Since(began), promptly)
	t.Logf("the redaction took %s", time.Since(began).Round(time.Millisecond))
	w.Endpoint.Resume()
	now.pass(time.Minute) // the embedder is left alone for a while
	require.NoError(t, v.Sweep(t.Context()))
	require.Equal(t, []string{id("s", "2")}, w.Found(t, v, "a question without a vector", ""))
	w.Agree(t, v, "s")
}

// sweptMeanwhile: batches are applied while a sweep waits for an embedder that hangs. What they delete does not come
// back when the embedder answers at last, and what they bring is not lost.
func sweptMeanwhile(t *testing.T, w *world) {
	now := newClock()
	open := func() *index.View { return w.Open(t, now.set) }
	before := open()
	w.Endpoint.Fail(http.StatusServiceUnavailable)
	w.Append(t, indextest.Linked("s", "ann"))
	for _, request := range []string{"1", "2"} {
		w.Append(t, indextest.Turn("s", request, "question "+request, "yes")...)
	}
	h := w.claim(t, before, "s").must(t)
	now.pass(5 * time.Minute)
	w.Append(t, indextest.Turn("s", "3", "question 3", "yes")[0])
	h.must(t)
	w.Endpoint.Fail(0)
	v := open() // has not seen the embedder fail, and goes back to the start of the third turn
	h = w.claim(t, v, "s")
	w.Endpoint.Hang()
	calls := w.Endpoint.Calls()
	swept := make(chan error, 1)
	go func() { swept <- v.Sweep(t.Context()) }()
	w.awaitCall(t, calls)
	began := time.Now()
	w.Append(t, redacted("1"))
	h.must(t)
	w.Append(t, extended("2", "and ash"))
	h.must(t)
	require.Nil(t, w.object(t, "s", "1"))
	require.Less(t, time.Since(began), promptly)
	require.Empty(t, swept, "the sweep waits")
	w.Endpoint.Resume()
	require.NoError(t, <-swept)
	require.Nil(t, w.object(t, "s", "1"))
	o := w.object(t, "s", "2")
	require.NotNil(t, o.Question.Vector)
	require.Nil(t, o.Answer.Vector, "the text is another one by now")
	texts := w.Endpoint.Texts()
	require.NoError(t, v.Sweep(t.Context()))
	require.NotNil(t, w.object(t, "s", "2").Answer.Vector)
	require.Equal(t, texts+1, w.Endpoint.Texts(), "the question has its vector")
	w.Agree(t, v, "s")
}

// timed is an embedder that keeps how many texts it was asked for, and how long it had, and fails after so many calls.
type timed struct {
	index.Embedder
	texts []int
	had   []time.Duration
	fails int
}

// Embed implements index.Embedder.
func (e *timed) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	until, _ := ctx.Deadline()
	e.texts, e.had = append(e.texts, len(texts)), append(e.had, time.Until(until))
	if len(e.texts) > e.fails {
		return nil, projections.ErrEmbedder
	}
	return e.Embedder.Embed(ctx, texts)
}

// partByPart: of a large batch the embedder is asked for a few texts first, so that one which hangs is noticed early,
// and then for more at a time. What it has made before counts.
func partByPart(t *testing.T, w *world) {
	embedder := &timed{Embedder: w.Config().Embedder, fails: 2}
	v := w.Open(t, func(c *index.Config) { c.Embedder = embedder })
	w.Append(t, indextest.Linked("s", "ann"))
	var facts []events.Fact
	for i := range 432 {
		facts = append(facts, indextest.Turn("s", fmt.Sprint(i), fmt.Sprint("question ", i), "yes")...)
	}
	w.Append(t, facts...)
	w.claim(t, v, "s").must(t)
	require.Equal(t, []int{32, 384, 17}, embedder.texts)
	require.Less(t, embedder.had[0], 4*time.Second)
	require.Greater(t, embedder.had[1], 384*50*time.Millisecond, "a slow embedder has time once it has answered")
	require.Less(t, embedder.had[2], embedder.had[0])
	require.NotNil(t, w.object(t, "s", "100").Question.Vector)
	require.Nil(t, w.object(t, "s", "431").Question.Vector)
}
