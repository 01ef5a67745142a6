package browser_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// started runs turnledger dev with the told session.
func started(t testing.TB, env ...string) *stack.Process {
	t.Helper()
	program(t)
	p := stack.Start(t, env, "dev", "--data-dir", stack.DataDir(t))
	tell(t, p)
	return p
}

// What is recorded while a session's page, or the log, is open appears on it; what was opened stays open, and the page
// can be paused.
func TestLiveRows(t *testing.T) {
	t.Parallel()
	p := started(t)
	w := open(t, p.URL)
	w.visit("/console/sessions/"+told, http.StatusOK)
	w.until(`document.querySelector("[data-live] [role=status]").innerText === "Live"`)
	w.click("#groups > details:last-child > summary")
	w.eval(`window.kept = document.querySelector("#rows > article"), true`, nil)
	p.RecordTurn(t, told, "live", "Is this live?", "It is.")
	w.until(`document.querySelector("#rows").innerText.includes("It is.")`)
	w.until(`document.querySelectorAll("#groups > details[open]").length === 1`)
	same := false
	w.eval(`kept === document.querySelector("#rows > article")`, &same)
	require.True(t, same, "a row that did not change stays")
	w.fits("live")
	w.barriers("live")

	w.click("[data-live] button")
	p.RecordTurn(t, told, "paused", "And now?", "It waits.")
	w.until(`document.querySelector("[data-live] [role=status]").innerText.includes("there is more")`)
	require.NotContains(t, w.text("#rows"), "It waits.")
	w.click("[data-live] button")
	w.until(`document.querySelector("#rows").innerText.includes("It waits.")`)

	w.visit("/console/log", http.StatusOK)
	w.until(`document.querySelector("[data-live] [role=status]").innerText === "Live"`)
	p.RecordTurn(t, "elsewhere", "r", "q", "a")
	w.until(`document.querySelector("#tail").innerText.includes("elsewhere")`)
}

// The slider of an explanation moves over the session's positions by the keyboard alone, and the address follows.
// Without scripts its form and the links beside it do.
func TestTheSliderOfAnExplanation(t *testing.T) {
	t.Parallel()
	p := started(t)
	w := open(t, p.URL)
	w.visit("/console/sessions/"+told, http.StatusOK)
	links := w.hrefs("article h3 a[href*='/turns/']")
	w.visit(links[0], http.StatusOK)
	require.Equal(t, "1", w.text("#nth"))
	var size string
	w.eval(`document.querySelector("#n").max`, &size)
	w.do(chromedp.Focus(chromedp.CSS("#n")), chromedp.KeyEvent(kb.ArrowRight))
	w.until(`location.pathname.endsWith("/explain")`)
	require.Equal(t, "2", w.text("#nth"))
	require.Contains(t, w.text("#explained"), "The butler was.")
	require.Contains(t, w.text("#explained"), "right after this event")
	w.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	w.until(`document.querySelector("#explained tbody").rows.length === 2`)
	require.Contains(t, w.text("#explained"), "He cut the roses.")
	require.Contains(t, w.text("#explained"), "tokens")
	require.Contains(t, w.text("#explained tbody"), "shown")
	var focused string
	w.eval(`document.activeElement.id`, &focused)
	require.Equal(t, "n", focused)
	w.barriers("an event")
	w.fits("an event")
	w.do(chromedp.KeyEvent(kb.End))
	w.until(`document.querySelector("#explained a[rel=next]") === null`)
	require.Equal(t, size, w.text("#nth"))
	w.scripts(false)
	w.visit("/console/sessions/"+told+"/explain?n=3", http.StatusOK)
	require.Contains(t, w.text("#explained"), "What did he do there?")
	w.follow("#explained a[rel=next]", http.StatusOK)
	require.Contains(t, w.text("#explained"), "He cut the roses.")
	w.follow("form[data-slide] button", http.StatusOK)
	require.Contains(t, w.text("#explained"), "He cut the roses.")
	w.follow("#here", http.StatusOK)
	require.Contains(t, w.path(), "/explain?at=0%3A4")
}

// Each action by the keyboard and the forms of its page, without scripts too, and with a key.
func TestActions(t *testing.T) {
	t.Parallel()
	free := started(t)
	locked, key := served(t)
	for id, c := range map[string]struct {
		p       *stack.Process
		key     string
		without bool
	}{"with": {p: free}, "without": {p: free, without: true}, "keys": {p: locked, key: key}} {
		p, w := c.p, openWith(t, c.p, c.key)
		w.scripts(!c.without)
		session := "/console/sessions/" + id
		p.RecordTurn(t, id, "r1", "A first question", "A first answer")
		p.RecordTurn(t, id, "r2", "An address", "My address")
		p.LinkIdentity(t, id, "of "+id)
		w.visit(session, http.StatusOK)
		acts := w.hrefs(".acts a")
		require.Len(t, acts, 6)

		w.visit(acts[0], http.StatusOK) // correct
		w.barriers("correct")
		w.fill("#answer", "A better answer")
		w.follow("form.act button", http.StatusOK)
		require.Contains(t, w.text("article.earlier"), "A first answer")
		require.Contains(t, w.text("article:not(.earlier)"), "A better answer")

		w.visit(acts[4], http.StatusOK) // branch
		w.follow("form.act button", http.StatusOK)
		require.Contains(t, w.text("dl.facts"), "Branch of")

		w.visit(acts[5], http.StatusOK) // redact
		w.barriers("redact")
		w.fits("redact")
		require.Contains(t, w.text("main"), "My address")
		w.click("input[name=sure]")
		w.fill("#reason", "asked to")
		w.follow("form.act button", http.StatusOK)
		require.Contains(t, w.text("dl.facts"), "Requested")
		hang.Until(t, func() bool {
			w.visit(w.path(), http.StatusOK)
			return w.text("dl.facts .state-good") == "complete"
		})
		w.visit(session, http.StatusOK)
		require.NotContains(t, w.text("body"), "My address")
		require.Contains(t, w.text("article"), "This turn was redacted")

		w.visit(session+"/describe", http.StatusOK)
		w.barriers("describe")
		w.fill("#title", "A title")
		w.follow("form.act button", http.StatusOK)
		require.Contains(t, w.text("dl.facts"), "A title")
		w.visit(session+"/reset", http.StatusOK)
		w.follow("form.act button", http.StatusOK)

		w.visit("/console/identities/"+url.PathEscape("of "+id)+"/erase", http.StatusOK)
		w.click("input[name=sure]")
		w.follow("form.act button", http.StatusOK)
		hang.Until(t, func() bool {
			w.visit(w.path(), http.StatusOK)
			return w.text("dl.facts .state-good") == "complete"
		})
		w.visit(session, http.StatusNotFound)
	}
}

// A view is rebuilt and compared in the console.
func TestAViewIsRebuilt(t *testing.T) {
	t.Parallel()
	p := started(t)
	w := open(t, p.URL)
	generation := `[...document.querySelectorAll("#views tbody tr")].find(e => e.cells[0].innerText === "recent").cells[8].innerText`
	w.visit("/console/views", http.StatusOK)
	var before string
	w.eval(generation, &before)
	w.follow("a[href='/console/views/recent/rebuild']", http.StatusOK)
	w.barriers("rebuild")
	w.follow("form.act button", http.StatusOK)
	require.Contains(t, w.path(), "/console/views?")
	w.until(generation + ` !== "` + before + `"`) // the page fetches itself
	w.until(`document.querySelector("#views [role=status]").innerText.includes("is served")`)
	w.follow("form[action='/console/views/recent/verify'] button", http.StatusOK)
	require.Contains(t, w.text("main"), "No difference")
	w.barriers("verified")
}

// Words that were said are found, and the query stands in no address.
func TestSearch(t *testing.T) {
	t.Parallel()
	p := started(t)
	w := open(t, p.URL)
	w.visit("/console/search", http.StatusOK)
	w.barriers("search")
	w.fits("search")
	w.fill("#query", "roses")
	w.follow("form.filter button", http.StatusOK)
	require.NotContains(t, w.path(), "roses")
	require.Contains(t, w.text("article"), "roses")
	w.barriers("hits")
	w.follow("article h3 a", http.StatusOK)
	require.Contains(t, w.path(), "/console/sessions/"+told)
}

// A message is sent and its answer appears while it is made; it is edited and asked again in branches. The prompt is
// shown before anything is recorded.
func TestPlayground(t *testing.T) {
	t.Parallel()
	m := stack.NewModel(t)
	p := stack.Start(t, m.Env(), "dev", "--data-dir", stack.DataDir(t))
	w := open(t, p.URL)
	w.visit("/console/playground", http.StatusOK)
	w.barriers("playground")
	w.fits("playground")
	w.fill("#thread_id", "played")
	w.fill("#content", "Who are you?")
	w.follow("button[formaction]", http.StatusOK)
	require.Contains(t, w.text("main"), "What the model would be sent")
	require.Equal(t, false, p.Get(t, "/v1/sessions/played")["found"], "nothing is recorded")
	w.barriers("prompt")
	w.click("#message button:not([formaction])")
	w.until(`document.querySelector("#rows")?.innerText.includes("Who are you?")`)
	require.Contains(t, w.path(), "thread_id=played")
	require.Equal(t, float64(1), p.Get(t, "/v1/sessions/played")["turns"])
	w.barriers("played")
	w.follow(".acts a[href*='edit=']", http.StatusOK)
	w.fill("#content", "Who am I?")
	w.click("#message button:not([formaction])")
	w.until(`!location.search.includes("thread_id=played") && document.querySelector("#rows")?.innerText.includes("Who am I?")`)
	require.NotContains(t, w.text("#rows"), "Who are you?")
	w.visit("/console/playground?thread_id=played", http.StatusOK)
	w.click(".acts form button")
	w.until(`!location.search.includes("thread_id=played") && document.querySelector("#rows")?.innerText.includes("Who are you?")`)
	w.scripts(false)
	w.visit("/console/playground?thread_id=played", http.StatusOK)
	w.fill("#content", "Without scripts")
	w.follow("#message button:not([formaction])", http.StatusOK)
	require.Contains(t, w.text("#rows"), "Without scripts")
}

// An answer appears while the model makes it, beside the events that are recorded meanwhile. Where the model fails, the
// page says so, and the message can be sent again.
func TestAnAnswerAppearsWhileItIsMade(t *testing.T) {
	t.Parallel()
	m := stack.NewModel(t)
	release := m.Hold()
	p := stack.Start(t, m.Env(), "dev", "--data-dir", stack.DataDir(t))
	w := open(t, p.URL)
	p.RecordTurn(t, "thread", "r", "Who is that?", "Somebody.")
	w.visit("/console/playground?thread_id=thread", http.StatusOK)
	w.until(`document.querySelector("[data-live] [role=status]").innerText === "Live"`)
	w.fill("#content", "Tell me slowly")
	w.click("#message button:not([formaction])")
	w.until(`document.querySelector("#answer .text").innerText.trim() === "Donald"`)
	w.until(`document.querySelector("#rows").innerText.includes("Tell me slowly")`)
	w.until(`document.querySelector("#groups").innerText.includes("no answer yet")`)
	w.barriers("an answer that is made")
	w.eval(`window.before = true`, nil)
	release()
	w.until(`!window.before && document.querySelector("#rows").innerText.includes("is an American politician")`)
	require.Contains(t, w.text("#groups"), "answered after")

	w.fill("#content", "Now fail")
	w.click("#message button:not([formaction])")
	w.until(`document.querySelector("#answer .text").innerText.includes("The model did not answer")`)
	w.until(`[...document.querySelectorAll("#message button")].every(e => !e.disabled)`)
}
