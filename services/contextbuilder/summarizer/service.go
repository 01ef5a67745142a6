package summarizer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/effects"
	"github.com/turnledger/turnledger/projections/runner"
)

// Service is the effect with the runner that feeds it.
type Service struct {
	*effects.Effect
	Feed    *runner.Runner
	Letters projections.DeadLetterQueue
}

// ServiceConfig of a Service; Feed needs a Desk.
type ServiceConfig struct {
	Config
	Feed     runner.Config
	Registry prometheus.Registerer
}

// NewService makes a service; it does no I/O.
func NewService(log *jetlog.Log, cfg ServiceConfig) *Service {
	made := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "turnledger", Name: "summaries_total",
		Help: "Summaries that the model was asked for, by result: made or failed.",
	}, []string{"result"})
	cfg.Registry.MustRegister(made)
	for _, result := range []string{"made", "failed"} {
		made.WithLabelValues(result) // both are there from the beginning
	}
	cfg.Done = func(ok bool) {
		if ok {
			made.WithLabelValues("made").Inc()
		} else {
			made.WithLabelValues("failed").Inc()
		}
	}
	feed := cfg.Feed
	s := &Service{Effect: effects.New(New(cfg.Config), effects.Config{Desk: feed.Desk, Log: log, Rules: feed.Rules})}
	s.Letters = feed.Desk.Queue(s.Effect, log, feed.Rules)
	feed.MaxBatch, feed.Group = 64, feed.Desk.Members(s.Name(), nil)
	s.Feed = runner.New(log, s.Effect, feed)
	return s
}
