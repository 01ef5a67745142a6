package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
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
	if view, ok := a.views.recent.(applied); ok {
		out = append(out, storeCheck("redis", "Redis does not answer, or may not be used", "recent", &a.views.recentGuard, view.Applied))
	}
	if tables := a.views.audit; tables != nil {
		out = append(out, storeCheck("postgres", "PostgreSQL does not answer, or may not be used", "audit", &tables.guard, func(ctx context.Context, partition int) (events.Position, error) {
			t, err := tables.get()
			if err != nil {
				return events.Position{}, err
			}
			return t.Applied(ctx, partition)
		}))
	}
	return append(out, a.callers.checks()...)
}

// storeCheck asks the store of a view, and tells a view that may not be read from a store that is out.
func storeCheck(name, reason, view string, g *guard, applied func(context.Context, int) (events.Position, error)) httpwire.Check {
	return httpwire.Check{Name: name, Optional: true, Probe: func(ctx context.Context) error {
		if err := g.failure(); errors.Is(err, projections.ErrStream) {
			return unready{httpwire.Reason("not read: the view " + view + " does not follow this log; turnledger projections rebuild " + view), err}
		}
		if _, err := applied(ctx, 0); err != nil {
			return unready{httpwire.Reason(reason), err}
		}
		return nil
	}}
}

// unready is an error with what anybody may read of it.
type unready struct {
	reason httpwire.Reason
	error
}

func (u unready) Unwrap() []error { return []error{u.reason, u.error} }

var (
	lagEvents     = prometheus.NewDesc("turnledger_projection_lag_events", "Events between what a projection has applied and the head of the log.", []string{"projection", "partition"}, nil)
	lagSeconds    = prometheus.NewDesc("turnledger_projection_lag_seconds", "Age of the first event that a projection has not applied yet.", []string{"projection", "partition"}, nil)
	stopped       = prometheus.NewDesc("turnledger_projection_failed", "1 where a projection has stopped, since the log is not the one it followed.", []string{"projection", "partition"}, nil)
	headSequence  = prometheus.NewDesc("turnledger_log_head_sequence", "Sequence of the last event of a partition.", []string{"partition"}, nil)
	dependencyUp  = prometheus.NewDesc("turnledger_dependency_up", "1 while a dependency of this process answers.", []string{"dependency"}, nil)
	stateOfFailed = "failed"
)

// lagCollector tells how far the views that this process feeds are, when the metrics are
// asked for. Where the log does not tell its head there is no sample: no lag would be a lie.
type lagCollector struct{ views *views }

// Describe implements prometheus.Collector.
func (lagCollector) Describe(d chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{lagEvents, lagSeconds, stopped, headSequence} {
		d <- one
	}
}

// Collect implements prometheus.Collector.
func (c lagCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectDeadline)
	defer cancel()
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	heads := map[int]uint64{}
	for _, s := range c.views.status(ctx) {
		partition := strconv.Itoa(s.Partition)
		failed := 0.0
		if s.State == stateOfFailed {
			failed = 1
		}
		gauge(stopped, failed, s.Name, partition)
		if s.HeadUnknown {
			continue
		}
		heads[s.Partition] = max(heads[s.Partition], s.Head.Seq)
		if s.LagUnknown {
			continue
		}
		gauge(lagEvents, float64(s.LagEvents), s.Name, partition)
		gauge(lagSeconds, s.LagSeconds, s.Name, partition)
	}
	for k, head := range heads {
		gauge(headSequence, float64(head), strconv.Itoa(k))
	}
}

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
