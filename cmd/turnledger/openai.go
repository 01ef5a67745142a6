package main

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/model"
	"github.com/turnledger/turnledger/services/read"
)

// mountOpenAI adds OpenAI's API, which writes and reads through the ports of the native one.
func (a *app) mountOpenAI(api *httpwire.API, ports services.Ports, reader *read.Reader) {
	c := openai.Config{
		Ports: ports, Key: a.itemKey, Strict: a.cfg.OpenAIStrict,
		Conversations: read.Items{
			Lookup: ports.Lookup, IDs: items.Minter{Key: a.itemKey}, SessionAt: a.sessionAt,
		},
		MaxBody: int64(a.cfg.OpenAIBody), OnPending: services.OnPending(a.cfg.OnPending),
		ChatHistory: services.History(a.cfg.ChatHistory), SessionHeaders: a.cfg.SessionHeaders,
	}
	if a.roles.has(roleAPI) {
		c.Sessions, c.Items = reader, a.answers
	}
	if a.roles.has(roleChat) {
		c.Models, c.Responses = []string{a.cfg.ModelName}, a.answers
		if a.cfg.ModelURL == "" {
			c.Models = []string{answer.Echo{}.Name()}
		}
		c.HostedTools = respond.HostedTools(a.cfg.ModelAPI == model.Responses && a.cfg.ModelURL != "")
	}
	openai.Mount(api, c)
}

// sessionAt returns the session of the event at a position.
func (a *app) sessionAt(ctx context.Context, at events.Position) (string, error) {
	if at.Partition >= a.store.Log.Partitions() {
		return "", nil
	}
	e, _, err := a.store.Log.At(ctx, at)
	return e.SessionID, err
}
