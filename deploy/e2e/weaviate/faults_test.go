package weaviate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// faults happen to a server while two processes feed the index. during appends to the log; caughtUp waits until that is
// in the index.
var faults = map[string]func(s *weaviatetest.Server, during, caughtUp func()){
	"killed": func(s *weaviatetest.Server, during, _ func()) { during(); s.Kill(); s.Restart() },
	"away": func(s *weaviatetest.Server, during, _ func()) {
		s.Kill()
		during()
		<-time.After(away())
		s.Restart()
	},
	"hangs": func(s *weaviatetest.Server, during, _ func()) {
		s.Pause()
		during()
		<-time.After(away())
		s.Resume()
	},
	"emptied":                func(s *weaviatetest.Server, during, caughtUp func()) { during(); caughtUp(); s.Empty() },
	"emptied while it fills": func(s *weaviatetest.Server, during, _ func()) { during(); s.Empty() },
	"loses its last minute": func(s *weaviatetest.Server, during, caughtUp func()) {
		s.Save()
		during()
		caughtUp()
		s.Back()
	},
	"emptied, and makes collections by itself": func(s *weaviatetest.Server, during, _ func()) {
		s.MakesCollections()
		during()
		s.Empty()
	},
}

// away is how long a server is away.
func away() time.Duration {
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		return time.Minute
	}
	return 2 * time.Second
}

// Whatever happens to the server while two processes feed the index, the index is what the log says once the server is
// back: searches, the store itself after one sweep, and verify.
func TestTheIndexSurvivesItsServer(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s := weaviatetest.Start(t)
			w := indextest.NewWorld(t, s.Client().Store(), 2)
			v, other := w.Open(t), w.Open(t)
			feed := func() (stop func()) {
				one, two := w.FeedTogether(t, v), w.FeedTogether(t, other)
				return func() { one(); two() }
			}
			stop := feed()
			sessions := []string{"a", "b", "c"}
			turns := func(what string, n int) {
				for i := range n {
					session, request := sessions[i%len(sessions)], fmt.Sprint(what, i)
					w.Append(t, turntest.Turn(session, request, "question "+request, "yes")...)
				}
			}
			for _, session := range sessions {
				w.Append(t, indextest.Linked(session, "ann"))
			}
			turns("before", 20)
			w.Reached(t, v)
			fault(s, func() {
				turns("during", 20)
				for i := range 10 {
					session := sessions[i%len(sessions)]
					w.Append(t, &events.TurnRedacted{
						TurnID: events.TurnID(session, fmt.Sprint("before", i)), SessionID: session,
					})
				}
			}, func() { w.Reached(t, v) })
			turns("after", 3)
			w.Reached(t, v)
			// A runner that takes a partition over writes again what it goes back over. On a busy machine they go on
			// taking over from each other, so they have to be stopped where all is applied.
			for stop(); !w.HasReached(t, v); stop() {
				stop = feed()
				w.Reached(t, v)
			}
			require.NoError(t, v.Sweep(t.Context()))
			require.NoError(t, other.Sweep(t.Context()))
			w.Agree(t, v, sessions...)
		})
	}
}

// A server that is killed before it has written the first segment of its vectors does not look at them any more, and a
// search says so. The next sweep writes these turns again, and asks nobody for their vectors.
func TestTurnsThatNoSearchFindsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := indextest.NewWorld(t, s.Client().Store(), 2)
	v := w.Open(t)
	w.Feed(t, v)
	var all []string
	for _, session := range []string{"a", "b", "c"} {
		w.Append(t, indextest.Linked(session, "ann"))
		for i := range 3 {
			w.Append(t, turntest.Turn(session, fmt.Sprint(i), "a question", "yes")...)
			all = append(all, events.TurnID(session, fmt.Sprint(i)).String())
		}
	}
	w.Reached(t, v)
	texts := w.Endpoint.Texts()
	s.Restart()
	reader := w.Open(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the client may not have noticed yet that it is back
		_, _, err := reader.Nearest(t.Context(), projections.QuestionHalf, index.Near{
			Vector: embeddingstest.Vector("a question", indextest.Dimensions), Limit: 10,
		})
		assert.ErrorIs(c, err, projections.ErrUnavailable, "the server is mended: the sweep can go")
		assert.ErrorContains(c, err, "vectors that it holds")
	}, hang.Limit, 50*time.Millisecond)
	require.NoError(t, v.Sweep(t.Context()))
	require.ElementsMatch(t, all, w.Found(t, reader, "a question", "ann"))
	require.ElementsMatch(t, all, w.Found(t, v, "a question", "ann"))
	require.Equal(t, texts, w.Endpoint.Texts())
	w.Agree(t, v, "a", "b", "c")
	s.Restart()
	hang.Until(t, func() bool { return v.Sweep(t.Context()) == nil })
	require.ElementsMatch(t, all, w.Found(t, v, "a question", "ann"))
}

// Among thousands of turns that say nearly the same, more than a search compares by their true vectors, none is taken
// for unseen.
func TestTurnsThatAreAlikeAreNotWrittenAgain(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := indextest.NewWorld(t, s.Client().Store(), 1)
	reg := prometheus.NewRegistry()
	v := w.Open(t, func(c *index.Config) { c.Registry = reg })
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	var facts []events.Fact
	for i := range 4000 {
		// What differs weighs so little that many answers have a vector that rounds to one nearer to a true vector.
		answer := fmt.Sprint("answer ", i, ": ", strings.Repeat("as it was said. ", 20))
		facts = append(facts, turntest.Turn("s", fmt.Sprint(i), "a question", answer)...)
	}
	w.Append(t, facts...)
	w.CaughtUp(t, v)
	require.NoError(t, v.Sweep(t.Context()))
	require.Zero(t, indextest.Counted(t, reg, "turnledger_index_swept_total", "unseen object"))
}

// A proxy holds a runner's batches back until another has taken over and a redaction is applied. They bring an object
// back, and with it a collection that was dropped, if the server makes collections by itself. One sweep takes both
// away.
func TestBatchesThatComeLateGo(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	s.MakesCollections()
	s.Restart()
	proxy := s.Proxy()
	w := indextest.NewWorld(t, proxy.Client().Store(), 1)
	slow := w.Open(t)
	stop := w.Feed(t, slow)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, turntest.Turn("s", "stays", "what stays", "yes")...)
	w.CaughtUp(t, slow)
	for round, rebuild := range []bool{false, true} {
		request := fmt.Sprint("goes", round)
		proxy.Hold()
		w.Append(t, turntest.Turn("s", request, "what goes", "yes")...)
		proxy.AwaitHeld()
		stop()
		w.Store = s.Client().Store()
		taking := w.Open(t)
		stop = w.Feed(t, taking)
		w.CaughtUp(t, taking)
		w.Append(t, &events.TurnRedacted{TurnID: events.TurnID("s", request), SessionID: "s"})
		w.CaughtUp(t, taking)
		if rebuild {
			w.Rebuild(t, taking)
			w.Append(t, turntest.Turn("s", "another", "what stays as well", "yes")...)
			w.CaughtUp(t, taking)
		}
		require.Positive(t, proxy.Release(t))
		all, err := w.Store.List(t.Context())
		require.NoError(t, err)
		if rebuild {
			require.Len(t, all, 2, "the server has made the dropped collection anew")
		} else {
			require.Contains(t, w.Found(t, taking, "what goes", ""), events.TurnID("s", request).String())
		}
		require.NoError(t, taking.Sweep(t.Context()))
		w.Agree(t, taking, "s")
		stop()
		w.Store = proxy.Client().Store()
		stop = w.Feed(t, w.Open(t))
	}
}
