package runner

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Metrics of all runners of a process.
type Metrics struct {
	events, anomalies, failures, dead *prometheus.CounterVec
}

// NewMetrics registers the runners' metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "turnledger", Subsystem: "projection",
			Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	return &Metrics{
		events: counter("events_total", "Events applied, by projection and verdict.", "projection", "verdict"),
		anomalies: counter("anomalies_total",
			"Events that contradict the log or state nothing, by projection and reason.", "projection", "reason"),
		failures: counter("failures_total", "Batches that were tried again, by projection.", "projection"),
		dead:     counter("dead_letters_total", "Events parked in the dead letters, by projection.", "projection"),
	}
}

func (m *Metrics) applied(name string, batch []projections.Judged) {
	kinds := map[session.Kind]float64{}
	for i := range batch {
		c := &batch[i].Change
		kinds[c.Kind]++
		if c.Kind == session.Anomaly {
			m.anomalies.WithLabelValues(name, c.Reason).Inc()
		}
	}
	for kind, n := range kinds {
		m.events.WithLabelValues(name, kind.String()).Add(n)
	}
}
