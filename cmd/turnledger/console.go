package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services/access/login"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/export/explain"
	"github.com/turnledger/turnledger/services/httpapi/console"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// hasConsole reports whether this process shows the web console.
func (a *app) hasConsole() bool { return a.roles.has(roleContext) && a.cfg.HasConsole() }

// keepConsoleKey sets the key that seals the console's cookies: the configured one, or one that all processes share.
func (a *app) keepConsoleKey(ctx context.Context) error {
	given := a.cfg.ConsoleKey
	if a.hasConsole() && given == "" {
		var err error
		if given, err = a.notes.Once(ctx, "console.key", rand.Text); err != nil {
			return fmt.Errorf("keep the key of the console's cookies: %w (set TURNLEDGER_CONSOLE_KEY to keep it "+
				"yourself)", err)
		}
	}
	a.consoleKey = []byte(given)
	return nil
}

// mountConsole adds the web console, which reads through the ports of the native API.
func (a *app) mountConsole(api *httpwire.API, native v1.Config) {
	c := console.Config{
		SealKey: a.consoleKey, Sessions: native.Sessions, Events: native.Events, Lists: native.Lists,
		Search: native.Search,
		Counts: native.Counts, Projections: native.Projections, DeadLetters: native.DeadLetters,
		Receipts: native.Receipts, Keys: native.Keys, Turns: native.Turns, SessionWrites: native.SessionWrites,
		Chat: native.Chat, Contexts: native.Contexts,
		Erasures: native.Erasures, Keeper: native.Keeper, Tokens: a.tokens,
		Rules: native.Rules, Deadline: native.Deadline, Version: version,
	}
	c.Identities = a.store.Log
	c.Places = map[string]string{
		eraser.PlaceLog: "the event log: what was recorded, in order",
		recent.Name:     "the view that prompts are built from",
		audit.Name:      "the tables in PostgreSQL that lists, searches and statistics read",
		"memory":        "the memory outside, which keeps documents of turns",
		index.Name:      "the index of meanings",
		placeFiles:      "the files of that index",
	}
	c.Explain = explain.Service{Events: native.Events, Contexts: native.Contexts}
	if a.callers != nil {
		c.Auth = a.callers
		if at, ok := a.cfg.Login(console.Callback); ok {
			c.Login = login.New(at)
		}
	}
	console.Mount(api, c)
}
