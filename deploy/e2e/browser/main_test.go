package browser_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(stack.Runner(withBrowser{m}).Run())
}

// withBrowser runs the tests, and ends the browser that they share.
type withBrowser struct{ tests interface{ Run() int } }

func (w withBrowser) Run() int {
	defer browser.stop()
	return w.tests.Run()
}

// browser is the Chromium of all tests. Each window has cookies of its own in it.
var browser chromium

type chromium struct {
	once sync.Once
	ctx  context.Context
	ends []context.CancelFunc
	err  error
}

// names are the programs that may be Chromium.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// program returns the path of Chromium. Without one the test fails.
func program(t testing.TB) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.FailNow(t, "there is no browser: install Chromium (make deps does on Debian and Ubuntu)")
	return ""
}

// start starts Chromium once, and returns a context for windows.
func (c *chromium) start(t testing.TB) context.Context {
	t.Helper()
	path := program(t)
	c.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
			chromedp.Flag("hide-scrollbars", true))
		ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
		c.ends = append(c.ends, end)
		c.ctx, end = chromedp.NewContext(ctx)
		c.ends = append(c.ends, end)
		c.err = chromedp.Do(c.ctx)
	})
	require.NoError(t, c.err)
	return c.ctx
}

func (c *chromium) stop() {
	for i := len(c.ends) - 1; i >= 0; i-- {
		c.ends[i]()
	}
}

// axe returns the source of axe-core, which finds barriers for people in a page. make deps installs it by the lock file
// in deploy/e2e/axe.
var axe = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if raw, err := os.ReadFile(filepath.Join(dir, "bin/axe/node_modules/axe-core/axe.min.js")); err == nil {
			return string(raw), nil
		}
	}
	return "", os.ErrNotExist
})
