package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
)

// patience bounds how long a page may take to show what a test waits for.
const (
	patience  = hang.Limit
	lookEvery = 20 * time.Millisecond
)

// window is a tab with cookies of its own. It notes what must not happen in it: messages on its console, and requests
// that leave the origin.
type window struct {
	t      testing.TB
	ctx    context.Context
	origin string
	// issuer is another origin that the window may ask.
	issuer string
	// scriptless: pages run no scripts, and so axe-core can't look at them.
	scriptless bool

	mu       sync.Mutex
	problems []string
}

// open opens a window for the pages of an origin.
func open(t testing.TB, origin string) *window {
	t.Helper()
	ctx, end := chromedp.NewContext(browser.start(t), chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	return newWindow(ctx, t, origin)
}

// another opens a second tab with the same cookies.
func (w *window) another() *window {
	w.t.Helper()
	ctx, end := chromedp.NewContext(w.ctx)
	w.t.Cleanup(end)
	return newWindow(ctx, w.t, w.origin)
}

func newWindow(ctx context.Context, t testing.TB, origin string) *window {
	t.Helper()
	w := &window{t: t, ctx: ctx, origin: origin}
	require.NoError(t, chromedp.Listen(ctx, w.note))
	command(w, network.Enable, network.EnableParams{})
	w.shape(desk)
	t.Cleanup(func() { w.clean("at the end") })
	return w
}

func (w *window) note(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		raw, _ := json.Marshal(e.Args)
		problem = "console: " + string(raw)
	case *runtime.EventExceptionThrown:
		problem = "exception: " + fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.URL)
	case *log.EventEntryAdded:
		problem = "console: " + e.Entry.Text + " " + e.Entry.URL
	case *network.EventRequestWillBeSent:
		u, own := e.Request.URL, false
		for _, origin := range []string{w.origin, w.issuer} {
			own = own || origin != "" && (u == origin || strings.HasPrefix(u, origin+"/"))
		}
		if !own && !strings.HasPrefix(u, "data:") {
			problem = "request: " + u
		}
	}
	if problem != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problems = append(w.problems, problem)
	}
}

// clean requires that nothing happened that must not.
func (w *window) clean(where string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Empty(w.t, w.problems, where)
	w.problems = nil
}

// forgive forgets the messages that Chromium itself writes when a page is refused.
func (w *window) forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []string
	for _, p := range w.problems {
		if !strings.Contains(p, "the server responded with a status of") {
			kept = append(kept, p)
		}
	}
	w.problems = kept
}

// shape is how a window looks.
type shape struct {
	name          string
	width, height int64
	dark          bool
}

var (
	desk      = shape{"wide-light", 1280, 900, false}
	deskDark  = shape{"wide-dark", 1280, 900, true}
	phone     = shape{"narrow-light", 390, 844, false}
	phoneDark = shape{"narrow-dark", 390, 844, true}
)

func (w *window) shape(s shape) {
	w.t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	command(w, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: s.height, DeviceScaleFactor: 1,
	})
	command(w, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
	}})
}

// scripts switches the scripts of pages on or off.
func (w *window) scripts(on bool) {
	w.t.Helper()
	w.scriptless = !on
	command(w, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// command runs a command of the browser's protocol.
func command[P, R any](w *window, c cdp.Command[P, R], p P) {
	w.t.Helper()
	_, err := chromedp.Call(w.ctx, c, p)
	require.NoError(w.t, err)
}

// step is something that is done in a page.
type step = chromedp.Action[chromedp.Void]

func (w *window) do(steps ...step) {
	w.t.Helper()
	ctx, end := context.WithTimeout(w.ctx, patience)
	defer end()
	require.NoError(w.t, chromedp.Do(ctx, steps...))
}

// visit opens a page of the origin, and requires its status.
func (w *window) visit(path string, status int) {
	w.t.Helper()
	w.leads(status, chromedp.Navigate(w.origin+path))
}

// leads does what leads to another page, and requires that page's status.
func (w *window) leads(status int, steps ...step) {
	w.t.Helper()
	ctx, end := context.WithTimeout(w.ctx, patience)
	defer end()
	answer, err := chromedp.RunResponse(ctx, steps...)
	require.NoError(w.t, err)
	require.NotNil(w.t, answer)
	require.EqualValues(w.t, status, answer.Status, answer.URL)
	if status != http.StatusOK {
		w.forgive()
	}
}

// eval evaluates an expression in the page; to may be nil.
func (w *window) eval(expression string, to any) {
	w.t.Helper()
	w.json("JSON.stringify(("+expression+") ?? null)", to)
}

// json evaluates an expression that is JSON, or a promise of it.
func (w *window) json(expression string, to any) {
	w.t.Helper()
	ctx, end := context.WithTimeout(w.ctx, patience)
	defer end()
	raw, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	require.NoError(w.t, err, expression[:min(len(expression), 300)])
	if to != nil {
		require.NoError(w.t, json.Unmarshal([]byte(raw), to))
	}
}

func (w *window) text(selector string) (out string) {
	w.t.Helper()
	w.eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText).join("\n")`, selector), &out)
	return out
}

// path returns the path of the page with its query.
func (w *window) path() (out string) {
	w.t.Helper()
	w.eval(`location.pathname + location.search`, &out)
	return out
}

// hrefs returns the addresses of links.
func (w *window) hrefs(selector string) (out []string) {
	w.t.Helper()
	w.eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.getAttribute("href"))`, selector), &out)
	return out
}

// until waits until an expression is true in the page. While one page takes the place of another, no expression is.
func (w *window) until(expression string) {
	w.t.Helper()
	hang.Until(w.t, func() bool {
		ctx, end := context.WithTimeout(w.ctx, patience)
		defer end()
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		return err == nil && is
	}, expression)
}

// click clicks what stays on the page; follow clicks what leads to another one.
func (w *window) click(selector string) {
	w.t.Helper()
	w.do(chromedp.Click(chromedp.CSS(selector)))
}

func (w *window) follow(selector string, status int) {
	w.t.Helper()
	w.leads(status, chromedp.Click(chromedp.CSS(selector)))
}

func (w *window) fill(selector, value string) {
	w.t.Helper()
	w.eval(fmt.Sprintf(`document.querySelector(%q).value = ""`, selector), nil)
	w.do(chromedp.SendKeys(chromedp.CSS(selector), value))
}

// barriers requires that axe-core finds no violation in the page. Without scripts it can't look.
func (w *window) barriers(where string) {
	w.t.Helper()
	if w.scriptless {
		return
	}
	source, err := axe()
	require.NoError(w.t, err, "axe-core is not there: make deps installs it")
	var found []string
	w.json(source+`;axe.run(document).then(r => JSON.stringify(r.violations.flatMap(v => v.nodes.map(n =>
		v.id + ": " + v.help + " at " + n.target.join(" ") + ": " +
		(n.any[0] || n.all[0] || n.none[0] || {}).message))))`,
		&found)
	assert.Empty(w.t, found, where)
}

// fits requires that a page is no wider than its window.
func (w *window) fits(where string) {
	w.t.Helper()
	var widest []string
	w.eval(`document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
		.filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)
		.map(e => [e.tagName, e.className, e.id, Math.round(e.getBoundingClientRect().right)].join(" "))`, &widest)
	assert.Empty(w.t, widest, "%s is wider than its window", where)
}

// shot keeps a picture of the window in the folder TURNLEDGER_TEST_PICTURES, if that is set.
func (w *window) shot(name string) {
	w.t.Helper()
	dir := os.Getenv("TURNLEDGER_TEST_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}
