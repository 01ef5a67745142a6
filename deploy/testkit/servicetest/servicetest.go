// Package servicetest starts the services of one process on a log for a test, connected as cmd connects them.
package servicetest

import (
	"testing"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/contextbuilder"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// Config of the services that write, read and build contexts.
type Config struct {
	History  write.Config
	Reader   read.Config
	Contexts contextbuilder.Config
}

// Services are the services of one process. Several processes may share a log.
type Services struct {
	History  *write.Service
	Reader   *read.Reader
	Contexts *contextbuilder.Builder
}

// New connects the services to a log. Writes are answered while History runs.
func New(log *jetlog.Log, cfg Config) Services {
	writer := write.New(write.On(log), cfg.History)
	cfg.Reader.Folds = writer
	reader := read.New(log, cfg.Reader)
	return Services{writer, reader, contextbuilder.NewBuilder(reader, cfg.Contexts)}
}

// Start connects the services to a log, and runs them until the test ends.
func Start(t testing.TB, log *jetlog.Log, cfg Config) Services {
	t.Helper()
	s := New(log, cfg)
	natstest.Run(t, s.History.Run)
	return s
}

// API returns an API with only the native surface. These services answer it, except for the ports that native already
// sets.
func (s Services) API(cfg wire.Config, native v1.Config) *wire.API {
	api := wire.New(cfg)
	v1.Mount(api, s.Ports(native))
	return api
}

// Ports sets these services in a surface's configuration, except for the ports that are set already.
func (s Services) Ports(cfg v1.Config) v1.Config {
	if cfg.Turns == nil {
		cfg.Turns = s.History
	}
	if cfg.Contexts == nil {
		cfg.Contexts = s.Contexts
	}
	cfg.SessionWrites, cfg.Sessions = s.History, s.Reader
	return cfg
}
