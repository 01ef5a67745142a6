package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far long work is: a bar with rate and ETA on a terminal, else
// a plain line now and then.
type progress struct {
	bar *progressbar.ProgressBar

	mu     sync.Mutex
	out    io.Writer
	what   string
	unit   unit
	total  int64
	at     int64
	began  time.Time
	spoken time.Time
}

// unit is what work is counted in.
type unit string

const (
	unitBytes      unit = "bytes"
	unitEvents     unit = "events"
	unitOperations unit = "operations"
)

// isTerminal tells whether somebody looks at what is written.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newProgress begins; total is -1 if it is not known.
func newProgress(out io.Writer, what string, unit unit, total int64) *progress {
	p := &progress{out: out, what: what, unit: unit, total: total, began: time.Now(), spoken: time.Now()}
	if isTerminal(out) {
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(unit == unitBytes), progressbar.OptionSetItsString(string(unit)), progressbar.OptionShowIts(), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionSetPredictTime(true))
	}
	return p
}

// plainEvery is the pause between plain lines.
const plainEvery = 5 * time.Second

func (p *progress) add(n int64) {
	if p.bar != nil {
		_ = p.bar.Add64(n)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at += n
	if time.Since(p.spoken) < plainEvery {
		return
	}
	p.spoken = time.Now()
	if p.total <= 0 {
		_, _ = fmt.Fprintf(p.out, "%s: %d %s\n", p.what, p.at, p.unit)
		return
	}
	left := time.Duration(float64(time.Since(p.began)) * float64(p.total-p.at) / float64(max(p.at, 1)))
	_, _ = fmt.Fprintf(p.out, "%s: %d%%, %s left\n", p.what, 100*p.at/p.total, left.Round(time.Second))
}

// reach says how far the work is, of how much; before holds how far it was.
func (p *progress) reach(at, total uint64, before *uint64) {
	if p.bar != nil && p.bar.GetMax64() != int64(total) { //nolint:gosec // below 2^63
		p.bar.ChangeMax64(int64(total)) //nolint:gosec // below 2^63
	}
	p.mu.Lock()
	p.total = int64(total) //nolint:gosec // below 2^63
	p.mu.Unlock()
	if at > *before {
		p.add(int64(at - *before)) //nolint:gosec // below 2^63
		*before = at
	}
}

// say prints a line between.
func (p *progress) say(out io.Writer, format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// done takes the bar away. Until then one that is full stays: what follows the last event may take its time.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
		_ = p.bar.Clear()
	}
}

// counter shows how far work is that is counted elsewhere: units done of so many.
type counter struct {
	*progress
	units string
}

func newCounter(out io.Writer, what, units string) *counter {
	p := &progress{out: out, what: what, began: time.Now(), spoken: time.Now()}
	if isTerminal(out) {
		p.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(units),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionSetPredictTime(true))
	}
	return &counter{p, units}
}

// at shows that so many are done.
func (c *counter) at(done, of uint64) {
	if c.bar != nil {
		if of > 0 && of >= done {
			c.bar.ChangeMax64(int64(of)) //nolint:gosec // events
			_ = c.bar.Set64(int64(done)) //nolint:gosec // events
		}
		return
	}
	if time.Since(c.spoken) < plainEvery || of == 0 {
		return
	}
	c.spoken = time.Now()
	took := time.Since(c.began)
	left := time.Duration(float64(took) * float64(of-min(done, of)) / float64(max(done, 1)))
	_, _ = fmt.Fprintf(c.out, "%s: %d of %d %s, %.0f a second, %s left\n", c.what, done, of, c.units, float64(done)/took.Seconds(), left.Round(time.Second))
}
