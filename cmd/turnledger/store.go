package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/services/access/certfile"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
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
	opts := append([]nats.Option{
		nats.MaxReconnects(-1), nats.Name("turnledger"), nats.Timeout(5 * time.Second),
		// A server that is paused, or whose machine is gone, closes no connection: three
		// seconds of silence are enough to try the next one.
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectWait(250 * time.Millisecond),
		// A password that was changed is changed back, and credentials that ended are replaced.
		nats.IgnoreAuthErrorAbort(),
	}, cfg.NATSClient()...)
	nc, err := nats.Connect(cfg.NATSURL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w (is it running, and are TURNLEDGER_NATS_URL and its "+
			"credentials right?)", config.Secretless(cfg.NATSURL), err)
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

// ready returns the reason why the log takes no writes, nil where it does.
func (s *store) ready(ctx context.Context) error {
	if err := s.log.Writable(ctx); err != nil {
		if ctx.Err() != nil {
			return httpwire.Reason("the log's server does not tell whether it takes writes: does its disk hang?")
		}
		return httpwire.Reason(err.Error())
	}
	for k := range s.log.Partitions() {
		if _, err := s.log.Head(ctx, k); err != nil {
			if errors.Is(err, jetlog.ErrStream) {
				return errors.Join(httpwire.Reason("the log was restored, or made anew, by another process: restart "+
					"this one when turnledger restore has ended"), err)
			}
			if errors.Is(err, jetlog.ErrNoWrites) {
				return errors.Join(httpwire.Reason("an fsync failed: restart this process when its disk is well"), err)
			}
			if !s.nc.IsConnected() && notLetIn(s.nc.LastError()) {
				return errors.Join(httpwire.Reason("NATS does not let this process in: are TURNLEDGER_NATS_URL and "+
					"its credentials right?"), err)
			}
			why := httpwire.Reason("the log does not tell its head: NATS does not answer, or has no leader")
			return errors.Join(why, err)
		}
	}
	return nil
}

// notLetIn reports whether NATS refused the credentials, or stopped accepting them.
func notLetIn(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err,
		nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// freeNATS returns the address that dev offers to pipelines: NATS's usual port on 127.0.0.1, or "" where another
// process has it.
func freeNATS(ctx context.Context) string {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:4222")
	if err != nil {
		return ""
	}
	_ = l.Close()
	return "127.0.0.1:4222"
}
