package browser_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logintest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// told is a session in which everything has happened that a page shows in a way of its own.
const told = "told"

// tell records that session.
func tell(t testing.TB, p *stack.Process) {
	t.Helper()
	first := p.RecordTurn(t, told, "r1", "Who was in the garden?", "The butler was.")
	p.RecordTurn(t, told, "r2", "What did he do there?", "He cut the roses.")
	gone := p.RecordTurn(t, told, "r3", "And then?", "He wrote his address down.")
	p.LinkIdentity(t, told, "ada")
	path := stack.SessionPath(told)
	p.Must(t, http.StatusOK, http.MethodPatch, path, map[string]any{"title": "The garden",
		"metadata": map[string]any{"folder": "crime"}})
	p.Must(t, http.StatusCreated, http.MethodPost, path+"/summaries", map[string]any{"request_id": "m",
		"through_turn_id": first, "summary_neutral": "Somebody asked about the garden."})
	p.Must(t, http.StatusCreated, http.MethodPost, path+"/fork", map[string]any{"request_id": "f",
		"session_id": "branch", "turn_id": first})
	p.Must(t, http.StatusOK, http.MethodPost, path+"/turns/"+gone+"/redact", map[string]any{"reason": "an address"})
	second := p.RecordTurn(t, told, "r4", "Which roses?", "Red ones.")
	p.Must(t, http.StatusOK, http.MethodPost, path+"/turns/"+second+"/correct",
		map[string]any{"request_id": "c", "answer_neutral": "White ones."})
	p.Must(t, http.StatusCreated, http.MethodPost, path+"/turns", map[string]any{"request_id": "tools",
		"question_neutral": "How is the weather?", "answer_messages": []any{
			map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "c1",
				"type": "function", "function": map[string]any{"name": "weather", "arguments": `{"city":"Paris"}`}}}},
			map[string]any{"role": "tool", "tool_call_id": "c1", "content": "rain"},
			map[string]any{"role": "assistant", "content": "It rains."}}})
	p.Must(t, http.StatusCreated, http.MethodPost, path+"/turns", map[string]any{"request_id": "open",
		"question_neutral": "Is anybody there?"})
	p.RecordTurn(t, "erased", "r", "Forget me.", "Yes.")
	p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("erased"), nil)
}

// screen is a page of the console.
type screen struct{ name, path string }

// screens returns all pages of the console that read, with the told session.
func screens(t testing.TB, w *window) []screen {
	t.Helper()
	session := "/console/sessions/" + told
	w.visit(session, http.StatusOK)
	links := w.hrefs("article h3 a[href*='/turns/']")
	require.NotEmpty(t, links)
	w.visit("/console/receipts", http.StatusOK)
	receipts := w.hrefs("tbody a.id")
	require.Len(t, receipts, 2, "the redaction and the erasure")
	return []screen{
		{"sessions", "/console/"}, {"session", session}, {"explain", links[len(links)-1]},
		{"event", session + "/explain"}, {"log", "/console/log"},
		{"views", "/console/views"}, {"deadletters", "/console/deadletters"}, {"receipts", "/console/receipts"},
		{"receipt", receipts[0]}, {"keys", "/console/keys"}, {"stats", "/console/stats"},
	}
}

// dev runs turnledger dev with the real conversations and the told session.
func dev(t testing.TB, env ...string) *stack.Process {
	t.Helper()
	program(t)
	p := stack.Start(t, env, "dev", "--data-dir", stack.DataDir(t))
	code, _, errs := p.Run(t, append([]string{"import"}, stack.ConversationFiles(t)...)...)
	require.Equal(t, stack.ExitDone, code, errs)
	tell(t, p)
	p.WaitCaughtUp(t, "audit") // a page waits two seconds for tables that are behind
	return p
}

// Each page on the real conversations, wide and narrow, light and dark: nothing on its console, no request leaves the
// origin, axe-core finds no barrier, nothing is wider than the window, and each control can be reached by the keyboard.
func TestPages(t *testing.T) {
	t.Parallel()
	p := dev(t)
	w := open(t, p.URL)
	for _, s := range screens(t, w) {
		for _, look := range []shape{desk, deskDark, phone, phoneDark} {
			where := s.name + " " + look.name
			w.shape(look)
			w.visit(s.path, http.StatusOK)
			w.clean(where)
			w.fits(where)
			if look != phoneDark {
				w.barriers(where)
			}
			w.shot(s.name + "-" + look.name)
		}
		w.shape(desk)
		w.visit(s.path, http.StatusOK)
		w.byKeyboard(s.name)
		w.clean(s.name)
	}
}

// byKeyboard requires that the Tab key reaches each control of the page, and that each shows that it has the focus.
func (w *window) byKeyboard(where string) {
	w.t.Helper()
	const controls = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
		.filter(e => !e.disabled && e.checkVisibility())`
	var all int
	w.eval(`(window.reached = new Set(), window.plain = [], `+controls+`.length)`, &all)
	const look = `(() => { const e = document.activeElement; if (e === document.body) return true;
		reached.add(e);
		const s = getComputedStyle(e); 
		if (s.outlineStyle === "none" && s.outlineWidth === "0px") plain.push(e.outerHTML);
		return false })()`
	const stops = 8 // a time has so many, one for each of its parts
	for range stops * all {
		around := false
		w.do(chromedp.KeyEvent("\t"))
		if w.eval(look, &around); around {
			break
		}
	}
	var missed, plain []string
	w.eval(controls+`.filter(e => !reached.has(e)).map(e => e.outerHTML)`, &missed)
	w.eval(`plain`, &plain)
	require.Empty(w.t, missed, "%s: the keyboard does not reach these", where)
	require.Empty(w.t, plain, "%s: these do not show that they have the focus", where)
}

// Each page that reads shows the same without scripts.
func TestPagesReadWithoutScripts(t *testing.T) {
	t.Parallel()
	program(t)
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	tell(t, p)
	w := open(t, p.URL)
	list := screens(t, w)
	with := map[string]string{}
	for _, s := range list {
		w.visit(s.path, http.StatusOK)
		with[s.name] = w.text("h1") + w.text("article .text") + w.text("th")
	}
	w.scripts(false)
	for _, s := range list {
		w.visit(s.path, http.StatusOK)
		require.Equal(t, with[s.name], w.text("h1")+w.text("article .text")+w.text("th"), s.name)
	}
	w.visit("/console/", http.StatusOK)
	w.fill("#identity_id", "ada")
	w.follow("form.filter button", http.StatusOK)
	require.Contains(t, w.path(), "identity_id=ada")
	require.Equal(t, 2, strings.Count(w.text("tbody tr td:nth-child(3)"), "ada"), "the session and its branch")
}

// Each page with a key, on a server.
func TestPagesWithAKey(t *testing.T) {
	t.Parallel()
	p, key := served(t)
	tell(t, p)
	w := openWith(t, p, key)
	for _, s := range screens(t, w) {
		for _, look := range []shape{desk, phoneDark} {
			w.shape(look)
			w.visit(s.path, http.StatusOK)
			w.clean(s.name)
			w.fits(s.name)
			w.barriers(s.name)
			require.NotContains(t, w.text("body"), key)
		}
		w.shot("key-" + s.name)
	}
}

// With keys: the sign-in leads to the page that was asked for, each page is as open as its scopes, a second tab is out
// once the key is revoked, and no page says more on its console than that it was refused.
func TestSigningIn(t *testing.T) {
	t.Parallel()
	program(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	auth := "keys:" + file
	create := func(args ...string) string {
		code, key, errs := stack.Run(t, append([]string{"keys", "create", "--auth", auth}, args...)...)
		require.Equal(t, stack.ExitDone, code, errs)
		return strings.TrimSpace(key)
	}
	every := create("ops", "--scopes", "turns:write,context:read,events:read,turns:redact,admin")
	create("reader", "--scopes", "context:read,events:read")
	p := stack.Serve(t, []string{"TURNLEDGER_AUTH=" + auth})
	w := open(t, p.URL)
	w.visit("/console/keys", http.StatusUnauthorized)
	w.barriers("sign in")
	w.fits("sign in")
	w.fill("#key", "wrong")
	w.follow("form.signin button", http.StatusUnauthorized)
	require.Contains(t, w.text("[role=alert]"), "No such key")
	w.visit("/console/keys", http.StatusUnauthorized)
	w.fill("#key", every)
	w.follow("form.signin button", http.StatusOK)
	require.Equal(t, "/console/keys", w.path())
	require.NotContains(t, w.text("body"), every)
	second := w.another()
	second.visit("/console/log", http.StatusOK)
	second.until(`document.querySelector("[data-live] [role=status]").innerText === "Live"`)
	code, _, errs := stack.Run(t, "keys", "revoke", every[:strings.LastIndex(every, "_")], "--auth", auth)
	require.Equal(t, stack.ExitDone, code, errs)
	second.until(`document.querySelector("h1").innerText === "Sign in"`) // by itself
	second.forgive()
	second.barriers("signed out")
	w.visit("/console/keys", http.StatusUnauthorized)
}

// At an issuer on another site: the browser comes back signed in, on the page that was asked for, although the cookie
// is Strict.
func TestSigningInAtAnIssuer(t *testing.T) {
	t.Parallel()
	program(t)
	issuer := logintest.New(t)
	issuer.Asks.Store(true)
	address := stack.FreeAddress(t)
	p := stack.LaunchAt(t, address, []string{
		"TURNLEDGER_AUTH=oidc:" + issuer.URL, "TURNLEDGER_AUTH_AUDIENCE=" + logintest.Audience,
		"TURNLEDGER_CONSOLE_URL=http://" + address, "TURNLEDGER_CONSOLE_OIDC_CLIENT_ID=" + logintest.ClientID,
		"TURNLEDGER_CONSOLE_OIDC_CLIENT_SECRET=" + logintest.Secret,
	}, "serve", "--data-dir", stack.DataDir(t))
	p.WaitReady(t)
	w := open(t, p.URL)
	w.issuer = issuer.URL
	w.visit("/console/search", http.StatusUnauthorized)
	w.barriers("sign in")
	w.follow("a[href*='issuer']", http.StatusOK)
	w.click("#go")
	w.until(`location.pathname === "/console/search" && document.readyState === "complete"`)
	require.Equal(t, "Search", w.text("h1"))
	w.barriers("search of a user")
	w.visit("/console/log", http.StatusForbidden)
	require.NotContains(t, p.Log.String(), "code=")
}

// The pages as they stand when there is nothing, when something is refused, and with what only some sessions have: no
// barrier, nothing wider than the window, and nothing on the console but Chromium's own word of the status.
func TestStatesOfPages(t *testing.T) {
	t.Parallel()
	program(t)
	empty := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	full := started(t)
	locked, key := served(t)
	session := "/console/sessions/" + told
	for _, c := range []struct {
		p      *stack.Process
		key    string
		path   string
		status int
		says   string
	}{
		{empty, "", "/console/", http.StatusOK, "No session yet"},
		{empty, "", "/console/log", http.StatusOK, "No events here"},
		{empty, "", "/console/deadletters", http.StatusOK, "No event waits"},
		{empty, "", "/console/receipts", http.StatusOK, "No redaction or erasure"},
		{empty, "", "/console/stats", http.StatusOK, "No turn in this time"},
		{full, "", "/console/?state=pending", http.StatusOK, "The garden"},
		{full, "", session + "?language=translated", http.StatusOK, "Show the neutral texts"},
		{full, "", session + "?at=0:1", http.StatusOK, "Who was in the garden?"},
		{full, "", "/console/log?type=turn.redacted.v1", http.StatusOK, "The last event stands first"},
		{full, "", "/console/log?from=0:1", http.StatusOK, "The page begins where you asked"},
		{full, "", "/console/log?from=x", http.StatusUnprocessableEntity, "must be a position"},
		{full, "", "/console/sessions/none", http.StatusNotFound, "There is no such session"},
		{full, "", "/console/sessions/erased", http.StatusNotFound, "The receipt of its erasure"},
		{full, "", "/console/nowhere", http.StatusNotFound, "There is no such page"},
		{full, "", "/console/playground?thread_id=" + told, http.StatusOK, "Show the prompt first"},
		{full, "", session + "/reset", http.StatusOK, "Nothing is deleted"},
		{full, "", session + "/erase", http.StatusOK, "It can't be undone"},
		{full, "", "/console/identities/ada/erase", http.StatusOK, "It can't be undone"},
		{locked, key, "/console/", http.StatusOK, "Sign out"},
		{locked, "", "/console/", http.StatusUnauthorized, "turnledger keys create"},
	} {
		w := openWith(t, c.p, c.key)
		for _, look := range []shape{desk, phoneDark} {
			where := c.path + " " + look.name
			w.shape(look)
			w.visit(c.path, c.status)
			require.Contains(t, w.text("body"), c.says, where)
			w.clean(where)
			w.fits(where)
			w.barriers(where)
		}
	}
}
