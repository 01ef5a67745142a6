package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/cmd/turnledger/cli"
	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/projections/audit/localpg"
	"github.com/turnledger/turnledger/services/access/secrets"
)

type devCmd struct {
	config.Config
}

// Run runs everything on this machine: NATS in the process, the recent view in memory, and PostgreSQL from the
// installed binaries unless a URL is set.
func (c *devCmd) Run(e *cli.Env, k *kong.Context) error {
	// The screen shows the start; the log shows only problems.
	logger := newLogger(e.Err, slog.LevelWarn, c.Config, k)
	tuneRuntime(c.Config, devShare, logger)
	go tuneCollector(e.Ctx)
	// The port is taken first, so that a conflict shows before PostgreSQL is started.
	l, err := listen(e.Ctx, c.Config)
	if err != nil {
		return err
	}
	_ = l.Close()
	pg, err := c.postgres(e, logger)
	if err != nil {
		return err
	}
	if pg != nil {
		defer pg.Keep(e.Ctx)()
	}
	if c.NATSURL == "" && c.NATSListen == "" {
		c.NATSListen, c.NATSIfFree = embedded.FreeListener(e.Ctx), true
	}
	err = runApp(e.Ctx, c.Config, allRoles, logger, func(a *app) { c.screen(e.Out, a) })
	if err == nil {
		_, _ = fmt.Fprintln(e.Out, "Stopped. Everything that was acknowledged is in", c.DataDir)
	}
	return err
}

// postgres starts the private PostgreSQL, if no URL is set and PostgreSQL is installed.
func (c *devCmd) postgres(e *cli.Env, logger *slog.Logger) (*localpg.Server, error) {
	if c.PostgresURL != "" {
		return nil, nil //nolint:nilnil // a URL is set
	}
	ctx, cancel := context.WithTimeout(e.Ctx, time.Minute)
	defer cancel()
	pg, err := localpg.Start(ctx, localpg.Config{DataDir: filepath.Join(c.DataDir, "postgres"), Logger: logger})
	if errors.Is(err, localpg.ErrNotInstalled) {
		_, _ = fmt.Fprintf(e.Err, "There is no audit: %v\n"+
			"The log keeps everything, so the audit catches up when PostgreSQL is there.\n", err)
		return nil, nil //nolint:nilnil // dev goes on without an audit
	}
	if err != nil {
		return nil, err
	}
	c.PostgresURL = pg.URL()
	return pg, nil
}

func (c *devCmd) screen(w io.Writer, a *app) {
	url := c.Scheme() + "://" + a.front.listener.Addr().String()
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	p("")
	p("Turnledger %s is running.", version)
	p("")
	p("  API       %s/v1     (described at %s/docs)", url, url)
	if c.HasConsole() {
		p("  Console   %s/console/", url)
	}
	if a.store.Server != nil && a.store.Server.URL() != "" {
		p("  NATS      %s", a.store.Server.URL())
	} else if a.store.Server != nil {
		p("  NATS      in this process only (port 4222 is taken; set TURNLEDGER_NATS_LISTEN for another)")
	} else {
		p("  NATS      %s", secrets.Hide(c.NATSURL))
	}
	if c.PostgresURL != "" {
		p("  Audit     %s", secrets.Hide(c.PostgresURL))
	} else {
		p("  Audit     none: no PostgreSQL")
	}
	p("  Recent    %s", recentOf(c.Config))
	if c.ModelURL != "" {
		p("  Model     %s at %s", c.ModelName, secrets.Hide(c.ModelURL))
	} else {
		p("  Model     an echo: set TURNLEDGER_MODEL_URL and TURNLEDGER_MODEL_NAME for a real one")
	}
	p("  Data      %s", c.DataDir)
	key := ""
	if c.Auth != "" {
		p("  Keys      %s", config.ShownAuth(c.Auth))
		key = `-H "Authorization: Bearer $TURNLEDGER_KEY" `
	}
	p("")
	p("Record a turn:")
	p("")
	p(`  curl -s %s%s/v1/sessions/first/turns -d '{"request_id":"1","question_neutral":"Who is Donald Trump?"}'`, key, url)
	p("")
	p("Ctrl-C stops it.")
}

func recentOf(c config.Config) string {
	if c.RedisURL != "" {
		return secrets.Hide(c.RedisURL)
	}
	return "in memory"
}
