package main

import (
	"io"
	"log/slog"

	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/cmd/turnledger/cli"
	"github.com/turnledger/turnledger/cmd/turnledger/config"
)

type serveCmd struct {
	config.Config
	Roles string `help:"What this process does, with commas between: api, context, recent, audit, index, eraser, chat." default:"api,context,recent,audit,eraser"`
}

// Run serves the roles until it is stopped.
func (c *serveCmd) Run(e *cli.Env, k *kong.Context) error {
	roles, err := parseRoles(c.Roles)
	if err != nil {
		return err
	}
	if err := roles.fit(c.Config); err != nil {
		return err
	}
	logger := newLogger(e.Err, slog.LevelInfo, c.Config, k)
	tuneRuntime(c.Config, serveShare, logger)
	go tuneCollector(e.Ctx)
	if c.PostgresURL == "" && roles.has(roleAudit) {
		logger.Warn("there is no audit: TURNLEDGER_POSTGRES_URL is not set; the log keeps everything, " +
			"so the audit catches up when it is")
	}
	return runApp(e.Ctx, c.Config, roles, logger, func(a *app) {
		logger.Info("serving", "roles", roles.String(), "listen", a.front.listener.Addr().String(), "version", version)
	})
}

// newLogger makes the process's logger. Its first lines name the environment variables that have no effect, so that
// nobody relies on them.
func newLogger(w io.Writer, level slog.Level, cfg config.Config, k *kong.Context) *slog.Logger {
	if cfg.Verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(newOncePerCause(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
	for _, name := range config.Unknown(k.Model) {
		logger.Warn("the environment variable is not known to this version and has no effect", "name", name)
	}
	return logger
}
