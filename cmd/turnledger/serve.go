package main

import (
	"fmt"
	"log/slog"
)

type serveCmd struct {
	Config
	Roles string `help:"What this process does, with commas between: api, context, recent, audit, eraser, chat." default:"api,context,recent,audit,eraser"`
}

// Run serves the roles until it is stopped.
func (c *serveCmd) Run(e *env) error {
	roles, err := parseRoles(c.Roles)
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := roles.fit(c.Config); err != nil {
		return err
	}
	logger := newLogger(e.err, slog.LevelInfo, c.Verbose)
	warnUnknownEnv(logger)
	if c.PostgresURL == "" && roles.has(roleAudit) {
		logger.Warn("there is no audit: TURNLEDGER_POSTGRES_URL is not set; the log keeps everything, so the audit catches up when it is")
	}
	return runApp(e.ctx, c.Config, roles, logger, func(a *app) {
		logger.Info("serving", "roles", roles.String(), "listen", a.front.listener.Addr().String(), "version", version)
	})
}
