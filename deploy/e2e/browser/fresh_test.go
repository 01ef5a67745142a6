package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/pause"
)

// A page that is fetched again and again changes in place: it goes on while its table has the focus, and the table
// keeps the focus, how far it is scrolled and the very element that it was.
func TestAPageChangesInPlace(t *testing.T) {
	t.Parallel()
	p := started(t)
	w := open(t, p.URL)
	w.shape(phone)
	w.visit("/console/views", http.StatusOK)
	w.eval(`(window.table = document.querySelector("#views .scroll"), table.focus(), table.scrollLeft = 50)`, nil)
	p.RecordTurn(t, "another", "r", "Has it moved?", "It has.")
	was := w.text("#views tbody tr:first-child td:nth-child(4)")
	require.NotEmpty(t, was)
	p.RecordTurn(t, "another", "r2", "And again?", "Again.")
	w.until(fmt.Sprintf(`document.querySelector("#views tbody tr:first-child td:nth-child(4)").innerText !== %q`, was))
	w.until(`document.activeElement === table && table.isConnected && table.scrollLeft === 50`)
}

// The page of an erasure is fetched again until the receipt is complete, and then no more.
func TestAFinishedReceiptRests(t *testing.T) {
	t.Parallel()
	p := started(t, "TURNLEDGER_ERASE_RATE=3")
	w := open(t, p.URL)
	w.visit("/console/sessions/"+told+"/erase", http.StatusOK)
	w.click("input[name=sure]")
	w.press("Erase this session", http.StatusOK)
	w.eval(`(window.asked = 0, window.real = fetch, window.fetch = (...a) => (asked++, real(...a)), 0)`, nil)
	require.Contains(t, w.text("#receipt"), "running")
	w.until(`asked > 0 && document.querySelector("#receipt .state-good")?.innerText === "complete"`)
	w.eval(`(asked = 0)`, nil)
	pause.For(t.Context(), 3*time.Second) // the page of a receipt that runs is fetched once a second
	var asked int
	w.eval(`asked`, &asked)
	require.Zero(t, asked)
}

// A page of another site can't show the console in a frame, so nobody is led to click on what they do not see. The same
// page shows a page of a third site.
func TestNoOtherSiteFramesTheConsole(t *testing.T) {
	t.Parallel()
	p := started(t)
	site := func(html string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprint(w, "<!DOCTYPE html><link rel=icon href=data:,>"+html)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	third := site("a third site")
	w := open(t, site(fmt.Sprintf(`<iframe src="%s/"></iframe><iframe src="%s/console/identities/ada/erase"></iframe>`,
		third, p.URL)))
	w.issuer = third
	w.visit("/", http.StatusOK)
	w.until(`document.readyState === "complete"`)
	tree, err := chromedp.Call(w.ctx, page.GetFrameTree, cdp.Empty{})
	require.NoError(t, err)
	frames := tree.FrameTree.ChildFrames
	require.Len(t, frames, 2)
	require.Equal(t, third+"/", frames[0].Frame.URL)
	require.Empty(t, frames[0].Frame.UnreachableURL)
	require.Equal(t, p.URL+"/console/identities/ada/erase", frames[1].Frame.UnreachableURL)
	require.Contains(t, frames[1].Frame.URL, "chrome-error:")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Contains(t, fmt.Sprint(w.problems), "frame-ancestors 'none'", "Chromium says why")
	w.problems = nil
}
