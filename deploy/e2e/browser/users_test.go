package browser_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// press follows the first link, or presses the first button, that says a text; pressLast the last one.
func (w *window) press(says string, status int) { w.pressAt(0, says, status) }

func (w *window) pressLast(says string, status int) { w.pressAt(-1, says, status) }

func (w *window) pressAt(n int, says string, status int) {
	w.t.Helper()
	const find = `[...document.querySelectorAll("a, button")].filter(e => e.innerText.trim() === %q).at(%d).focus()`
	w.eval(fmt.Sprintf(find, says, n), nil)
	w.leads(status, chromedp.KeyEvent("\r"))
}

// Somebody who knows no address but the console's finds by its words alone why a turn was answered as it was, rebuilds
// a view and sees it come back, and erases a user and sees that proven: on this machine, and with a key.
func TestTasksByWordsAlone(t *testing.T) {
	t.Parallel()
	locked, key := served(t)
	tell(t, locked)
	for name, c := range map[string]struct {
		p   *stack.Process
		key string
	}{"dev": {started(t), ""}, "serve": {locked, key}} {
		w := openWith(t, c.p, c.key)
		w.visit("/console/", http.StatusOK)
		w.shot("task-" + name + "-sessions")
		w.press("The garden", http.StatusOK)
		w.shot("task-" + name + "-session")
		w.press("explain", http.StatusOK)
		w.shot("task-" + name + "-explain")
		require.Contains(t, w.text("h2"), "What the model was sent")
		require.Contains(t, w.text("#explained .message.user"), "Who was in the garden?")
		require.Contains(t, w.text("#answered"), "The butler was.")
		require.Contains(t, w.text("#explained .hint"), "at most 20 messages of history")
		w.press(told, http.StatusOK)
		w.pressLast("explain", http.StatusOK)
		w.shot("task-" + name + "-explain-last")
		for _, why := range []string{"Who was in the garden?\tshown", "redacted", "corrected"} {
			require.Contains(t, w.text("#explained tbody"), why)
		}

		w.press("Views", http.StatusOK)
		w.shot("task-" + name + "-views")
		w.press("Rebuild", http.StatusOK)
		w.press("Begin the rebuild", http.StatusOK)
		w.until(`document.querySelector("[role=status]").innerText.includes("is served")`)
		w.shot("task-" + name + "-rebuilt")
		w.press("Compare with the log", http.StatusOK)
		require.Contains(t, w.text("main"), "No difference")
		w.shot("task-" + name + "-compared")

		w.press("Sessions", http.StatusOK)
		w.fill("#identity_id", "ada")
		w.press("Filter", http.StatusOK)
		w.shot("task-" + name + "-filtered")
		w.press("Erase this identity", http.StatusOK)
		w.click("input[name=sure]")
		w.shot("task-" + name + "-erase")
		w.press("Erase this identity", http.StatusOK)
		w.shot("task-" + name + "-receipt")
		w.until(`document.querySelector("#receipt .state-good")?.innerText === "complete"`)
		w.shot("task-" + name + "-proof")
		w.press("Sessions", http.StatusOK)
		w.fill("#identity_id", "ada")
		w.press("Filter", http.StatusOK)
		require.Contains(t, w.text("tbody"), "No session is like this")
		require.NotContains(t, w.text("body"), "The garden")
		w.press("Receipts", http.StatusOK)
		require.Contains(t, w.text("tbody"), "identity")
		w.shot("task-" + name + "-receipts")
	}
}
