package main

import (
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/bearer"
)

// keys returns a function that lists the API keys, as turnledger keys list does. It returns nil if there is no file of
// keys.
func (a *app) keys() func() ([]access.Key, error) {
	if a.callers == nil || a.callers.Keys == nil {
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
