package v1

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

type keysJSON struct {
	Keys []keyJSON `json:"keys" nullable:"false" doc:"Of the file of keys that the server reads; empty without one"`
}

type keyJSON struct {
	Prefix     string     `json:"prefix" doc:"The beginning of the key, which names it"`
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes" nullable:"false"`
	IdentityID *string    `json:"identity_id" doc:"The only identity that the key reaches; null: all"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	State      string     `json:"state" enum:"active,expired,revoked"`
}

// keys lists the API keys without their secrets.
func (a *surface) keys(context.Context, *struct{}) (keysJSON, error) {
	if a.cfg.Keys == nil {
		return keysJSON{[]keyJSON{}}, nil
	}
	list, err := a.cfg.Keys()
	return keysJSON{mapped(list, func(k *access.Key) keyJSON {
		return keyJSON{
			k.Prefix, k.Name, k.Scopes, k.IdentityID, k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.State,
		}
	})}, err
}
