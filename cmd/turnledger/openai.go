package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/models"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
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
	api *httpwire.API, native v1.Config, reader services.SessionReader, builder services.ContextBuilder,
) {
	c := openai.Config{
		SessionWrites: native.SessionWrites, Turns: native.Turns, Erasures: native.Erasures, Sessions: native.Sessions,
		Lists: native.Lists, SessionAt: a.sessionAt, Key: a.itemKey, OnPending: services.OnPending(a.cfg.OnPending),
		Strict: a.cfg.OpenAIStrict, MaxBody: int64(a.cfg.OpenAIBody), Source: a.sourceOf, Rules: native.Rules,
	}
	if a.roles.has(roleAPI) {
		c.Messages, c.Lookup, c.Sessions = a.history, a.history, reader
	}
	if a.roles.has(roleChat) {
		name := a.cfg.ModelName
		if a.cfg.ModelURL == "" {
			name = chat.Echo{}.Name()
		}
		c.Models = []string{name}
		c.Responses = respond.New(respond.Config{
			Turns: a.history, Lookup: a.history, Log: a.store.Log, Sessions: reader, Contexts: builder,
			Answers: a.chatting, Model: a.model,
			Count: a.tokens, Context: a.cfg.ModelContext, IDs: items.Minter{Key: a.itemKey}, SessionOf: a.erasedIn,
		})
		c.HostedTools = respond.HostedTools(a.cfg.ModelAPI == models.Responses && a.cfg.ModelURL != "")
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

// sourceOf returns a hash of the address that a request came from, for the security audit.
func (a *app) sourceOf(ctx context.Context) string {
	host, _, err := net.SplitHostPort(httpwire.CallOf(ctx).Remote)
	if err != nil {
		return ""
	}
	return events.HashIP(a.hashKey, host)
}
