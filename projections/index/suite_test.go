package index_test

import (
	"context"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/index"
)

// world is a log with an index on a store in memory.
type world struct{ *indextest.World }

// The index holds what the log says, whoever writes it and whatever happens meanwhile. Its store is in memory here;
// that it does what Weaviate does is the contract of both.
func TestTheIndexHoldsWhatTheLogSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *world){
		"a turn of a linked session is found by its question until it is redacted":             turnsComeAndGo,
		"a link brings the turns before it, and an identity sees its own":                      links,
		"corrections and extensions are in the turn's place":                                   versions,
		"an embedder that is down holds up no deletion":                                        withoutEmbedder,
		"an embedder that hangs holds up no deletion":                                          withHangingEmbedder,
		"a sweep that waits for vectors holds up no deletion, and brings nothing back":         sweptMeanwhile,
		"the embedder is asked for the texts of a large batch part by part":                    partByPart,
		"a rebuild takes vectors over":                                                         rebuilt,
		"a late write of a runner that was taken over goes with a sweep":                       lateWrites,
		"an object that the store refuses for good becomes a dead letter":                      refusals,
		"a generation that may hold what was erased is replaced once the log has forgotten it": scrubbed,

		"a claim goes back two minutes, and to what the store knows":                    claimsGoBack,
		"a claim that goes back brings nothing back that was deleted":                   goneStaysGone,
		"a runner that was taken over changes nothing":                                  takenOver,
		"a runner that is taken over in a batch moves no checkpoint":                    takenOverInBatch,
		"a store that lost its canary is filled again":                                  lostMeanwhile,
		"what may stand is deleted before it is written again":                          writtenAgain,
		"a late deletion leaves what was written since":                                 lateDeletion,
		"late writes of any former runner go":                                           manyTakeovers,
		"a link brings what follows the last silence, and a kind the rest":              silences,
		"a link brings what stands before a reset":                                      resets,
		"what is taken out of a turn is a reason to scrub":                              pruned,
		"a question that grows is indexed whole":                                        growing,
		"a swap waits for the new generation, and fences the former one":                swaps,
		"a swap counts, or a claim meanwhile":                                           claimsDuringSwap,
		"a claim of a generation that is no longer served fails":                        claimsAfterSwap,
		"the last of two rebuilds counts, and none leaves anything":                     abandoned,
		"a collection that was begun in vain holds nothing up":                          begunInVain,
		"a generation that has lost something is not served":                            lostWhileFilled,
		"a sweep drops older generations, and not the one that is filled":               sweptBesideRebuild,
		"vectors of two models are never mixed":                                         otherModel,
		"vectors of another length are seen while nothing is written":                   otherLengthAtRest,
		"turns of two settings of anonymous sessions are a rebuild that says so":        changedAnonymous,
		"texts of some turns are a rebuild that says so":                                changedTexts,
		"vectors of another length are left out until a rebuild":                        otherDimensions,
		"vectors are of both languages, and of so many characters":                      embedded,
		"a text is sent once, and nothing for a while after a failure":                  embedding,
		"a text that the embedder refuses costs no other its vector":                    refusedTexts,
		"a turn is found once, by its nearer half":                                      nearestHalves,
		"a text that was extended has a vector of its own":                              extendedAnswer,
		"filters compare whole names":                                                   identities,
		"verify reports all that differs":                                               verified,
		"verify waits for a view that went back":                                        verifiedBehind,
		"verify compares once more what was written as it looked":                       verifiedOnceMore,
		"an object that is taken at last is no dead letter":                             takenAtLast,
		"a store that takes nothing is waited for":                                      takesNothing,
		"what the index had of a turn goes when the store refuses what the turn is":     refusedExtension,
		"what a parked event deletes is deleted":                                        parkedDeletions,
		"a generation is replaced at its age":                                           scrubbedByAge,
		"what a retention takes out of the log leaves the index before":                 forgotten,
		"a dead letter that is tried again brings the session as the index may have it": restored,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &world{indextest.NewWorld(t, inMemory(t), 2)})
		})
	}
}

func TestLiveEqualsRebuiltEqualsTheLog(t *testing.T) {
	t.Parallel()
	logs := 8
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		logs = 200
	}
	indextest.Property(t, logs, inMemory)
}

// What the suite runs on keeps the contract that Weaviate keeps.
func TestTheStoreInMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	indextest.Contract(t, inMemory)
}

func inMemory(testing.TB) index.Store { return indextest.NewMemory().Store() }

func id(session, request string) string { return events.TurnID(session, request).String() }

// redacted redacts a turn of the session s.
func redacted(request string) events.Fact {
	return &events.TurnRedacted{TurnID: events.TurnID("s", request), SessionID: "s"}
}

func turnsComeAndGo(t *testing.T, w *world) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "how do I change a bicycle tyre", "with levers")...)
	w.Append(t, indextest.Turn("s", "2", "what is the capital of Peru", "Lima")...)
	w.Append(t, indextest.Turn("anonymous", "1", "how do I change a bicycle tyre", "with levers")...)
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

func links(t *testing.T, w *world) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, indextest.Turn("s", "1", "a question before the link", "yes")...)
	w.Append(t, indextest.Linked("s", "ann"), indextest.Linked("other", "bob"))
	w.Append(t, indextest.Turn("other", "1", "a question before the link", "yes")...)
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "1")}, w.Found(t, v, "a question", "ann"))
	require.Equal(t, []string{id("other", "1")}, w.Found(t, v, "a question", "bob"))
	require.Empty(t, w.Differences(t, v))

	all := w.Open(t, func(c *index.Config) { c.Anonymous = true })
	w.Rebuild(t, all)
	w.Append(t, indextest.Turn("nobody", "1", "a question without an owner", "yes")...)
	w.CaughtUp(t, v)
	require.Len(t, w.Differences(t, all), 1, "the runner of the suite leaves anonymous turns out")
}

func versions(t *testing.T, w *world) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "the wrong question", "yes")...)
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

func withoutEmbedder(t *testing.T, w *world) {
	now := newClock()
	v := w.Open(t, func(c *index.Config) { c.Now = now.read })
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "a question with a vector", "yes")...)
	w.CaughtUp(t, v)
	w.Endpoint.Fail(http.StatusServiceUnavailable)
	w.Append(t, indextest.Turn("s", "2", "a question without a vector", "yes")...)
	w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	require.Empty(t, w.Found(t, v, "a question with a vector", ""))
	require.Empty(t, w.Differences(t, v))
	w.Endpoint.Fail(0)
	now.pass(time.Minute) // the embedder is left alone for a while
	require.NoError(t, v.Sweep(t.Context()))
	require.Equal(t, []string{id("s", "2")}, w.Found(t, v, "a question without a vector", ""))
}

func rebuilt(t *testing.T, w *world) {
	v := w.Open(t)
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	for _, request := range []string{"1", "2", "3"} {
		w.Append(t, indextest.Turn("s", request, "question "+request, "answer "+request)...)
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
	w.Append(t, indextest.Turn("s", "4", "question 4", "answer 4")...)
	w.CaughtUp(t, v)
	require.Len(t, w.Found(t, v, "question 4", "ann"), 4)
}

// lateWrites lets the writes of a runner arrive after another one has taken over and applied a redaction.
func lateWrites(t *testing.T, w *world) {
	late := &delayed{Objects: w.Store.Objects}
	v := w.Open(t, func(c *index.Config) { c.Store.Objects = late })
	stop := w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "what must go", "yes")...)
	w.CaughtUp(t, v)
	late.hold()
	w.Append(t, indextest.Turn("s", "2", "what must go as well", "yes")...)
	late.awaitHeld()
	stop() // else the two would go on taking over from each other, at each answer that was lost
	taking := w.Open(t)
	stop = w.Feed(t, taking)
	w.Append(t, redacted("2"))
	w.CaughtUp(t, taking)
	require.NotContains(t, w.Found(t, taking, "what must go as well", ""), id("s", "2"))
	stop() // else a claim might delete what came late before it is looked at
	late.release(t)
	require.Contains(t, w.Found(t, taking, "what must go as well", ""), id("s", "2"), "the write came late")
	w.Feed(t, taking) // it claims again
	w.Append(t, indextest.Linked("other", "bob"), indextest.Turn("s", "3", "a third question", "no")[0])
	w.CaughtUp(t, taking)
	hang.Until(t, func() bool {
		require.NoError(t, taking.Sweep(t.Context()))
		return len(w.Found(t, taking, "what must go as well", "")) == 1
	})
	require.Empty(t, w.Differences(t, taking))
}

func refusals(t *testing.T, w *world) {
	const text = "a text that the store refuses"
	v, store := w.spy(t)
	var healed atomic.Bool
	store.refuse = func(o *index.Object) bool { return !healed.Load() && o.Question.Neutral == text }
	w.Feed(t, v)
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "a text that it takes", "yes")...)
	w.Append(t, indextest.Turn("s", "2", text, "yes")...)
	w.Append(t, &events.TurnCorrected{
		TurnID: events.TurnID("s", "1c"), SessionID: "s", RequestID: "1c", ReplacesTurnID: events.TurnID("s", "1"),
		Question: events.Question{QuestionNeutral: text}, Answer: events.Answer{AnswerNeutral: "no"},
	})
	w.Append(t, indextest.Turn("s", "3", "a text behind it", "yes")...)
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "3")}, w.Found(t, v, "a text", "ann"), "what was corrected is gone")
	letters := desk.Of(w.Log).Queue(v, w.Log, w.Rules)
	all, err := letters.DeadLetters(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.NotContains(t, all[0].Reason, text)
	again, err := letters.RetryDeadLetter(t.Context(), all[0].Position)
	require.NoError(t, err)
	require.False(t, again.Applied)
	require.NoError(t, v.Sweep(t.Context()), "a sweep passes over it")
	healed.Store(true)
	for _, l := range all {
		again, err = letters.RetryDeadLetter(t.Context(), l.Position)
		require.NoError(t, err)
		require.True(t, again.Applied)
	}
	require.ElementsMatch(t, []string{id("s", "1c"), id("s", "2"), id("s", "3")}, w.Found(t, v, "a text", "ann"))
	require.Empty(t, w.Differences(t, v))
}

func scrubbed(t *testing.T, w *world) {
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
	w.Append(t, indextest.Linked("s", "ann"))
	w.Append(t, indextest.Turn("s", "1", "what must go", "yes")...)
	at := w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	files, err := v.Files(t.Context(), at.Partition)
	require.NoError(t, err)
	require.Less(t, files.Seq, at.Seq)
	<-time.After(300 * time.Millisecond) // several looks
	require.Empty(t, rebuilt, "the log still holds the text")
	forgotten.Store(at.Seq)
	<-rebuilt
	files, err = v.Files(t.Context(), at.Partition)
	require.NoError(t, err)
	require.Equal(t, at, files)
	w.Append(t, indextest.Turn("s", "2", "what stays", "yes")...)
	w.CaughtUp(t, v)
	<-time.After(300 * time.Millisecond)
	require.Empty(t, rebuilt, "once")
}
