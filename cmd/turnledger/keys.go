package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/turnledger/turnledger/services/httpapi/apikeys"
)

// keysFile reads TURNLEDGER_AUTH. Its errors don't repeat it: it may be a key that went
// astray.
func keysFile(auth string) (apikeys.File, error) {
	file, ok := strings.CutPrefix(auth, "keys:")
	if !ok || file == "" {
		return "", errors.New("must be keys:FILE, with a file that turnledger keys create makes")
	}
	return apikeys.File(file), nil
}

// shownAuth is TURNLEDGER_AUTH as anybody may see it.
func shownAuth(auth string) string {
	if _, err := keysFile(auth); err != nil {
		return given(auth)
	}
	return auth
}

// openKeys reads the keys that callers must show, where they must.
func openKeys(cfg Config, logger *slog.Logger) (*apikeys.Ring, error) {
	if cfg.Auth == "" {
		return nil, nil //nolint:nilnil // nobody is asked for a key, on loopback
	}
	file, err := keysFile(cfg.Auth)
	if err != nil {
		return nil, fmt.Errorf("%w: TURNLEDGER_AUTH %w", errUsage, err)
	}
	ring, err := apikeys.Open(file, apikeys.Config{Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("%w: TURNLEDGER_AUTH: %w", errUsage, err)
	}
	return ring, nil
}
