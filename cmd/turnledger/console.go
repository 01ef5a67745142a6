package main

import (
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access/login"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/export/explain"
	"github.com/turnledger/turnledger/services/httpapi/console"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// hasConsole reports whether this process shows the web console.
func (a *app) hasConsole() bool { return a.roles.has(roleContext) && a.cfg.HasConsole() }

// mountConsole adds the web console, which reads through the ports of the native API.
func (a *app) mountConsole(api *httpwire.API, ports services.Ports) {
	c := console.Config{Ports: ports, SealKey: a.consoleKey, Tokens: a.tokens, Erased: a.store.Log}
	c.Places = map[string]string{
		eraser.PlaceLog: "the event log: what was recorded, in order",
		recent.Name:     "the view that prompts are built from",
		audit.Name:      "the tables in PostgreSQL that lists, searches and statistics read",
		"memory":        "the memory outside, which keeps documents of turns",
		index.Name:      "the index of meanings",
		placeFiles:      "the files of that index",
	}
	c.Explain = explain.Service{Events: ports.Events, Sessions: ports.Sessions, Contexts: ports.Contexts}
	if !a.callers.Open() {
		c.Auth = a.callers
		if at, ok := a.cfg.Login(console.Callback); ok {
			c.Login = login.New(at)
		}
	}
	console.Mount(api, c)
}
