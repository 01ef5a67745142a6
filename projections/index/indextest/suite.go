package indextest

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/viewtest"
)

// Run runs the suite on a store, which is empty and is used by nothing else.
func Run(t *testing.T, open func(t testing.TB) index.Store) {
	for name, test := range map[string]func(*testing.T, *World){
		"a turn of a linked session is found by its question until it is redacted":             turnsComeAndGo,
		"a link brings the turns before it, and an identity sees its own":                      links,
		"corrections and extensions are in the turn's place":                                   versions,
		"an embedder that is down holds up no deletion":                                        withoutEmbedder,
		"a rebuild takes vectors over":                                                         rebuilt,
		"a late write of a runner that was taken over goes with a sweep":                       lateWrites,
		"a generation that may hold what was erased is replaced once the log has forgotten it": scrubbed,
	} {
		t.Run(name, func(t *testing.T) { test(t, NewWorld(t, open(t), 2)) })
	}
	t.Run("live equals rebuilt equals the log", func(t *testing.T) { property(t, open) })
}

func id(session, request string) string { return events.TurnID(session, request).String() }

// redacted redacts a turn of the session s.
func redacted(request string) events.Fact {
	return &events.TurnRedacted{TurnID: events.TurnID("s", request), SessionID: "s"}
}

func turnsComeAndGo(t *testing.T, w *World) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, Linked("s", "ann"))
	w.Append(t, Turn("s", "1", "how do I change a bicycle tyre", "with levers")...)
	w.Append(t, Turn("s", "2", "what is the capital of Peru", "Lima")...)
	w.Append(t, Turn("anonymous", "1", "how do I change a bicycle tyre", "with levers")...)
	w.CaughtUp(t, v)
	require.Equal(t, id("s", "1"), w.Found(t, v, "change a bicycle tyre", "")[0])
	require.Len(t, w.Found(t, v, "change a bicycle tyre", ""), 2)
	w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "2")}, w.Found(t, v, "change a bicycle tyre", ""))
	w.Append(t, &events.SessionErased{SessionID: "s", ReceiptID: "r"})
	w.CaughtUp(t, v)
	require.Empty(t, w.Found(t, v, "change a bicycle tyre", ""))
	require.Empty(t, w.Differences(t, v))
}

func links(t *testing.T, w *World) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, Turn("s", "1", "a question before the link", "yes")...)
	w.Append(t, Linked("s", "ann"), Linked("other", "bob"))
	w.Append(t, Turn("other", "1", "a question before the link", "yes")...)
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "1")}, w.Found(t, v, "a question", "ann"))
	require.Equal(t, []string{id("other", "1")}, w.Found(t, v, "a question", "bob"))
	require.Empty(t, w.Differences(t, v))

	all := w.Open(t, func(c *index.Config) { c.Anonymous = true })
	w.Rebuild(t, all)
	w.Append(t, Turn("nobody", "1", "a question without an owner", "yes")...)
	w.CaughtUp(t, v)
	require.Len(t, w.Differences(t, all), 1, "the runner of the suite leaves anonymous turns out")
}

func versions(t *testing.T, w *World) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, Linked("s", "ann"))
	w.Append(t, Turn("s", "1", "the wrong question", "yes")...)
	w.Append(t, &events.TurnCorrected{
		TurnID: events.TurnID("s", "1c"), SessionID: "s", RequestID: "1c", ReplacesTurnID: events.TurnID("s", "1"),
		Question: events.Question{QuestionNeutral: "about volcanoes"}, Answer: events.Answer{AnswerNeutral: "hot"},
	}, &events.TurnExtended{
		TurnID: events.TurnID("s", "1c"), SessionID: "s", ExtensionID: "e", Extension: events.Extension{
			Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool"}]`), AnswerNeutral: "lava and ash",
		},
	})
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "1c")}, w.Found(t, v, "volcanoes", "ann"))
	require.Empty(t, w.Differences(t, v))
	w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	require.Empty(t, w.Found(t, v, "volcanoes", "ann"), "a redaction of any version redacts the turn")
}

func withoutEmbedder(t *testing.T, w *World) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, Linked("s", "ann"))
	w.Append(t, Turn("s", "1", "a question with a vector", "yes")...)
	w.CaughtUp(t, v)
	w.Endpoint.Fail(http.StatusServiceUnavailable)
	w.Append(t, Turn("s", "2", "a question without a vector", "yes")...)
	w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	require.Empty(t, w.Found(t, v, "a question with a vector", ""))
	require.Empty(t, w.Differences(t, v))
	w.Endpoint.Fail(0)
	require.Eventually(t, func() bool {
		require.NoError(t, v.Sweep(t.Context()))
		return len(w.Found(t, v, "a question without a vector", "")) == 1
	}, time.Minute, 100*time.Millisecond)
}

func rebuilt(t *testing.T, w *World) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, Linked("s", "ann"))
	for _, request := range []string{"1", "2", "3"} {
		w.Append(t, Turn("s", request, "question "+request, "answer "+request)...)
	}
	w.CaughtUp(t, v)
	texts := w.Endpoint.Texts()
	before, err := v.Served(t.Context())
	require.NoError(t, err)
	w.Rebuild(t, v)
	w.CaughtUp(t, v)
	require.Equal(t, texts, w.Endpoint.Texts(), "no text is embedded twice")
	after, err := v.Served(t.Context())
	require.NoError(t, err)
	require.Greater(t, after.Generation, before.Generation)
	require.Empty(t, w.Differences(t, v))
	require.Len(t, w.Found(t, v, "question 2", "ann"), 3)
	all, err := w.Store.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1, "the former generation is dropped")
	w.Append(t, Turn("s", "4", "question 4", "answer 4")...)
	w.CaughtUp(t, v)
	require.Len(t, w.Found(t, v, "question 4", "ann"), 4)
}

// lateWrites lets the writes of a runner arrive after another one has taken over and applied a redaction.
func lateWrites(t *testing.T, w *World) {
	late := &delayed{Objects: w.Store.Objects}
	v := w.Open(t, func(c *index.Config) { c.Store.Objects = late })
	stop := w.Feed(t, v)
	w.Append(t, Linked("s", "ann"))
	w.Append(t, Turn("s", "1", "what must go", "yes")...)
	w.CaughtUp(t, v)
	late.hold()
	w.Append(t, Turn("s", "2", "what must go as well", "yes")...)
	late.awaitHeld()
	taking := w.Open(t)
	w.Feed(t, taking)
	w.Append(t, redacted("2"))
	w.CaughtUp(t, taking)
	require.NotContains(t, w.Found(t, taking, "what must go as well", ""), id("s", "2"))
	stop()
	late.release(t)
	require.Contains(t, w.Found(t, taking, "what must go as well", ""), id("s", "2"), "the write came late")
	w.Append(t, Linked("other", "bob"), Turn("s", "3", "a third question", "no")[0]) // taking claims again
	w.CaughtUp(t, taking)
	require.Eventually(t, func() bool {
		require.NoError(t, taking.Sweep(t.Context()))
		return len(w.Found(t, taking, "what must go as well", "")) == 1
	}, 20*time.Second, 50*time.Millisecond)
	require.Empty(t, w.Differences(t, taking))
}

func scrubbed(t *testing.T, w *World) {
	var forgotten atomic.Uint64
	v := w.Open(t, func(c *index.Config) {
		c.Erased = func(_ context.Context, k int) (events.Position, error) {
			return events.Position{Partition: k, Seq: forgotten.Load()}, nil
		}
	})
	w.Feed(t, v)
	rebuilt := make(chan struct{}, 1)
	natstest.Run(t, index.Scrub{View: v, After: 50 * time.Millisecond, Rebuild: func(context.Context) error {
		w.Rebuild(t, v)
		rebuilt <- struct{}{}
		return nil
	}}.Run)
	w.Append(t, Linked("s", "ann"))
	w.Append(t, Turn("s", "1", "what must go", "yes")...)
	at := w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	files, err := v.Files(t.Context(), at.Partition)
	require.NoError(t, err)
	require.Less(t, files.Seq, at.Seq)
	require.Empty(t, rebuilt, "the log still holds the text")
	forgotten.Store(at.Seq)
	<-rebuilt
	files, err = v.Files(t.Context(), at.Partition)
	require.NoError(t, err)
	require.Equal(t, at, files)
	w.Append(t, Turn("s", "2", "what stays", "yes")...)
	w.CaughtUp(t, v)
	require.Empty(t, rebuilt, "once")
}

func property(t *testing.T, open func(t testing.TB) index.Store) {
	viewtest.Checks(t, 8)
	rapid.Check(t, func(rt *rapid.T) {
		w := NewWorld(t, open(t), 1)
		facts := rapid.SliceOfN(rapid.Custom(viewtest.DrawFact), 10, 60).Draw(rt, "facts")
		v := w.Open(t)
		shaky := viewtest.NewShaky(viewtest.View{View: v, Rebuildable: v}, rapid.Uint64().Draw(rt, "seed"))
		stop := w.Feed(t, shaky)
		for _, f := range facts {
			_, err := w.Log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
			require.NoError(rt, err)
		}
		w.CaughtUp(t, v)
		stop()
		require.Empty(rt, w.Differences(t, v), "live")
		require.NoError(rt, v.Sweep(t.Context()))
		require.Empty(rt, w.Differences(t, v), "swept")
		live := held(t, w)
		w.Rebuild(t, v)
		require.Empty(rt, w.Differences(t, v), "rebuilt")
		require.Equal(rt, live, held(t, w))
	})
}

// held returns what the one collection of a store holds, without who wrote it.
func held(t testing.TB, w *World) map[uuid.UUID]index.Object {
	t.Helper()
	all, err := w.Store.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	page, err := w.Store.Page(t.Context(), all[0].Name, uuid.Nil, 1000)
	require.NoError(t, err)
	out := map[uuid.UUID]index.Object{}
	for _, o := range page {
		if o.Written = (index.Written{}); o.Session != "" {
			out[o.ID] = o
		}
	}
	return out
}
