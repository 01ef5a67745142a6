package index_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// embedded: a vector is made of both languages where they differ, of so many characters, and of nothing else.
func embedded(t *testing.T, w *world) {
	v := w.Open(t, func(c *index.Config) { c.MaxChars = 20 })
	w.Append(t, indextest.Linked("s", "ann"))
	long := strings.Repeat("é ", 20)
	for request, of := range map[string]struct {
		question events.Question
		answer   events.Answer
		want     [2]string
	}{
		"both": {
			events.Question{QuestionNeutral: "das Haus", QuestionTranslated: "the house"},
			events.Answer{AnswerNeutral: "der Hof", AnswerTranslated: "the yard"},
			[2]string{"das Haus\nthe house", "der Hof\nthe yard"},
		},
		"same": {
			events.Question{QuestionNeutral: "the house", QuestionTranslated: "the house"},
			events.Answer{AnswerNeutral: "the yard", AnswerTranslated: "the yard"}, [2]string{"the house", "the yard"},
		},
		"long": {
			events.Question{QuestionNeutral: long}, events.Answer{AnswerNeutral: long + "x"},
			[2]string{long[:30], long[:30]},
		},
		"without texts": {
			events.Question{QuestionMessages: []byte(`[{"role":"user","content":"[Image sent: photo]"}]`)},
			events.Answer{AnswerMessages: []byte(`[{"role":"tool","content":"x"}]`)}, [2]string{},
		},
	} {
		turn := events.TurnID("s", request)
		w.Append(t, &events.TurnStarted{TurnID: turn, SessionID: "s", RequestID: request, Question: of.question},
			&events.TurnFinalized{TurnID: turn, SessionID: "s", Answer: of.answer})
		w.claim(t, v, "s").must(t)
		o := w.object(t, "s", request)
		for i, half := range []index.Half{o.Question, o.Answer} {
			if of.want[i] == "" {
				require.Empty(t, half.Digest, request)
				require.Nil(t, half.Vector, request)
				continue
			}
			require.Equal(t, w.Digest(of.want[i]), half.Digest, request)
			require.InDeltaSlice(t, embeddingstest.Vector(of.want[i], indextest.Dimensions), half.Vector, 1e-5, request)
		}
	}
	require.Equal(t, long[:30], v.Query(long))
	bare := must.Get(w.Store.Bare(t.Context(), w.only(t).Name, events.Partition("s", 2), 10))(t)
	require.Empty(t, bare, "a half without text waits for no vector")
	require.Empty(t, w.Differences(t, v))
}

// embedding: a text that stands twice in a batch is sent once. An embedder that failed is left alone for a while, so
// that deletions don't wait for it batch by batch.
func embedding(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	w.Append(t, turntest.Turn("s", "2", "the second question", "yes")...)
	h := w.claim(t, v, "s").must(t)
	require.Equal(t, 3, w.Endpoint.Texts())
	w.Endpoint.Fail(http.StatusBadRequest)
	calls := w.Endpoint.Calls()
	for _, request := range []string{"3", "4", "5"} {
		w.Append(t, turntest.Turn("s", request, "question "+request, "no")...)
		h.must(t)
	}
	require.Equal(t, calls+2, w.Endpoint.Calls(), "one call, and one that tells whether it refuses any text")
	require.Nil(t, w.object(t, "s", "5").Question.Vector)
}

// refusedTexts: a text that the embedder refuses, alone or in a batch, now or at a later sweep, costs no other turn its
// vector. Its own turn is in the index without one, and waits for none.
func refusedTexts(t *testing.T, w *world) {
	now := newClock()
	v := w.fed(t, now.set)
	w.Endpoint.Fail(http.StatusServiceUnavailable)
	w.Append(t, annAsks("poison", "the first answer")...)
	w.Append(t, turntest.Turn("s", "2", "the second question", "the second answer")...)
	w.CaughtUp(t, v)
	w.Endpoint.Fail(0)
	w.Endpoint.Refuse(func(text string) bool { return strings.Contains(text, "poison") })
	bare := func() int {
		found := must.Get(w.Store.Bare(t.Context(), w.only(t).Name, events.Partition("s", w.Log.Partitions()), 10))(t)
		return len(found)
	}
	now.pass(time.Minute) // the embedder is left alone for a while
	require.NoError(t, v.Sweep(t.Context()))
	require.Zero(t, bare())
	w.Append(t, turntest.Turn("s", "3", "poison again", "the third answer")...)
	w.Append(t, turntest.Turn("s", "4", "the fourth question", "the fourth answer")...)
	w.CaughtUp(t, v)
	for _, request := range []string{"1", "2", "3", "4"} {
		o := w.object(t, "s", request)
		require.NotNil(t, o.Answer.Vector, request)
		require.Equal(t, request == "1" || request == "3", o.Question.Vector == nil, request)
	}
	require.Zero(t, bare(), "nothing waits for a vector that never comes")
	calls := w.Endpoint.Calls()
	require.NoError(t, v.Sweep(t.Context()))
	require.Equal(t, calls, w.Endpoint.Calls())
	require.Empty(t, w.Differences(t, v))
}

// nearestHalves: a turn is found once, with the half that is nearer, and the answer says how far the index is.
func nearestHalves(t *testing.T, w *world) {
	v := w.Open(t)
	w.Append(t, annAsks("where are the winter tyres", "in the cellar")...)
	w.Append(t, turntest.Turn("s", "2", "what is in the cellar", "only the tyres of winter")...)
	h := w.claim(t, v, "s").must(t)
	for text, want := range map[string]struct {
		request string
		half    projections.Half
	}{
		"where are the winter tyres": {"1", projections.QuestionHalf},
		"only the tyres of winter":   {"2", projections.AnswerHalf},
	} {
		hits, at := must.Two(v.Nearest(t.Context(), "", indextest.Near(text)))(t)
		require.Len(t, hits, 2, "each turn once")
		require.Equal(t, id("s", want.request), hits[0].TurnID.String())
		require.Equal(t, want.half, hits[0].Half)
		require.InDelta(t, 1, hits[0].Score, 1e-4)
		require.Greater(t, hits[0].Score, hits[1].Score)
		require.Equal(t, h.At.Position(), at[h.partition])
	}
	hits, _ := must.Two(v.Nearest(t.Context(), projections.QuestionHalf, indextest.Near("only the tyres of winter")))(t)
	require.Len(t, hits, 2)
	for _, hit := range hits {
		require.Equal(t, projections.QuestionHalf, hit.Half)
	}

	w.Append(t, turntest.Turn("s", "3", "snow chains of winter tyres", "snow")...)
	w.Append(t, turntest.Turn("s", "4", "snow chains of winter", "no")...)
	h.must(t)
	nearest := indextest.Near("snow chains of winter")
	nearest.Limit = 1
	hits, _ = must.Two(v.Nearest(t.Context(), "", nearest))(t)
	require.Len(t, hits, 1, "the nearest answer is of 3, whose question is nearer")
	require.Equal(t, id("s", "4"), hits[0].TurnID.String())
}

// extendedAnswer: a text that was extended has a vector of its own, also where its turn is written again.
func extendedAnswer(t *testing.T, w *world) {
	v := w.Open(t)
	w.Append(t, annAsks("what is hot", "lava")...)
	w.claim(t, v, "s").must(t)
	h := w.claim(t, v, "s") // writes again, with vectors taken over
	w.Append(t, extended("1", "and ash"))
	h.must(t)
	o := w.object(t, "s", "1")
	require.InDeltaSlice(t, embeddingstest.Vector("what is hot", indextest.Dimensions), o.Question.Vector, 1e-5)
	text := answerOf(t, w, "s", "1")
	require.Contains(t, text, "ash")
	require.InDeltaSlice(t, embeddingstest.Vector(text, indextest.Dimensions), o.Answer.Vector, 1e-5)
	w.Agree(t, v, "s")
}

// verified: verify reports each thing that differs, in whatever page of the store it stands.
func verified(t *testing.T, w *world) {
	v := w.Open(t)
	w.Append(t, indextest.Linked("s", "ann"))
	changes := map[string]func(o *index.Object){
		"identity": func(o *index.Object) { o.Identity = "bob" },
		"session":  func(o *index.Object) { o.Session = "other" },
		"version":  func(o *index.Object) { o.Version++ },
		"start":    func(o *index.Object) { o.StartSeq++ },
		"time":     func(o *index.Object) { o.CreatedAt = o.CreatedAt.Add(time.Nanosecond) },
		"question": func(o *index.Object) { o.Question.Digest = "another" },
		"answer":   func(o *index.Object) { o.Answer.Digest = "" },
	}
	for what := range changes {
		w.Append(t, turntest.Turn("s", what, "a question of "+what, "an answer")...)
	}
	w.Append(t, turntest.Turn("s", "missing", "a question", "an answer")...)
	w.Append(t, turntest.Turn("s", "as it is", "a question", "an answer")...)
	w.claim(t, v, "s").must(t)
	require.Empty(t, w.Differences(t, v))
	name, want, more := w.only(t).Name, map[string]bool{}, []index.Object{}
	for what, change := range changes {
		o := *w.object(t, "s", what)
		change(&o)
		more = append(more, o)
	}
	for i := range 1100 {
		o := more[0]
		o.ID = events.TurnID("no such session", strconv.Itoa(i))
		more = append(more, o)
	}
	require.NoError(t, w.Store.Put(t.Context(), name, more))
	for _, o := range more {
		want["turn "+o.ID.String()] = true
	}
	gone := events.TurnID("s", "missing")
	require.NoError(t, w.Store.Delete(t.Context(), name, []uuid.UUID{gone}))
	want["turn "+gone.String()] = true
	got := map[string]bool{}
	for _, d := range w.Differences(t, v) {
		got[d.What] = true
	}
	require.Equal(t, want, got)
}

// verifiedMeanwhile: what a view writes and deletes between the fold and the look at the store is no difference.
func verifiedMeanwhile(t *testing.T, w *world) {
	v, store := w.spy(t)
	w.Append(t, annAsks("volcanoes", "yes")...)
	h := w.claim(t, v, "s").must(t)
	var once sync.Once
	store.page = func() {
		once.Do(func() {
			w.Append(t, redacted("1"))
			w.Append(t, turntest.Turn("s", "2", "rivers", "an answer")...)
			h.must(t)
		})
	}
	require.Empty(t, w.Differences(t, v))
	require.Equal(t, []string{events.TurnID("s", "2").String()}, w.Found(t, v, "rivers", "ann"))
}

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
	w.Append(t, turntest.Turn("s", "2", "a question without a vector", "yes")...)
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
		w.Append(t, turntest.Turn("s", request, "question "+request, "yes")...)
	}
	h := w.claim(t, before, "s").must(t)
	now.pass(5 * time.Minute)
	w.Append(t, turntest.Turn("s", "3", "question 3", "yes")[0])
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
		facts = append(facts, turntest.Turn("s", fmt.Sprint(i), fmt.Sprint("question ", i), "yes")...)
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
