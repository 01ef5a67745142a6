package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// deadLetters are those of the views that this process feeds or reads.
func (v *views) deadLetters() (out []projections.DeadLetterQueue) {
	if view, ok := v.recent.(recent.Restorable); ok {
		out = append(out, recent.NewLetters(view, v.log, v.cfg.rules()))
	}
	if v.audit != nil {
		out = append(out, auditLetters{v.audit})
	}
	return append(out, v.letters...)
}

// storedLetters are those of the views in stores that this process has nothing else to do with: whoever asks it is not told that
// there are none.
func (v *views) storedLetters() (out []projections.DeadLetterQueue) {
	if v.storedRecent != nil && v.recent == nil {
		out = append(out, recent.NewLetters(v.storedRecent, v.log, v.cfg.rules()))
	}
	if v.storedAudit != nil && v.audit == nil {
		out = append(out, v.storedAudit)
	}
	return out
}

// auditLetters are those of the audit tables, once they are open.
type auditLetters struct{ tables *auditTables }

var _ projections.DeadLetterQueue = auditLetters{}

func (auditLetters) Name() string { return "audit" }

func (a auditLetters) DeadLetters(ctx context.Context) ([]projections.DeadLetter, error) {
	t, err := a.tables.get()
	if err != nil {
		return nil, err
	}
	return t.DeadLetters(ctx)
}

func (a auditLetters) RetryDeadLetter(ctx context.Context, at events.Position) (projections.Retried, error) {
	t, err := a.tables.get()
	if err != nil {
		return projections.Retried{}, err
	}
	return t.RetryDeadLetter(ctx, at)
}

func (a auditLetters) DropDeadLetter(ctx context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error) {
	t, err := a.tables.get()
	if err != nil {
		return projections.DeadLetter{}, err
	}
	return t.DropDeadLetter(ctx, at, d)
}

// letterCollector counts the letters when the metrics are asked for. A view whose store
// does not answer has no sample then: no letters would be a lie.
type letterCollector []projections.DeadLetterQueue

var lettersNow = prometheus.NewDesc("turnledger_projection_dead_letters", "Dead letters that there are, by projection and state.",
	[]string{"projection", "state"}, nil)

// Describe implements prometheus.Collector.
func (letterCollector) Describe(d chan<- *prometheus.Desc) { d <- lettersNow }

// collectDeadline bounds what a scrape waits for a view's store.
const collectDeadline = 2 * time.Second

// Collect implements prometheus.Collector.
func (c letterCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectDeadline)
	defer cancel()
	for _, q := range c {
		letters, err := q.DeadLetters(ctx)
		if err != nil {
			continue
		}
		count := map[string]float64{"waiting": 0, "dropped": 0}
		for _, l := range letters {
			if l.Dropped != nil {
				count["dropped"]++
			} else {
				count["waiting"]++
			}
		}
		for state, n := range count {
			out <- prometheus.MustNewConstMetric(lettersNow, prometheus.GaugeValue, n, q.Name(), state)
		}
	}
}

// letterName is how an operator names a letter on the command line.
type letterName struct {
	Projection string `arg:"" help:"The view: recent, audit or memory."`
	Position   string `arg:"" help:"Where the event stands in the log, such as 0:42."`
}

// Validate implements kong's: a position that is none is wrong use.
func (n letterName) Validate() error {
	if _, err := events.ParsePosition(n.Position); err != nil {
		return fmt.Errorf("%q is no position: turnledger deadletters list names them", n.Position)
	}
	return nil
}

func (n letterName) String() string { return fmt.Sprintf("%s of %s", n.Position, n.Projection) }
