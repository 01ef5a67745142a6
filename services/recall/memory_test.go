package recall_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/effects"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/recall"
	"github.com/turnledger/turnledger/services/recall/supermemory"
)

var rules = conversation.Rules{SessionTTL: 24 * time.Hour}

// world is a log whose turns are forwarded to a memory, and prompts that ask it.
type world struct {
	t        *testing.T
	log      *jetlog.Log
	js       jetstream.JetStream
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
			w.js = must.Get(jetstream.New(natstest.Connect(t, server)))(t)
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
			w.effect = effects.New(w.js, forwarder, effects.Config{Log: w.log, Rules: rules})
			logger := slog.New(slog.DiscardHandler)
			deletions := recall.NewDeletions(w.log, recall.DeletionsConfig{Done: w.effect.Applied, Logger: logger})
			natstest.Run(w.t, deletions.Run)
			check := projections.ErasureCheck{Log: w.log}
			w.snippets = recall.NewSnippets(check, search, deletions.Confirmed, 5*time.Second)
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
	s, err := w.snippets.Snippet(w.t.Context(), services.MemoryQuery{SessionID: session, IdentityID: identity,
		Message: message, Shown: shown})
	require.NoError(w.t, err)
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
		require.Contains(t, line, "run a process with the role audit")
		require.Contains(t, line, "scopes=1")
		require.Contains(t, line, at.String())
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
		require.NoError(t, w.js.DeleteKeyValue(t.Context(), "turnledger-memory"))
		w.effect = effects.New(w.js, recall.NewForwarder(w.store, w.log, rules), effects.Config{Log: w.log,
			Rules: rules})
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
	search := supermemory.NewV5(supermemory.Config{URL: service.URL, Timeout: time.Minute})
	s := recall.NewSnippets(projections.ErasureCheck{}, search, free, 100*time.Millisecond)
	began := time.Now()
	must.Fail(s.Snippet(t.Context(), services.MemoryQuery{SessionID: "s", Message: "m"}))(t, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 20*time.Second)
}
