package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/bearer"
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
		Counts: native.Counts, Projections: native.Projections, DeadLetters: native.DeadLetters,
		Receipts: native.Receipts,
		Rules:    native.Rules, Deadline: native.Deadline, Version: version,
	}
	c.Explain = explain.Service{Events: native.Events, Contexts: native.Contexts}
	if a.callers != nil {
		c.Auth = a.callers
		if a.callers.Keys != nil {
			c.Keys = a.keysOfConsole
		}
	}
	console.Mount(api, c)
}

// keysOfConsole lists the file of keys, as turnledger keys list does.
func (a *app) keysOfConsole() ([]access.Key, error) {
	sources, err := bearer.ParseSources(a.cfg.Auth)
	if err != nil {
		return nil, err
	}
	list, err := sources.Keys.Keys()
	if err != nil {
		return nil, err
	}
	out := make([]access.Key, len(list))
	for i, k := range list {
		out[i] = k.Shown()
	}
	return out, nil
}
