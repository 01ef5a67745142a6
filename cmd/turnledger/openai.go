package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/model"
	"github.com/turnledger/turnledger/services/read"
)

// itemKeyNote names the note that holds the key of the ids of items.
const itemKeyNote = "items.key"

// keepItemKey sets the key of the ids of items, which all processes share. It can't be set by hand: with another one,
// ids that clients hold would name nothing.
func (a *app) keepItemKey(ctx context.Context) error {
	key, err := a.notes.Once(ctx, itemKeyNote, rand.Text)
	if err != nil {
		return fmt.Errorf("keep the key of the ids of items: %w", err)
	}
	a.itemKey = []byte(key)
	return nil
}

// mountOpenAI adds OpenAI's API, which writes and reads through the ports of the native one.
func (a *app) mountOpenAI(
	api *httpwire.API, ports services.Ports, reader *read.Reader, builder services.ContextBuilder,
) {
	c := openai.Config{
		Ports: ports, SessionAt: a.sessionAt, Key: a.itemKey, Strict: a.cfg.OpenAIStrict,
		MaxBody: int64(a.cfg.OpenAIBody), OnPending: services.OnPending(a.cfg.OnPending),
	}
	if a.roles.has(roleAPI) {
		c.Sessions = reader
	}
	if a.roles.has(roleChat) {
		name := a.cfg.ModelName
		if a.cfg.ModelURL == "" {
			name = chat.Echo{}.Name()
		}
		c.Models = []string{name}
		c.Responses = respond.New(respond.Config{
			Ports: services.Ports{
				Turns: a.history, Messages: a.history, SessionWrites: a.history, Lookup: reader, Sessions: reader,
				Contexts: builder,
			},
			Log: a.store.Log, Answers: a.chatting, Model: a.model,
			Count: a.tokens, Context: a.cfg.ModelContext, IDs: items.Minter{Key: a.itemKey}, SessionOf: a.erasedIn,
		})
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

// erasedIn returns the session of a turn with a response whose events have left the log, or "".
func (a *app) erasedIn(ctx context.Context, turn uuid.UUID) (sessionID string, err error) {
	return eraser.SessionOfErased(ctx, a.notes, turn)
}
