package index_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
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
		"an embedder that hangs holds up no deletion":                                          withHangingEmbedder,
		"a sweep that waits for vectors holds up no deletion, and brings nothing back":         sweptMeanwhile,
		"the embedder is asked for the texts of a large batch part by part":                    partByPart,
		"a rebuild takes vectors over":                                                         rebuilt,
		"an object that the store refuses for good becomes a dead letter":                      refusals,
		"a generation that may hold what was erased is replaced once the log has forgotten it": scrubbed,

		"a claim goes on where the last one was":                                        claimsGoOn,
		"a runner that stopped in mid-upsert brings no redacted text back":              stoppedInUpsert,
		"what the store has lost or kept of an older copy is put right":                 olderCopy,
		"a late deletion is put right":                                                  lateDeletion,
		"turns of anonymous sessions that are missed once are not written again":        missedOnce,
		"a runner that was taken over changes nothing":                                  takenOver,
		"a runner that is taken over in a batch moves no checkpoint":                    takenOverInBatch,
		"what may stand is deleted before it is written again":                          writtenAgain,
		"a link brings what follows the last silence, and a kind the rest":              silences,
		"what is taken out of a turn is a reason to scrub":                              pruned,
		"a swap waits for the new generation, and fences the former one":                swaps,
		"a swap counts, or a claim meanwhile":                                           claimsDuringSwap,
		"a claim of a generation that is no longer served fails":                        claimsAfterSwap,
		"the last of two rebuilds counts, and none leaves anything":                     abandoned,
		"a collection that was begun in vain holds nothing up":                          begunInVain,
		"what a generation has lost is written again":                                   lostWhileFilled,
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
		"verify compares once more what was written as it looked":                       verifiedMeanwhile,
		"verify reports all that differs":                                               verified,
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

// annAsks links the session s to Ann, who asks a question there, which is answered.
func annAsks(question, answer string) []events.Fact {
	return append([]events.Fact{indextest.Linked("s", "ann")}, turntest.Turn("s", "1", question, answer)...)
}

// corrected corrects a turn of the session s.
func corrected(request, old, question, answer string) events.Fact {
	return &events.TurnCorrected{TurnID: events.TurnID("s", request), SessionID: "s", RequestID: request,
		ReplacesTurnID: events.TurnID("s", old), Question: events.Question{QuestionNeutral: question},
		Answer: events.Answer{AnswerNeutral: answer}}
}

// extended extends the answer of a turn of the session s.
func extended(request, answer string) events.Fact {
	return &events.TurnExtended{TurnID: events.TurnID("s", request), SessionID: "s", ExtensionID: "e",
		Extension: events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool"}]`),
			AnswerNeutral: answer}}
}

// redacted redacts a turn of the session s.
func redacted(request string) events.Fact {
	return &events.TurnRedacted{TurnID: events.TurnID("s", request), SessionID: "s"}
}

// fed opens a view that is fed until the test ends.
func (w *world) fed(t testing.TB, change ...func(*index.Config)) *index.View {
	t.Helper()
	v := w.Open(t, change...)
	w.Feed(t, v)
	return v
}

// erasedUpTo says how far the log's eraser is.
func erasedUpTo(seq *atomic.Uint64) func(*index.Config) {
	return func(c *index.Config) {
		c.Erased = func(_ context.Context, k int) (events.Position, error) {
			return events.Position{Partition: k, Seq: seq.Load()}, nil
		}
	}
}

func turnsComeAndGo(t *testing.T, w *world) {
	v := w.fed(t)
	w.Append(t, annAsks("how do I change a bicycle tyre", "with levers")...)
	w.Append(t, turntest.Turn("s", "2", "what is the capital of Peru", "Lima")...)
	w.Append(t, turntest.Turn("anonymous", "1", "how do I change a bicycle tyre", "with levers")...)
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
	v := w.fed(t)
	w.Append(t, turntest.Turn("s", "1", "a question before the link", "yes")...)
	w.Append(t, indextest.Linked("s", "ann"), indextest.Linked("other", "bob"))
	w.Append(t, turntest.Turn("other", "1", "a question before the link", "yes")...)
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "1")}, w.Found(t, v, "a question", "ann"))
	require.Equal(t, []string{id("other", "1")}, w.Found(t, v, "a question", "bob"))
	require.Empty(t, w.Differences(t, v))
}

func versions(t *testing.T, w *world) {
	v := w.fed(t)
	w.Append(t, annAsks("the wrong question", "yes")...)
	w.Append(t, corrected("1c", "1", "about volcanoes", "hot"), extended("1c", "lava and ash"))
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "1c")}, w.Found(t, v, "volcanoes", "ann"))
	require.Empty(t, w.Differences(t, v))
	w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	require.Empty(t, w.Found(t, v, "volcanoes", "ann"), "a redaction of any version redacts the turn")
}

func rebuilt(t *testing.T, w *world) {
	v := w.fed(t)
	w.Append(t, indextest.Linked("s", "ann"))
	for _, request := range []string{"1", "2", "3"} {
		w.Append(t, turntest.Turn("s", request, "question "+request, "answer "+request)...)
	}
	w.CaughtUp(t, v)
	texts := w.Endpoint.Texts()
	before := must.Get(v.Served(t.Context()))(t)
	w.Rebuild(t, v)
	w.CaughtUp(t, v)
	require.Equal(t, texts, w.Endpoint.Texts(), "no text is embedded twice")
	require.Greater(t, must.Get(v.Served(t.Context()))(t).Generation, before.Generation)
	require.Empty(t, w.Differences(t, v))
	require.Len(t, w.Found(t, v, "question 2", "ann"), 3)
	w.only(t) // the former generation is dropped
	w.Append(t, turntest.Turn("s", "4", "question 4", "answer 4")...)
	w.CaughtUp(t, v)
	require.Len(t, w.Found(t, v, "question 4", "ann"), 4)
}

func refusals(t *testing.T, w *world) {
	const text = "a text that the store refuses"
	v, store := w.spy(t)
	var healed atomic.Bool
	store.refuse = func(o *index.Object) bool { return !healed.Load() && o.Question.Neutral == text }
	w.Feed(t, v)
	w.Append(t, annAsks("a text that it takes", "yes")...)
	w.Append(t, turntest.Turn("s", "2", text, "yes")...)
	w.Append(t, corrected("1c", "1", text, "no"))
	w.Append(t, turntest.Turn("s", "3", "a text behind it", "yes")...)
	w.CaughtUp(t, v)
	require.Equal(t, []string{id("s", "3")}, w.Found(t, v, "a text", "ann"), "what was corrected is gone")
	letters := desk.Of(w.Log).Queue(v, w.Log, w.Rules)
	all := must.Get(letters.DeadLetters(t.Context()))(t)
	require.Len(t, all, 2)
	require.NotContains(t, all[0].Reason, text)
	again := must.Get(letters.RetryDeadLetter(t.Context(), all[0].Position))(t)
	require.False(t, again.Applied)
	require.NoError(t, v.Sweep(t.Context()), "a sweep passes over it")
	healed.Store(true)
	for _, l := range all {
		again = must.Get(letters.RetryDeadLetter(t.Context(), l.Position))(t)
		require.True(t, again.Applied)
	}
	require.ElementsMatch(t, []string{id("s", "1c"), id("s", "2"), id("s", "3")}, w.Found(t, v, "a text", "ann"))
	require.Empty(t, w.Differences(t, v))
}

func scrubbed(t *testing.T, w *world) {
	var forgotten atomic.Uint64
	var later atomic.Int64
	v := w.Open(t, erasedUpTo(&forgotten), func(c *index.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	w.Feed(t, v)
	rebuilt := make(chan struct{}, 1)
	natstest.Run(t, index.Scrub{View: v, After: 50 * time.Millisecond, Rebuild: func(context.Context) error {
		w.Rebuild(t, v)
		rebuilt <- struct{}{}
		return nil
	}}.Run)
	w.Append(t, annAsks("what must go", "yes")...)
	at := w.Append(t, redacted("1"))
	w.CaughtUp(t, v)
	files := must.Get(v.Files(t.Context(), at.Partition))(t)
	require.Less(t, files.Seq, at.Seq)
	<-time.After(300 * time.Millisecond) // several looks
	require.Empty(t, rebuilt, "the log still holds the text")
	forgotten.Store(at.Seq)
	<-rebuilt
	files = must.Get(v.Files(t.Context(), at.Partition))(t)
	require.Less(t, files.Seq, at.Seq, "a runner of the former generation may still write")
	later.Store(int64(time.Minute))
	files = must.Get(v.Files(t.Context(), at.Partition))(t)
	require.Equal(t, at, files)
	require.GreaterOrEqual(t, settledAt(t, v, at.Partition), at.Seq, "nobody wrote beside the rebuild")
	w.Append(t, turntest.Turn("s", "2", "what stays", "yes")...)
	w.CaughtUp(t, v)
	<-time.After(300 * time.Millisecond)
	require.Empty(t, rebuilt, "once")
}

// silence is how long a session of these tests may be silent.
const silence = 30 * time.Millisecond

// silences: a link brings the turns since the last silence, a kind takes silences back and brings the rest, and a
// replaced turn comes with neither.
func silences(t *testing.T, w *world) {
	w.Rules.SessionTTL = silence
	v := w.Open(t)
	w.Append(t, turntest.Turn("s", "1", "before the silence", "yes")...)
	pause.For(t.Context(), 3*silence)
	w.Append(t, turntest.Turn("s", "2", "after the silence", "yes")...)
	w.Append(t, corrected("2c", "2", "corrected", "no"), indextest.Linked("s", "ann"))
	h := w.claim(t, v, "s").must(t)
	require.Nil(t, w.object(t, "s", "2"), "replaced")
	before := w.object(t, "s", "1") != nil
	w.Agree(t, v, "s")
	w.Append(t, &events.SessionDescribed{
		SessionID: "s", RequestID: "d", After: events.Position{Partition: h.partition}, Kind: events.KindConversation,
	})
	h.must(t)
	require.False(t, before)
	require.NotNil(t, w.object(t, "s", "1"), "no silence counts in a session of a kind")
	require.Nil(t, w.object(t, "s", "2"))
	w.Agree(t, v, "s")
}

// pruned: what is taken out of a turn is a reason to scrub, though the turn stays.
func pruned(t *testing.T, w *world) {
	var forgotten atomic.Uint64
	v := w.Open(t, erasedUpTo(&forgotten))
	turn := events.TurnID("s", "1")
	w.Append(t, indextest.Linked("s", "ann"), turntest.Turn("s", "1", "what is hot", "")[0], &events.TurnFinalized{
		TurnID: turn, SessionID: "s", Answer: events.Answer{AnswerNeutral: "lava", AnswerMessages: []byte(
			`[{"role":"assistant","content":"lava"},{"role":"assistant","content":"ash"}]`,
		)},
	})
	h := w.claim(t, v, "s").must(t)
	s := natstest.Fold(t, w.Log, "s", w.Rules)
	var brought []events.Recorded
	for e, err := range w.Log.Session(t.Context(), "s", 0, 1<<40) {
		require.NoError(t, err)
		if e.Type == events.TypeTurnStarted || e.Type == events.TypeTurnFinalized {
			brought = append(brought, e)
		}
	}
	n := 0
	prune := decide.Prune{SessionID: "s", TurnID: turn, PruneID: "p", Partition: h.partition}
	prune.Keep = func(m session.Message) json.RawMessage {
		if n++; n == 3 { // the question, lava, ash
			return nil
		}
		return m.Raw
	}
	facts := prune.On(s, s.Turn(turn), session.Messages(s.Turn(turn), brought)).Facts
	require.NotEmpty(t, facts)
	w.Append(t, facts...)
	h.must(t)
	require.NotNil(t, w.object(t, "s", "1"))
	w.Agree(t, v, "s")
	forgotten.Store(1 << 40)
	<-scrubs(t, v)
}

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// Vectors are counted by how they came, sweeps by their result and by what they have put right.
func TestTheIndexCountsItsWork(t *testing.T) {
	t.Parallel()
	s := indextest.NewMemory()
	w := &world{indextest.NewWorld(t, s.Store(), 1)}
	reg, now := prometheus.NewRegistry(), newClock()
	v := w.fed(t, func(c *index.Config) { c.Registry, c.Now = reg, now.read })
	vectors := func(how string) float64 { return indextest.Counted(t, reg, "turnledger_index_vectors_total", how) }
	swept := func(what string) float64 { return indextest.Counted(t, reg, "turnledger_index_swept_total", what) }
	sweeps := func(result string) float64 { return indextest.Counted(t, reg, "turnledger_index_sweeps_total", result) }
	w.Append(t, annAsks("a question", "an answer")...)
	w.CaughtUp(t, v)
	require.EqualValues(t, 2, vectors("made"))
	w.Rebuild(t, v)
	w.CaughtUp(t, v)
	require.EqualValues(t, 2, vectors("made"), "a rebuild makes none anew")
	require.GreaterOrEqual(t, vectors("taken over"), 2.0)

	w.Endpoint.Fail(http.StatusBadRequest)
	w.Append(t, turntest.Turn("s", "2", "a bare question", "a bare answer")...)
	w.CaughtUp(t, v)
	require.EqualValues(t, 2, vectors("made"))
	w.Endpoint.Fail(0)
	require.NoError(t, w.Store.Create(t.Context(), index.Collection{Name: index.Prefix + "old_000000", Mark: "left"}))
	now.pass(time.Minute) // the embedder is left alone for a while
	require.NoError(t, v.Sweep(t.Context()))
	require.EqualValues(t, 1, swept("missing vector"))
	require.EqualValues(t, 4, vectors("made"))
	require.EqualValues(t, 1, swept("collection"))
	require.Positive(t, sweeps("done"))
	require.Zero(t, sweeps("failed"))
	s.Away()
	require.Error(t, v.Sweep(t.Context()))
	require.EqualValues(t, 1, sweeps("failed"))
}

// Two stores on one log don't fill each other anew: the index goes to the one that came last, and the processes of the
// other one say what is wrong, and leave what they have alone.
func TestTwoStoresOnOneLog(t *testing.T) {
	t.Parallel()
	first, second := indextest.NewMemory(), indextest.NewMemory()
	w := &world{indextest.NewWorld(t, first.Store(), 1)}
	v := w.fed(t)
	w.Append(t, annAsks("a question", "yes")...)
	w.CaughtUp(t, v)
	kept := must.Get(w.Store.List(t.Context()))(t)

	w.Store = second.Store()
	moved := w.Open(t)
	w.Feed(t, moved)
	w.Reached(t, moved)
	before := must.Get(moved.Served(t.Context()))(t)
	require.Error(t, v.Look(t.Context()))
	for range 10 {
		err := v.Sweep(t.Context())
		require.ErrorIs(t, err, projections.ErrUnavailable)
		require.ErrorContains(t, err, "all processes need the same TURNLEDGER_WEAVIATE_URL")
		require.ErrorContains(t, v.Prepare(t.Context()), "all processes need the same TURNLEDGER_WEAVIATE_URL")
		w.Append(t, turntest.Turn("s", "2", "another question", "yes")[0])
		<-time.After(50 * time.Millisecond) // the first runner tries again meanwhile
	}
	require.Equal(t, before.Generation, must.Get(moved.Served(t.Context()))(t).Generation)
	w.Agree(t, moved, "s")
	require.Equal(t, kept, must.Get(first.List(t.Context()))(t))
}

// Two logs on one store don't take each other's index away, which each would fill anew for good. The second says what
// is wrong, until its operator has it take the store over.
func TestTwoLogsOnOneStore(t *testing.T) {
	t.Parallel()
	s := indextest.NewMemory()
	w := &world{indextest.NewWorld(t, s.Store(), 1)}
	v := w.fed(t)
	w.Append(t, annAsks("a question", "yes")...)
	w.CaughtUp(t, v)

	other := indextest.NewWorld(t, s.Store(), 1)
	late := index.New(other.Config())
	for range 2 {
		err := late.Prepare(t.Context())
		require.ErrorIs(t, err, projections.ErrUnavailable)
		require.ErrorContains(t, err, "each log needs a Weaviate of its own")
		require.NoError(t, v.Sweep(t.Context()))
	}
	w.Agree(t, v, "s")

	other.Append(t, indextest.Linked("t", "bob"))
	other.Append(t, turntest.Turn("t", "1", "another question", "no")...)
	other.Rebuild(t, late)
	other.Feed(t, late)
	other.Reached(t, late)
	require.Error(t, v.Look(t.Context()))
	require.ErrorContains(t, v.Prepare(t.Context()), "each log needs a Weaviate of its own")
	require.Error(t, v.Sweep(t.Context()), "what it fed is gone")
	require.NoError(t, late.Sweep(t.Context()))
	other.Agree(t, late, "t")
	require.Zero(t, must.Get(late.Files(t.Context(), 0))(t).Seq, "nothing is known of what the log has forgotten")
}

// A store that was emptied, filled again and then put back to its older copy has an index of before: a rebuild brings
// the index back, and no rebuild begins by itself, since another store might have the index.
func TestAnOlderIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	s := indextest.NewMemory()
	w := &world{indextest.NewWorld(t, s.Store(), 1)}
	var forgotten atomic.Uint64
	v := w.Open(t, erasedUpTo(&forgotten))
	w.Append(t, annAsks("a question", "yes")...)
	w.Append(t, turntest.Turn("s", "0", "what must go", "yes")...)
	stop := w.Feed(t, v)
	w.Reached(t, v)
	stop()
	s.Save()
	s.Empty()
	stop = w.Feed(t, v)
	w.Reached(t, v)
	gone := w.Append(t, redacted("0"))
	w.Reached(t, v)
	stop()
	s.Back()
	require.ErrorContains(t, v.Prepare(t.Context()), "run turnledger projections rebuild index")
	require.ErrorContains(t, v.Sweep(t.Context()), "run turnledger projections rebuild index")

	forgotten.Store(gone.Seq) // so that a rebuild by its age is due
	scrubbing, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, index.Scrub{View: v, After: 10 * time.Millisecond, Rebuild: func(context.Context) error {
		t.Error("a rebuild began by itself")
		return nil
	}}.Run(scrubbing))

	w.Rebuild(t, v)
	require.Len(t, w.Found(t, v, "a question", "ann"), 1)
	w.Append(t, turntest.Turn("s", "2", "another question", "yes")...)
	w.Feed(t, v)
	w.Reached(t, v)
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}
