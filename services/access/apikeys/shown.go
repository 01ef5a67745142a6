package apikeys

import "time"

// Shown is a key as it may be shown; Key is there once, when it is made.
type Shown struct {
	Key        string    `json:"key,omitempty"`
	Prefix     string    `json:"prefix"`
	Name       string    `json:"name"`
	Scopes     []string  `json:"scopes"`
	IdentityID *string   `json:"identity_id"`
	CreatedAt  time.Time `json:"created_at"`
	// A key without an end has neither.
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	State     string     `json:"state"`
}

// Shown returns what may be shown of a key now; text is the key itself, where it was just made.
func (k Key) Shown(text string) Shown {
	return Shown{
		Key: text, Prefix: k.Prefix, Name: k.Name, Scopes: k.Scopes, IdentityID: present(k.IdentityID),
		CreatedAt: k.CreatedAt, ExpiresAt: present(k.ExpiresAt), RevokedAt: present(k.RevokedAt),
		State: k.State(time.Now()),
	}
}

// present returns nil for a zero value.
func present[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
