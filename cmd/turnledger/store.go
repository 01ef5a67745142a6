package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/services/access/certfile"
	"github.com/turnledger/turnledger/services/access/secrets"
)

// store is the log with the NATS it stands on.
type store struct {
	log    *jetlog.Log
	nc     *nats.Conn
	server *embedded.Server // nil with an outside NATS
	cert   *certfile.Pair   // of its listener; nil where it speaks in clear
}

// openStore opens the log on the embedded server or on an outside NATS.
func openStore(ctx context.Context, cfg config.Config, logger *slog.Logger) (*store, error) {
	if cfg.NATSURL != "" {
		return openOutside(ctx, cfg)
	}
	sync := embedded.Sync(cfg.Sync)
	switch sync {
	case embedded.Group:
		s, err := openGrouped(ctx, cfg, logger)
		if !errors.Is(err, jetlog.ErrLayout) && !errors.Is(err, embedded.ErrFileSystem) {
			return s, err
		}
		logger.Warn("TURNLEDGER_SYNC=group is not safe here: every write is synced by itself, which is slower", "err",
			err)
		sync = embedded.Always
	case embedded.Always:
	case embedded.None:
		logger.Warn("TURNLEDGER_SYNC=none: a power failure loses turns that were acknowledged")
	}
	return openEmbedded(ctx, cfg, sync, logger)
}

func openGrouped(ctx context.Context, cfg config.Config, logger *slog.Logger) (*store, error) {
	if err := embedded.CheckFileSystem(cfg.DataDir); err != nil {
		return nil, err
	}
	return openEmbedded(ctx, cfg, embedded.Group, logger)
}

func openEmbedded(ctx context.Context, cfg config.Config, sync embedded.Sync, logger *slog.Logger) (*store, error) {
	listen, user, password, err := cfg.NATSListener()
	if err != nil {
		return nil, err
	}
	pair, secured, err := cfg.NATS(logger)
	if err != nil {
		return nil, err
	}
	srv, err := embedded.Start(ctx, embedded.Config{
		Dir: filepath.Join(cfg.DataDir, "nats"), Sync: sync, Listen: listen, User: user, Password: password,
		TLS: secured, Logger: logger,
	})
	if errors.Is(err, embedded.ErrListen) {
		err = fmt.Errorf("%w: TURNLEDGER_NATS_LISTEN: %w", config.ErrUsage, err)
	}
	if err != nil {
		return nil, err
	}
	s := &store{server: srv, cert: pair}
	if s.nc, err = srv.Connect(); err == nil {
		s.log, err = s.reopened(ctx, cfg)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func openOutside(ctx context.Context, cfg config.Config) (*store, error) {
	for one := range strings.SplitSeq(cfg.NATSURL, ",") {
		if _, err := url.Parse(one); err != nil {
			// the error repeats it
			return nil, fmt.Errorf("%w: TURNLEDGER_NATS_URL can't be read: want nats://user:password@host:4222",
				config.ErrUsage)
		}
	}
	nc, err := jetlog.Connect(cfg.NATSURL, cfg.NATSClient()...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w (is it running, and are TURNLEDGER_NATS_URL and its "+
			"credentials right?)", secrets.Hide(cfg.NATSURL), err)
	}
	s := &store{nc: nc}
	if s.log, err = s.reopened(ctx, cfg); err != nil {
		nc.Close()
		return nil, err
	}
	return s, nil
}

// reopened opens the log on the connection.
func (s *store) reopened(ctx context.Context, cfg config.Config) (*jetlog.Log, error) {
	return jetlog.Open(ctx, s.nc, s.logConfig(cfg))
}

func (s *store) logConfig(cfg config.Config) jetlog.Config {
	c := jetlog.Config{Partitions: cfg.Partitions, Replicas: cfg.Replicas, Outside: s.server == nil}
	if s.server != nil {
		c.GateDir, c.Writable = s.server.GateDir(), s.server.Healthy
	}
	return c
}

// reopen opens the log anew on the same connection, where another stands in its place.
func (s *store) reopen(ctx context.Context, cfg config.Config) error {
	s.log.Close()
	log, err := s.reopened(ctx, cfg)
	s.log = log
	return err
}

// close drains the connection and stops the server that was started here.
func (s *store) close() {
	if s.nc != nil {
		s.nc.Close()
	}
	if s.server != nil {
		s.server.Stop()
	}
}
