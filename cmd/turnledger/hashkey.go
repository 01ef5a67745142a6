package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
)

// hashKeyNote is where the key is kept that nobody has set.
const hashKeyNote = "hash.key"

// openHashKey gives the key of the hashes of addresses: TURNLEDGER_HASH_KEY, or one that is
// drawn once and kept beside the log, so that the hashes of all processes agree for ever.
func openHashKey(ctx context.Context, cfg config.Config, notes *jetlog.Notes) ([]byte, error) {
	if cfg.HashKey != "" {
		return []byte(cfg.HashKey), nil
	}
	for {
		var key string
		revision, err := notes.Read(ctx, hashKeyNote, &key)
		if err == nil && revision == 0 {
			key = rand.Text()
			_, err = notes.Write(ctx, hashKeyNote, key, 0)
		}
		switch {
		case errors.Is(err, jetlog.ErrConflict): // another process was first
		case err != nil:
			return nil, fmt.Errorf("keep the key of the hashes of addresses: %w (set TURNLEDGER_HASH_KEY to keep it yourself)", err)
		default:
			return []byte(key), nil
		}
	}
}
