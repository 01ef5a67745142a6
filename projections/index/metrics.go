package index

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	vectors *prometheus.CounterVec
	swept   *prometheus.CounterVec
	sweeps  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		vectors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "turnledger_index_vectors_total",
			Help: "Vectors of halves of turns, made by the embedder, taken over, or refused by the embedder.",
		}, []string{"how"}),
		swept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "turnledger_index_swept_total",
			Help: "Objects and collections that a sweep has put right: differences from the log, unseen objects, " +
				"missing vectors, left collections.",
		}, []string{"what"}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "turnledger_index_sweeps_total",
			Help: "Sweeps of the index, by result.",
		}, []string{"result"}),
	}
	if r != nil {
		r.MustRegister(m.vectors, m.swept, m.sweeps)
	}
	return m
}
