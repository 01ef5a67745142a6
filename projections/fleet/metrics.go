package fleet

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	byPartition = []string{"projection", "partition"}

	lagEvents = prometheus.NewDesc("turnledger_projection_lag_events",
		"Events between what a projection has applied and the head of the log.", byPartition, nil)
	lagSeconds = prometheus.NewDesc("turnledger_projection_lag_seconds",
		"Age of the first event that a projection has not applied yet.", byPartition, nil)
	stopped = prometheus.NewDesc("turnledger_projection_failed",
		"1 where a projection has stopped, since the log is not the one it followed.", byPartition, nil)
	headSequence = prometheus.NewDesc("turnledger_log_head_sequence",
		"Sequence of the last event of a partition.", []string{"partition"}, nil)
	lettersNow = prometheus.NewDesc("turnledger_projection_dead_letters",
		"Dead letters that there are, by projection and state.", []string{"projection", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(d chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{lagEvents, lagSeconds, stopped, headSequence, lettersNow} {
		d <- one
	}
}

// Collect implements prometheus.Collector. It reports the lag of the views and effects that this process feeds, and
// counts the dead letters of those that it feeds or reads.
func (f *Fleet) Collect(out chan<- prometheus.Metric) {
	//nolint:forbidigo // a collector is given no context
	ctx, cancel := context.WithTimeout(context.Background(), askDeadline)
	defer cancel()
	f.collectLetters(ctx, out)
	f.collectLag(ctx, out)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, n float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
}

// collectLag has no sample if the log's head can't be read: a lag of 0 would be wrong.
func (f *Fleet) collectLag(ctx context.Context, out chan<- prometheus.Metric) {
	heads := map[int]uint64{}
	for _, s := range f.Status(ctx) {
		partition := strconv.Itoa(s.Partition)
		failed := 0.0
		if s.State == stateFailed {
			failed = 1
		}
		gauge(out, stopped, failed, s.Name, partition)
		if s.HeadUnknown {
			continue
		}
		heads[s.Partition] = max(heads[s.Partition], s.Head.Seq)
		if s.LagUnknown {
			continue
		}
		gauge(out, lagEvents, float64(s.LagEvents), s.Name, partition)
		gauge(out, lagSeconds, s.LagSeconds, s.Name, partition)
	}
	for k, head := range heads {
		gauge(out, headSequence, float64(head), strconv.Itoa(k))
	}
}

// collectLetters counts dead letters. A view whose store does not answer gets no sample, since 0 would be wrong.
func (f *Fleet) collectLetters(ctx context.Context, out chan<- prometheus.Metric) {
	for _, q := range f.letters {
		if m := f.view(q.Name()); m != nil && !m.Feeds && !m.Reads {
			continue
		}
		letters, err := q.DeadLetters(ctx)
		if err != nil {
			continue
		}
		waiting := 0
		for _, l := range letters {
			if l.Dropped == nil {
				waiting++
			}
		}
		gauge(out, lettersNow, float64(waiting), q.Name(), "waiting")
		gauge(out, lettersNow, float64(len(letters)-waiting), q.Name(), "dropped")
	}
}

var _ prometheus.Collector = (*Fleet)(nil)
