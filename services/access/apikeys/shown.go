package apikeys

import (
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Shown returns what may be shown of a key at any time.
func (k Key) Shown() access.Key {
	return access.Key{
		Prefix: k.Prefix, Name: k.Name, Scopes: k.Scopes, IdentityID: present(k.IdentityID),
		CreatedAt: k.CreatedAt, ExpiresAt: present(k.ExpiresAt), RevokedAt: present(k.RevokedAt),
		State: k.State(time.Now()),
	}
}

// present returns a pointer to v, or nil for a zero value.
func present[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
