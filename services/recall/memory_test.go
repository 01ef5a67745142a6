package recall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/effects"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/recall"
	"github.com/turnledger/turnledger/services/recall/supermemory"
)

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// world is a log whose turns are forwarded to a memory, and prompts that ask it.
type world struct {
	t        *testing.T
	log      *jetlog.Log
	service  *memorytest.Server
	store    recall.Store
	effect   *effects.Effect
	snippets *recall.Snippets
}

// both runs a test on both versions of the API.
func both(t *testing.T, test func(w *world)) {
	t.Parallel()
	for _, version := range []string{"v5", "v4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			w := &world{t: t, log: natstest.LogOn(t, server, 2), service: memorytest.New(t)}
			to := supermemory.Config{URL: w.service.URL, Key: "k"}
			var search recall.Searcher
			if version == "v4" {
				m := supermemory.NewV4(to)
				w.store, search = m, m
			} else {
				m := supermemory.NewV5(to)
				w.store, search = m, m
			}
			forwarder := recall.NewForwarder(w.store, w.log, rules)
			w.effect = effects.New(forwarder, effects.Config{Desk: desk.Of(w.log), Log: w.log, Rules: rules})
			logger := slog.New(slog.DiscardHandler)
			deletions := recall.NewDeletions(w.log, recall.DeletionsConfig{Done: w.effect.Applied, Logger: logger})
			natstest.Run(w.t, deletions.Run)
			check := projections.ErasureCheck{Log: w.log}
			w.snippets = recall.NewSnippets(check, search, deletions.Confirmed, hang.Limit)
			test(w)
		})
	}
}

func (w *world) forward() (stop func()) {
	return natstest.Run(w.t, runner.New(w.log, w.effect, runner.Config{
		Rules: rules, Pause: 20 * time.Millisecond, Group: desk.Of(w.log).Members(w.effect.Name(), nil),
		Beat: 50 * time.Millisecond,
	}).Run)
}

func (w *world) add(facts ...events.Fact) events.Position {
	w.t.Helper()
	return natstest.Append(w.t, w.log, facts...)
}

func (w *world) turn(session, request, question, answer string) (uuid.UUID, events.Position) {
	w.t.Helper()
	id := events.TurnID(session, request)
	return id, w.add(&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: question}},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: answer}})
}

// until waits for the forwarder to be at a position.
func (w *world) until(at events.Position) {
	w.t.Helper()
	hang.Until(w.t, func() bool {
		done, err := w.effect.Applied(w.t.Context(), at.Partition)
		return err == nil && done.Seq >= at.Seq
	})
}

func (w *world) snippet(session, identity, message string, shown ...uuid.UUID) string {
	w.t.Helper()
	s := must.Get(w.snippets.Snippet(w.t.Context(), services.MemoryQuery{SessionID: session, IdentityID: identity,
		Message: message, Shown: shown}))(w.t)
	return s.Text
}

func (w *world) contents() (out []string) {
	for _, d := range w.service.Documents() {
		out = append(out, d.Scope+" | "+strings.ReplaceAll(d.Content, "\n", " | "))
	}
	return out
}

//conformance:i62 h66
func TestFinalizedTurnsAreRememberedInTheScopeThatIsSearched(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.add(&events.SessionLinked{SessionID: "s1", IdentityID: "ada"}, &events.SessionLinked{SessionID: "s2",
			IdentityID: "eve"})
		teal, at := w.turn("s1", "r1", "I like teal.", "Teal it is.")
		w.until(at)
		_, at = w.turn("s2", "r1", "I like red.", "Red it is.")
		w.until(at)
		_, at = w.turn("guest", "r1", "I like grey.", "Grey it is.")
		w.until(at)
		w.add(&events.TurnStarted{TurnID: events.TurnID("s1", "open"), SessionID: "s1", RequestID: "open",
			Question: events.Question{QuestionNeutral: "I like nobody's answer"}})
		require.Equal(t, []string{
			"thread:guest | User: I like grey. | Assistant: Grey it is.",
			"user:eve | User: I like red. | Assistant: Red it is.",
			"user:ada | User: I like teal. | Assistant: Teal it is.",
		}, w.contents())
		require.Equal(t, "- User: I like teal. Assistant: Teal it is.", w.snippet("another", "ada", "what do I like"))
		require.Equal(t, "- User: I like grey. Assistant: Grey it is.", w.snippet("guest", "", "what do I like"))
		require.Empty(t, w.snippet("s1", "ada", "what do I like", teal), "what the prompt shows anyway")
		require.Empty(t, w.snippet("s1", "nobody", "what do I like"))
	})
}

// What a guest said before a silence or a reset is not hers who comes after it.
func TestAGuestsMemoryBeginsAfterTheBoundary(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		_, boundary := w.turn("guest", "r1", "I like grey.", "Grey it is.")
		_, at := w.turn("guest", "r2", "I like puce.", "Puce it is.")
		w.until(at)
		ask := func(after uint64) string {
			return must.Get(w.snippets.Snippet(t.Context(), services.MemoryQuery{SessionID: "guest", Message: "like",
				After: after}))(t).Text
		}
		require.Contains(t, ask(0), "grey")
		require.Equal(t, "- User: I like puce. Assistant: Puce it is.", ask(boundary.Seq))
		require.Empty(t, ask(at.Seq))
	})
}

// When retention has purged a guest's session, nothing says any more that a silence stands
// before who asks next under its id.
func TestWhatRetentionTakesTheMemoryForgets(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.turn("other", "r1", "I like teal.", "Teal it is.")
		_, at := w.turn("guest", "r1", "I like grey.", "Grey it is.")
		w.until(at)
		forwarder := recall.NewForwarder(w.store, w.log, rules)
		for range 2 { // again after a crash
			require.NoError(t, forwarder.Purge(t.Context(), "guest", at.Seq))
		}
		require.Equal(t, []string{"thread:other | User: I like teal. | Assistant: Teal it is."}, w.contents())
	})
}

// A guest's turns belong to the identity as soon as there is one.
//
//conformance:i61
func TestALinkMovesWhatASessionLeft(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.turn("s", "r1", "I like teal.", "Teal it is.")
		w.until(w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"}))
		require.Equal(t, []string{"user:ada | User: I like teal. | Assistant: Teal it is."}, w.contents())
	})
}

// A reset deletes nothing: a link behind it brings the identity what a reset behind the link would have left it.
//
//conformance:h51
func TestALinkMovesWhatStandsBeforeAReset(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.turn("s", "r1", "I like teal.", "Teal it is.")
		w.until(w.add(&events.SessionReset{SessionID: "s"}, &events.SessionLinked{SessionID: "s", IdentityID: "ada"}))
		require.Equal(t, []string{"user:ada | User: I like teal. | Assistant: Teal it is."}, w.contents())
	})
}

// While a deletion is not confirmed its scope gives nothing; when it is, the rest.
func TestWhatIsDeletedIsNotRememberedFromTheFirstMomentOn(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"})
		w.add(&events.SessionLinked{SessionID: "t", IdentityID: "eve"})
		secret, _ := w.turn("s", "r1", "I like teal.", "Teal it is.")
		_, at := w.turn("s", "r2", "I like tea.", "Tea it is.")
		w.until(at)
		_, at = w.turn("t", "r2", "I like rum.", "Rum it is.")
		w.until(at)
		w.service.Fail(func(r *http.Request, _ string) int {
			if r.Method == http.MethodDelete {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		at = w.add(&events.TurnRedacted{TurnID: secret, SessionID: "s", IdentityID: "ada"})
		must.Fail(w.snippets.Snippet(t.Context(), services.MemoryQuery{SessionID: "s", IdentityID: "ada",
			Message: "like"}))(t, services.ErrWithheld)
		require.Contains(t, w.snippet("t", "eve", "like"), "rum")
		w.service.Fail(nil)
		w.until(at)
		require.Equal(t, "- User: I like tea. Assistant: Tea it is.", w.snippet("s", "ada", "like"))
	})
}

// A deletion that nobody forwards is warned of, without a text or a scope's name.
func TestADeletionThatWaitsIsWarnedOf(t *testing.T) {
	both(t, func(w *world) {
		told := make(warnings, 10)
		natstest.Run(w.t, recall.NewDeletions(w.log, recall.DeletionsConfig{Done: w.effect.Applied,
			Logger: slog.New(slog.NewTextHandler(told, nil)), Remind: 20 * time.Millisecond}).Run)
		secret, _ := w.turn("guest", "r1", "I like teal.", "Teal it is.")
		at := w.add(&events.TurnRedacted{TurnID: secret, SessionID: "guest"})
		line := <-told
		must.Contain(t, line, "run a process with the role audit", "scopes=1", at.String())
		require.NotContains(t, line, "guest")
	})
}

// warnings are the lines of a log; those beyond what it holds are dropped.
type warnings chan string

func (c warnings) Write(line []byte) (int, error) {
	select {
	case c <- string(line):
	default:
	}
	return len(line), nil
}

func TestCorrectedAndErasedTurnsAreDeleted(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"}, &events.SessionLinked{SessionID: "gone",
			IdentityID: "ada"})
		old, _ := w.turn("s", "r1", "I like teal.", "Teal it is.")
		w.until(w.add(&events.TurnCorrected{
			TurnID: events.TurnID("s", "r1b"), SessionID: "s", RequestID: "r1b", ReplacesTurnID: old,
			Question: events.Question{QuestionNeutral: "I like blue."},
			Answer:   events.Answer{AnswerNeutral: "Blue it is."},
		}))
		require.Equal(t, []string{"user:ada | User: I like blue. | Assistant: Blue it is."}, w.contents())
		w.turn("gone", "r1", "I like rum.", "Rum it is.")
		w.turn("guest", "r1", "I like gin.", "Gin it is.")
		w.until(w.add(&events.SessionErased{SessionID: "gone", ReceiptID: uuid.NewString()}))
		w.until(w.add(&events.SessionErased{SessionID: "guest", ReceiptID: uuid.NewString()}))
		require.Equal(t, []string{"user:ada | User: I like blue. | Assistant: Blue it is."}, w.contents())
		w.until(w.add(&events.IdentityErased{IdentityID: "ada", ReceiptID: uuid.NewString()}))
		require.Empty(t, w.contents())
	})
}

// A session that is linked to an identity after its erasure moves to the memory until the eraser closes the session,
// and is not found there. The erasure, in another partition, would empty the memory if it were read after the session.
func TestNothingOfAnErasedIdentityIsFound(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.until(w.add(&events.IdentityErased{IdentityID: "ada", ReceiptID: uuid.NewString()}))
		w.turn("late", "r1", "I like gin.", "Gin it is.")
		w.until(w.add(&events.SessionLinked{SessionID: "late", IdentityID: "ada"}))
		require.Equal(t, []string{"user:ada | User: I like gin. | Assistant: Gin it is."}, w.contents())
		// What belongs to the identity is withheld until its deletion is confirmed; then there is nothing.
		hang.Until(t, func() bool {
			q := services.MemoryQuery{SessionID: "another", IdentityID: "ada", Message: "what do I like"}
			s, err := w.snippets.Snippet(t.Context(), q)
			require.Empty(t, s.Text)
			return err == nil
		})
	})
}

// A service that says it has forgotten a scope, and has not, is asked for each document.
func TestWhatIsSaidToBeForgottenIsGone(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.turn("guest", "r1", "I like gin.", "Gin it is.")
		w.turn("guest", "r2", "I like rum.", "Rum it is.")
		_, at := w.turn("linked", "r1", "I like tea.", "Tea it is.")
		w.until(at)
		w.service.Fail(func(r *http.Request, _ string) int {
			if r.Method == http.MethodDelete && (strings.Count(r.URL.Path, "/") == 2 || strings.HasSuffix(r.URL.Path,
				"/bulk")) {
				return http.StatusOK
			}
			return 0
		})
		w.until(w.add(&events.SessionErased{SessionID: "guest", ReceiptID: uuid.NewString()}))
		w.until(w.add(&events.SessionLinked{SessionID: "linked", IdentityID: "ada"}))
		require.Equal(t, []string{"user:ada | User: I like tea. | Assistant: Tea it is."}, w.contents())
	})
}

// The checkpoint is lost, or was not written: the same documents are there again, and no
// more.
func TestForwardingAgainIsHarmless(t *testing.T) {
	both(t, func(w *world) {
		stop := w.forward()
		w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"})
		secret, _ := w.turn("s", "r1", "I like teal.", "Teal it is.")
		w.turn("s", "r2", "I like tea.", "Tea it is.")
		at := w.add(&events.TurnRedacted{TurnID: secret, SessionID: "s", IdentityID: "ada"})
		w.until(at)
		before := w.contents()
		stop()
		notes := must.Get(w.log.Notes(t.Context()))(t)
		for k := range w.log.Partitions() {
			require.NoError(t, notes.Drop(t.Context(), fmt.Sprint("checkpoint.memory.", k)))
		}
		w.effect = effects.New(recall.NewForwarder(w.store, w.log, rules), effects.Config{Desk: desk.Of(w.log),
			Log: w.log, Rules: rules})
		w.forward()
		w.until(at)
		require.Equal(t, before, w.contents())
		require.Equal(t, 2, w.service.Documents()[0].Puts)
	})
}

// A memory that is slow or away costs a prompt its budget and no more.
func TestAMemoryThatDoesNotAnswerCostsItsBudget(t *testing.T) {
	t.Parallel()
	service := memorytest.New(t)
	service.Fail(func(r *http.Request, _ string) int { <-r.Context().Done(); return 500 })
	free := func(context.Context, recall.Scoped) (bool, error) { return true, nil }
	search := supermemory.NewV5(supermemory.Config{URL: service.URL, Timeout: hang.Limit})
	s := recall.NewSnippets(projections.ErasureCheck{}, search, free, 100*time.Millisecond)
	began := time.Now()
	must.Fail(s.Snippet(t.Context(), services.MemoryQuery{SessionID: "s", Message: "m"}))(t, context.DeadlineExceeded)
	require.Less(t, time.Since(began), hang.Limit)
}

// A letter that is tried again brings no old text into the place of a newer one, and no turn back to a guest's scope.
//
//conformance:h43
func TestALetterTriedAgainLeavesWhatCameBehindIt(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.service.Fail(func(_ *http.Request, body string) int {
			if strings.Contains(body, "puce") {
				return http.StatusUnprocessableEntity
			}
			return 0
		})
		turn, _ := w.turn("s", "r1", "What do I like?", "Teal.")
		extend := func(id, text string) events.Position {
			return w.add(&events.TurnExtended{TurnID: turn, SessionID: "s", ExtensionID: id,
				Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: text,
					Messages: []byte(`[{"role":"assistant","content":"` + text + `"}]`)}})
		}
		refused := extend("x1", "puce.")
		extend("x2", "Tea.")
		w.until(w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"}))
		want := []string{"user:ada | User: What do I like? | Assistant: Tea."}
		require.Equal(t, want, w.contents())
		w.service.Fail(nil)
		again := must.Get(desk.Of(w.log).Queue(w.effect, w.log, rules).RetryDeadLetter(t.Context(), refused))(t)
		require.True(t, again.Applied)
		require.Equal(t, want, w.contents())
	})
}

// A document that the service refuses waits among the dead letters and holds nobody up;
// a retry of one whose turn was redacted meanwhile stores nothing.
func TestARefusedDocumentIsADeadLetter(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"})
		w.service.Fail(func(_ *http.Request, body string) int {
			if strings.Contains(body, "teal") || strings.Contains(body, "puce") {
				return http.StatusUnprocessableEntity
			}
			return 0
		})
		_, teal := w.turn("s", "r1", "I like teal.", "Teal it is.")
		secret, puce := w.turn("s", "r2", "I like puce.", "Puce it is.")
		_, at := w.turn("s", "r3", "I like tea.", "Tea it is.")
		w.until(at)
		queue := desk.Of(w.log).Queue(w.effect, w.log, rules)
		letters := must.Get(queue.DeadLetters(t.Context()))(t)
		require.Len(t, letters, 2)
		require.Equal(t, teal, letters[0].Position)
		require.NotContains(t, letters[0].Reason, "teal")
		require.Equal(t, []string{"user:ada | User: I like tea. | Assistant: Tea it is."}, w.contents())
		again := must.Get(queue.RetryDeadLetter(t.Context(), teal))(t)
		require.False(t, again.Applied)
		require.Equal(t, 2, again.Attempts)
		w.until(w.add(&events.TurnRedacted{TurnID: secret, SessionID: "s", IdentityID: "ada"}))
		w.service.Fail(nil)
		for _, at := range []events.Position{teal, puce} {
			again = must.Get(queue.RetryDeadLetter(t.Context(), at))(t)
			require.True(t, again.Applied)
		}
		require.Equal(t, []string{"user:ada | User: I like tea. | Assistant: Tea it is.",
			"user:ada | User: I like teal. | Assistant: Teal it is."}, w.contents())
		must.Fail(queue.RetryDeadLetter(t.Context(), teal))(t, projections.ErrNoDeadLetter)
	})
}

// What a prune leaves of a turn takes the place of its document; where no text is left, the document goes.
func TestPrunedTurnsAreRememberedAsTheyAreLeft(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"})
		turn, _ := w.turn("s", "r1", "I like teal.", "Teal it is.")
		prune := func(id string, q events.Question, a events.Answer) {
			state := natstest.Fold(t, w.log, "s", session.Rules{})
			f := &events.TurnPruned{TurnID: turn, SessionID: "s", PruneID: id, Question: q, Answer: a,
				Tombstones: state.Tombstones(state.Chain(state.Turn(turn)), w.log.Partition("s")),
				Session:    &events.SessionMark{CreatedAt: state.CreatedAt, LastActiveAt: state.LastActive}}
			for _, x := range state.Turn(turn).Extensions() {
				f.Parts = append(f.Parts, events.Part{ID: x.ID, Half: x.Half})
			}
			w.until(w.add(f))
		}
		prune("p1", events.Question{QuestionNeutral: "I like teal."}, events.Answer{})
		require.Len(t, w.contents(), 1)
		require.NotContains(t, w.contents()[0], "Teal it is.")
		require.Contains(t, w.contents()[0], "I like teal.")
		prune("p2", events.Question{}, events.Answer{
			AnswerMessages: []byte(`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`)})
		require.Empty(t, w.contents())
	})
}

// near is an index that finds what it is told, once it may.
type near struct {
	hits  []services.SimilarHit
	err   error
	hangs bool
	asked []string
}

// Neighbours implements recall.Neighbours.
func (n *near) Neighbours(ctx context.Context, identity, text string, _ int) ([]services.SimilarHit, error) {
	n.asked = append(n.asked, identity+": "+text)
	if n.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.hits, n.err
}

// wordly is a search by words that finds what it is told.
type wordly struct {
	found []recall.Found
	err   error
}

// Search implements recall.Searcher.
func (w wordly) Search(context.Context, recall.Scoped, string, int) ([]recall.Found, error) {
	return w.found, w.err
}

func turnID(n byte) uuid.UUID { return uuid.UUID{15: n} }

// hit is a turn that is near.
func hit(n byte, score float64, question string) services.SimilarHit {
	of := projections.Hit{TurnID: turnID(n), Score: score}
	return services.SimilarHit{Hit: of, Question: question, Answer: "Yes."}
}

func fused(t *testing.T, words wordly, n *near, q services.MemoryQuery) (services.MemorySnippet, error) {
	t.Helper()
	free := func(context.Context, recall.Scoped) (bool, error) { return true, nil }
	check := projections.ErasureCheck{Log: natstest.Log(t, 1)}
	budget := map[bool]time.Duration{true: 5 * time.Second, false: hang.Limit}[n.hangs]
	s := recall.NewSnippets(check, words, free, budget).WithMeaning(recall.Meaning{Turns: n})
	q.Message = "a question"
	return s.Snippet(t.Context(), q)
}

var ada = services.MemoryQuery{SessionID: "s", IdentityID: "ada"}

// What is found by words and by meaning comes first, then the turns of both, each in its order and none twice.
func TestAMemoryFusesWordsAndMeaning(t *testing.T) {
	t.Parallel()
	words := wordly{found: []recall.Found{{TurnID: turnID(1), Text: "Only words."}, {TurnID: turnID(2), Text: "Both."}}}
	n := &near{hits: []services.SimilarHit{
		hit(3, 0.9, "Only meaning."), hit(2, 0.8, "Both."), hit(4, 0.5, "Half as near."), hit(5, 0.4, "Far."),
	}}
	got := must.Get(fused(t, words, n, ada))(t)
	require.Equal(t, services.MemorySnippet{
		Text: "- Both.\n- Only words.\n- User: Only meaning. Assistant: Yes.\n- User: Half as near.",
	}, got, "a turn that is less than half as near as the nearest is left out, and no sentence comes twice")
	require.Equal(t, []string{"ada: a question"}, n.asked)
	q := ada
	q.Shown = []uuid.UUID{turnID(2), turnID(3)}
	got = must.Get(fused(t, words, n, q))(t)
	require.Equal(t, "- Only words.\n- User: Half as near. Assistant: Yes.", got.Text, "what the prompt shows anyway")
}

// An index that fails, or does not answer in its part of the budget, leaves what the words have found, and the snippet
// says so.
func TestAMemoryWithoutItsIndexGoesByWords(t *testing.T) {
	t.Parallel()
	words := wordly{found: []recall.Found{{TurnID: turnID(1), Text: "Only words."}}}
	for name, n := range map[string]*near{
		"fails": {err: services.ErrIndex}, "hangs": {hangs: true},
		"fails late": {err: services.ErrIndex, hits: []services.SimilarHit{hit(2, 1, "Half an answer.")}},
	} {
		got := must.Get(fused(t, words, n, ada))(t, name)
		require.Equal(t, services.MemorySnippet{Text: "- Only words.", ByWords: true}, got, name)
	}
	other := &near{err: errors.Join(services.ErrIndex, projections.Unavailable(projections.ErrOtherModel))}
	got := must.Get(fused(t, words, other, ada))(t)
	require.Equal(t, services.MemorySnippet{Text: "- Only words.", ByWords: true, OtherModel: true}, got)
	refused := errors.New("refused")
	got, err := fused(t, wordly{err: refused}, &near{hits: []services.SimilarHit{hit(2, 1, "Near.")}}, ada)
	require.ErrorIs(t, err, refused, "tables that fail are not passed over in silence")
	require.Empty(t, got)
}

// The index is not asked for a session without an identity: it would search all identities.
func TestTheIndexIsNotAskedForAGuest(t *testing.T) {
	t.Parallel()
	n := &near{hits: []services.SimilarHit{hit(2, 1, "Near.")}}
	require.Empty(t, must.Get(fused(t, wordly{}, n, services.MemoryQuery{SessionID: "guest"}))(t))
	require.Empty(t, n.asked)
}
