// Package store opens the log together with its NATS: the embedded server, or an outside one.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// ErrURL says that the URL of an outside NATS can't be read. It does not repeat the URL, which may hold a password.
var ErrURL = errors.New("TURNLEDGER_NATS_URL can't be read: want nats://user:password@host:4222")

// Config of a Store.
type Config struct {
	// URL is the URL of an outside NATS, or several with commas between; empty: the embedded server. Shown is the form
	// of URL in errors, without secrets.
	URL, Shown string
	// Client are the options of the connection to the outside NATS.
	Client []nats.Option
	// Server is the configuration of the embedded server.
	Server embedded.Config
	// Log is the configuration of the log. Open fills in GateDir, Writable and Outside from the server.
	Log    jetlog.Config
	Logger *slog.Logger
}

// Store is the log with its NATS. The log is closed with the connection.
type Store struct {
	Log *jetlog.Log
	// NC is the connection on which Log was opened, and Config the configuration that it was opened with.
	NC     *nats.Conn
	Config jetlog.Config
	Server *embedded.Server // nil with an outside NATS
}

// Open starts the embedded server or connects to an outside NATS, and opens the log there. If shared fsyncs are not
// safe (embedded.Group), it warns and makes the server sync each write by itself.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.URL != "" {
		return openOutside(ctx, c)
	}
	switch c.Server.Sync {
	case embedded.Group:
		s, err := openGrouped(ctx, c)
		if !errors.Is(err, jetlog.ErrLayout) && !errors.Is(err, embedded.ErrFileSystem) {
			return s, err
		}
		c.Logger.Warn("TURNLEDGER_SYNC=group is not safe here: every write is synced by itself, which is slower",
			"err", err)
		c.Server.Sync = embedded.Always
	case embedded.Always:
	case embedded.None:
		c.Logger.Warn("TURNLEDGER_SYNC=none: a power failure loses turns that were acknowledged")
	}
	return openEmbedded(ctx, c)
}

func openGrouped(ctx context.Context, c Config) (*Store, error) {
	if err := embedded.CheckFileSystem(c.Server.Dir); err != nil {
		return nil, err
	}
	return openEmbedded(ctx, c)
}

func openEmbedded(ctx context.Context, c Config) (*Store, error) {
	server, err := embedded.Start(ctx, c.Server)
	if err != nil {
		return nil, err
	}
	s := &Store{Config: c.Log, Server: server}
	s.Config.GateDir, s.Config.Writable = server.GateDir(), server.Healthy
	if s.NC, err = server.Connect(); err == nil {
		s.Config.Reads, err = server.Connect()
	}
	return s.opened(ctx, err)
}

func openOutside(ctx context.Context, c Config) (*Store, error) {
	for one := range strings.SplitSeq(c.URL, ",") {
		if _, err := url.Parse(one); err != nil {
			return nil, ErrURL // the error would repeat the URL
		}
	}
	told := false
	nc, err := wire.Patiently(ctx, func(context.Context) (*nats.Conn, error) {
		nc, err := jetlog.Connect(c.URL, c.Client...)
		if wire.NotNow(err) && !told {
			told = true
			c.Logger.Warn("NATS does not answer yet", "url", c.Shown, "err", err)
		}
		return nc, err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w "+
			"(is it running, and are TURNLEDGER_NATS_URL and its credentials right?)", c.Shown, err)
	}
	s := &Store{NC: nc, Config: c.Log}
	s.Config.Outside = true
	return s.opened(ctx, nil)
}

// opened opens the log, unless err is set. On an error it closes the store.
func (s *Store) opened(ctx context.Context, err error) (*Store, error) {
	if err == nil {
		s.Log, err = jetlog.Open(ctx, s.NC, s.Config)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	if s.Server != nil {
		s.Server.StageInMemory()
	}
	return s, nil
}

// Reopen opens the log again on the same connection, after another log has taken its place.
func (s *Store) Reopen(ctx context.Context) (err error) {
	s.Log.Close()
	s.Log, err = jetlog.Open(ctx, s.NC, s.Config)
	return err
}

// Close ends the connections and stops the server that was started here.
func (s *Store) Close() {
	if s.Config.Reads != nil {
		s.Config.Reads.Close()
	}
	if s.NC != nil {
		s.NC.Close()
	}
	if s.Server != nil {
		s.Server.Stop()
	}
}
