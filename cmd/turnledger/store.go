package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/jetlog/store"
	"github.com/turnledger/turnledger/services/access/certfile"
	"github.com/turnledger/turnledger/services/access/secrets"
)

// logStore is the log with its connection to NATS and, if there is one, the embedded server.
type logStore struct {
	*store.Store
	cert *certfile.Pair // of the embedded server's listener; nil if it speaks in clear
}

// notes opens the notes. It notes that the embedded server was started after a scrub of its folder, which it does
// itself.
func (s logStore) notes(ctx context.Context) (*jetlog.Notes, error) {
	notes, err := s.Log.Notes(ctx)
	if err == nil && s.Server != nil {
		err = overwrite.NoteScrubbed(ctx, notes, s.NC.ConnectedServerName(), s.NC.ConnectedServerId())
	}
	return notes, err
}

// openStore opens the log on the embedded server or on an outside NATS.
func openStore(ctx context.Context, cfg config.Config, logger *slog.Logger) (s logStore, err error) {
	c := store.Config{
		URL: cfg.NATSURL, Shown: secrets.Hide(cfg.NATSURL), Client: cfg.Options(),
		Log: jetlog.Config{Partitions: cfg.Partitions, Replicas: cfg.Replicas}, Logger: logger,
	}
	if cfg.NATSURL == "" {
		c.Server = embedded.Config{
			Dir: filepath.Join(cfg.DataDir, "nats"), Sync: embedded.Sync(cfg.Sync), Logger: logger,
		}
		if c.Server.Listen, c.Server.User, c.Server.Password, err = cfg.NATSListener(); err != nil {
			return s, err
		}
		if s.cert, c.Server.TLS, err = cfg.NATS(logger); err != nil {
			return s, err
		}
	}
	s.Store, err = store.Open(ctx, c)
	if errors.Is(err, embedded.ErrListen) && cfg.NATSIfFree { // another process was faster
		c.Server.Listen = ""
		s.Store, err = store.Open(ctx, c)
	}
	switch {
	case errors.Is(err, embedded.ErrListen):
		err = fmt.Errorf("%w: TURNLEDGER_NATS_LISTEN: %w", config.ErrUsage, err)
	case errors.Is(err, store.ErrURL):
		err = fmt.Errorf("%w: %w", config.ErrUsage, err)
	}
	return s, err
}
