package recall_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

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
