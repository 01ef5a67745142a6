package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/runner"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// feeding is what all runners of a process are observed by.
type feeding struct {
	metrics *runner.Metrics
	traces  trace.TracerProvider
}

// checks are what /readyz tells of: the log, without which nothing works, and the stores
// of views, without which reads come from the log.
func (a *app) checks() []httpwire.Check {
	out := []httpwire.Check{{Name: "log", Probe: a.store.ready}}
	for _, store := range a.views.Checks() {
		out = append(out, httpwire.Check{Name: store.Store, Optional: true, Probe: func(ctx context.Context) error {
			err := store.Probe(ctx)
			var not *fleet.NotReady
			if errors.As(err, &not) {
				return unready{httpwire.Reason(not.Reason), err}
			}
			return err
		}})
	}
	return append(out, a.callers.checks()...)
}

// unready is an error with what anybody may read of it.
type unready struct {
	reason httpwire.Reason
	error
}

func (u unready) Unwrap() []error { return []error{u.reason, u.error} }

var dependencyUp = prometheus.NewDesc("turnledger_dependency_up", "1 while a dependency of this process answers.", []string{"dependency"}, nil)

// collectDeadline bounds what a scrape waits for the dependencies.
const collectDeadline = 2 * time.Second

// dependencyCollector asks the dependencies when the metrics are asked for.
type dependencyCollector []httpwire.Check

// Describe implements prometheus.Collector.
func (dependencyCollector) Describe(d chan<- *prometheus.Desc) { d <- dependencyUp }

// Collect implements prometheus.Collector.
func (c dependencyCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectDeadline)
	defer cancel()
	for _, check := range c {
		up := 1.0
		if check.Probe(ctx) != nil {
			up = 0
		}
		out <- prometheus.MustNewConstMetric(dependencyUp, prometheus.GaugeValue, up, check.Name)
	}
}
