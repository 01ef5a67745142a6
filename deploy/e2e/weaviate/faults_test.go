package weaviate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
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
					w.Append(t, indextest.Turn(session, request, "question "+request, "yes")...)
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
			w.Append(t, indextest.Turn(session, fmt.Sprint(i), "a question", "yes")...)
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
	require.Eventually(t, func() bool { return v.Sweep(t.Context()) == nil }, hang.Limit, 50*time.Millisecond)
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
		facts = append(facts, indextest.Turn("s", fmt.Sprint(i), "a question", answer)...)
	}
	w.Append(t, facts...)
	w.CaughtUp(t, v)
	require.NoError(t, v.Sweep(t.Context()))
	require.Zero(t, counted(t, reg, "turnledger_index_swept_total", "unseen object"))
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
	w.Append(t, indextest.Turn("s", "stays", "what stays", "yes")...)
	w.CaughtUp(t, slow)
	for round, rebuild := range []bool{false, true} {
		request := fmt.Sprint("goes", round)
		proxy.Hold()
		w.Append(t, indextest.Turn("s", request, "what goes", "yes")...)
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
			w.Append(t, indextest.Turn("s", "another", "what stays as well", "yes")...)
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

// Two stores on one log don't fill each other anew: the index goes to the one that came last, and the processes of the
// other one say what is wrong, and leave what they have alone.
func TestTwoServersOnOneLog(t *testing.T) {
	t.Parallel()
	first, second := weaviatetest.Start(t), weaviatetest.Start(t)
	w := indextest.NewWorld(t, first.Client().Store(), 1)
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "a question", "yes")...)
	w.CaughtUp(t, v)
	kept, err := w.Store.List(t.Context())
	require.NoError(t, err)

	w.Store = second.Client().Store()
	moved := w.Open(t)
	w.Feed(t, moved)
	w.Reached(t, moved)
	before, err := moved.Served(t.Context())
	require.NoError(t, err)
	require.Error(t, v.Look(t.Context()))
	for range 10 {
		err := v.Sweep(t.Context())
		require.ErrorIs(t, err, projections.ErrUnavailable)
		require.ErrorContains(t, err, "all processes need the same TURNLEDGER_WEAVIATE_URL")
		require.ErrorContains(t, v.Prepare(t.Context()), "all processes need the same TURNLEDGER_WEAVIATE_URL")
		w.Append(t, indextest.Turn("s", "2", "another question", "yes")[0])
		<-time.After(50 * time.Millisecond) // the first runner tries again meanwhile
	}
	after, err := moved.Served(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Generation, after.Generation)
	w.Agree(t, moved, "s")
	all, err := first.Client().List(t.Context())
	require.NoError(t, err)
	require.Equal(t, kept, all)
}

// Two logs on one store don't take each other's index away, which each would fill anew for good. The second says what
// is wrong, until its operator has it take the store over.
func TestTwoLogsOnOneServer(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := indextest.NewWorld(t, s.Client().Store(), 1)
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "a question", "yes")...)
	w.CaughtUp(t, v)

	other := indextest.NewWorld(t, s.Client().Store(), 1)
	late := index.New(other.Config())
	for range 2 {
		err := late.Prepare(t.Context())
		require.ErrorIs(t, err, projections.ErrUnavailable)
		require.ErrorContains(t, err, "each log needs a Weaviate of its own")
		require.NoError(t, v.Sweep(t.Context()))
	}
	w.Agree(t, v, "s")

	other.Append(t, indextest.Linked("t", "bob"))
	other.Append(t, indextest.Turn("t", "1", "another question", "no")...)
	other.Rebuild(t, late)
	other.Feed(t, late)
	other.Reached(t, late)
	require.Error(t, v.Look(t.Context()))
	require.ErrorContains(t, v.Prepare(t.Context()), "each log needs a Weaviate of its own")
	require.Error(t, v.Sweep(t.Context()), "what it fed is gone")
	require.NoError(t, late.Sweep(t.Context()))
	other.Agree(t, late, "t")
	at, err := late.Files(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, at.Seq, "nothing is known of what the log has forgotten")
}

// A store that was emptied, filled again and then put back to its older copy has an index of before: a rebuild brings
// the index back, and no rebuild begins by itself, since another store might have the index.
func TestAnOlderIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := indextest.NewWorld(t, s.Client().Store(), 1)
	v := w.Open(t)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "a question", "yes")...)
	stop := w.Feed(t, v)
	w.Reached(t, v)
	stop()
	s.Save()
	s.Empty()
	stop = w.Feed(t, v)
	w.Reached(t, v)
	stop()
	s.Back()
	require.ErrorContains(t, v.Prepare(t.Context()), "run turnledger projections rebuild index")
	require.ErrorContains(t, v.Sweep(t.Context()), "run turnledger projections rebuild index")

	var pointer map[string]any
	revision, err := w.Notes.Read(t.Context(), "index.served", &pointer)
	require.NoError(t, err)
	delete(pointer, "form") // so that a rebuild by its age is due
	_, err = w.Notes.Write(t.Context(), "index.served", pointer, revision)
	require.NoError(t, err)
	scrubbing, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, index.Scrub{View: v, After: 10 * time.Millisecond, Rebuild: func(context.Context) error {
		t.Error("a rebuild began by itself")
		return nil
	}}.Run(scrubbing))

	w.Rebuild(t, v)
	require.Len(t, w.Found(t, v, "a question", "ann"), 1)
	w.Append(t, indextest.Turn("s", "2", "another question", "yes")...)
	w.Feed(t, v)
	w.Reached(t, v)
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}

// Weaviate names the object that it refuses, and takes the others.
func TestWeaviateRefusesOneObject(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := s.Client()
	c := index.Collection{Name: index.Prefix + "a_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	require.NoError(t, w.Put(t.Context(), c.Name, []index.Object{object(4, "ann")}), "the first vector sets the length")
	objects := []index.Object{object(1, "ann"), object(2, "ann"), object(3, "ann")}
	objects[1].Question.Vector = objects[1].Question.Vector[:32]
	err := w.Put(t.Context(), c.Name, objects)
	var refused *index.Refused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, objects[1].ID, refused.IDs[0])
	require.Len(t, refused.IDs, 1)
	found, err := w.ByID(t.Context(), c.Name, []uuid.UUID{objects[0].ID, objects[2].ID}, index.WithVectors)
	require.NoError(t, err)
	require.Len(t, found, 2)
}
