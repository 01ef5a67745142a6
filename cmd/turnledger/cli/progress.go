package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far long work is: on a terminal a bar with rate and ETA, otherwise a plain line now and then.
type progress struct {
	bar        *progressbar.ProgressBar
	out        io.Writer
	what, unit string
	began      time.Time

	mu        sync.Mutex
	total, at int64
	spoken    time.Time
	// rate: plain lines show how many are done, and how fast.
	rate bool
}

// isTerminal reports whether a writer is a terminal, or writes to one.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(interface{ Unwrap() io.Writer }); ok {
		w = o.Unwrap()
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// totalUnknown is the total of work whose size is not known when it begins.
const totalUnknown = -1

// newProgress begins a progress. total may be totalUnknown.
func newProgress(out io.Writer, what, unit string, total int64) *progress {
	p := &progress{out: out, what: what, unit: unit, total: total, began: time.Now(), spoken: time.Now()}
	if isTerminal(out) {
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(unit == "bytes"), progressbar.OptionSetItsString(unit),
			progressbar.OptionShowIts(), progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionSetPredictTime(true))
	}
	return p
}

// newCounter begins to show work that is counted elsewhere.
func newCounter(out io.Writer, what, unit string) *progress {
	p := newProgress(out, what, unit, 1)
	p.rate = true
	return p
}

// plainEvery is the pause between plain lines.
const plainEvery = 5 * time.Second

// Add adds n to what is done.
func (p *progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(p.at + n)
}

// Reach sets how much is done, out of how much; it never goes back. While the total is not known, nothing is shown.
func (p *progress) Reach(at, total uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if total == 0 {
		return
	}
	p.total = int64(total)                   //nolint:gosec // below 2^63
	p.show(max(p.at, int64(min(at, total)))) //nolint:gosec // below 2^63
}

func (p *progress) show(at int64) {
	p.at = at
	if p.bar != nil {
		if p.total > 0 && p.bar.GetMax64() != p.total {
			p.bar.ChangeMax64(p.total)
		}
		_ = p.bar.Set64(at)
		return
	}
	if time.Since(p.spoken) < plainEvery {
		return
	}
	p.spoken = time.Now()
	took := time.Since(p.began)
	left := time.Duration(float64(took) * float64(p.total-at) / float64(max(at, 1))).Round(time.Second)
	switch {
	case p.total <= 0:
		_, _ = fmt.Fprintf(p.out, "%s: %d %s\n", p.what, at, p.unit)
	case p.rate:
		_, _ = fmt.Fprintf(p.out, "%s: %d of %d %s, %.0f a second, %s left\n",
			p.what, at, p.total, p.unit, float64(at)/took.Seconds(), left)
	default:
		_, _ = fmt.Fprintf(p.out, "%s: %d%%, %s left\n", p.what, 100*at/p.total, left)
	}
}

// PrintLine prints a line above the bar, without what a terminal would obey.
func (p *progress) PrintLine(out io.Writer, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	_, _ = fmt.Fprintln(out, Shown(fmt.Sprintf(format, args...)))
}

// Done removes the bar. Until then a full bar stays, since the work after the last event may take time.
func (p *progress) Done() {
	if p.bar != nil {
		_ = p.bar.Finish()
		_ = p.bar.Clear()
	}
}
