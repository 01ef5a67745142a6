package wire

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var dependencyUp = prometheus.NewDesc(
	"turnledger_dependency_up", "1 while a dependency of this process answers.", []string{"dependency"}, nil)

// collectDeadline bounds how long a scrape waits for the dependencies.
const collectDeadline = 2 * time.Second

// Dependencies runs the checks whenever the metrics are collected.
type Dependencies []Check

// Describe implements prometheus.Collector.
func (Dependencies) Describe(d chan<- *prometheus.Desc) { d <- dependencyUp }

// Collect implements prometheus.Collector.
func (c Dependencies) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectDeadline) //nolint:forbidigo // a collector has none
	defer cancel()
	for _, check := range c {
		up := 1.0
		if check.Probe(ctx) != nil {
			up = 0
		}
		out <- prometheus.MustNewConstMetric(dependencyUp, prometheus.GaugeValue, up, check.Name)
	}
}
