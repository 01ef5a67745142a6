package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/bearer"
	"github.com/turnledger/turnledger/services/access/secrets"
	"github.com/turnledger/turnledger/services/access/tokens"
)

// itemKeyNote names the note that holds the key of the ids of items. That key can't be set by hand: with another one,
// ids that clients hold would name nothing.
const itemKeyNote = "items.key"

// keepKeys sets the keys that all processes share: each is the one that is configured, or is drawn once and kept beside
// the log.
func (a *app) keepKeys(ctx context.Context) error {
	for _, k := range []struct {
		to                   *[]byte
		needed               bool
		note, given, of, way string
	}{
		{&a.hashKey, true, "hash.key", a.cfg.HashKey, "the hashes of addresses",
			" (set TURNLEDGER_HASH_KEY to keep it yourself)"},
		{&a.consoleKey, a.hasConsole(), "console.key", a.cfg.ConsoleKey, "the console's cookies",
			" (set TURNLEDGER_CONSOLE_KEY to keep it yourself)"},
		{&a.itemKey, true, itemKeyNote, "", "the ids of items", ""},
	} {
		key := k.given
		if key == "" && k.needed {
			var err error
			if key, err = a.notes.Once(ctx, k.note, rand.Text); err != nil {
				return fmt.Errorf("keep the key of %s: %w%s", k.of, err, k.way)
			}
		}
		*k.to = []byte(key)
	}
	streamKey, err := a.drawn(a.cfg.StreamKey, "stream.key")
	if err != nil {
		return fmt.Errorf("keep the key of streams: %w (set TURNLEDGER_STREAM_KEY to keep it yourself)", err)
	}
	a.streamKey = streamKey
	promptKey, err := a.drawn(a.cfg.PromptKey, "prompt.key")
	if err != nil {
		return fmt.Errorf("keep the key of prompts: %w (set TURNLEDGER_PROMPT_KEY to keep it yourself)", err)
	}
	if promptKey == "" && a.roles.has(roleChat) {
		a.logger.Info("answers keep no digests of prompts, and whatif can't compare them: set TURNLEDGER_PROMPT_KEY")
	}
	a.promptKey = []byte(promptKey)
	return a.keepTokenKey()
}

// drawn returns the key that is configured, or else one that a file of the data directory holds. Processes on an
// outside NATS may share no directory, so they have none that was not configured: whoever reads the log's NATS could
// use one that is kept there.
func (a *app) drawn(given, file string) (string, error) {
	if given != "" || a.cfg.NATSURL != "" {
		return given, nil
	}
	return secrets.Drawn(filepath.Join(a.cfg.DataDir, file))
}

// keepTokenKey sets the key of the tokens that are made here.
func (a *app) keepTokenKey() error {
	key, err := a.drawn(a.cfg.TokenKey, "token.key")
	if err != nil {
		return fmt.Errorf("keep the key of tokens: %w (set TURNLEDGER_TOKEN_KEY to keep it yourself)", err)
	}
	a.callers.Tokens = &tokens.Issuer{
		Key: []byte(key), Maker: a.callers.Maker,
		Erased: func(ctx context.Context, identityID string) (bool, error) {
			gone, err := a.store.Log.IdentityErasedNow(ctx, identityID)
			return gone != nil, err
		},
	}
	return nil
}

// keys returns a function that lists the API keys, as turnledger keys list does. It returns nil if there is no file of
// keys.
func (a *app) keys() func() ([]access.Key, error) {
	if a.callers.Keys == nil {
		return nil
	}
	return func() ([]access.Key, error) {
		sources, err := bearer.ParseSources(a.cfg.Auth)
		if err != nil {
			return nil, err
		}
		return sources.List()
	}
}
