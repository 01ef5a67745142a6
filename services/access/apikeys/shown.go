package apikeys

import "time"

// Shown is what a key may show. Key is set only once, when the key is made.
type Shown struct {
	Key        string    `json:"key,omitempty"`
	Prefix     string    `json:"prefix"`
	Name       string    `json:"name"`
	Scopes     []string  `json:"scopes"`
	IdentityID *string   `json:"identity_id"`
	CreatedAt  time.Time `json:"created_at"`
	// ExpiresAt is null if the key never expires, RevokedAt if it was not revoked.
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	State     string     `json:"state"`
}

// Made returns what is shown of a key when it was made: all of it, with its text.
func (k Key) Made(text string) Shown {
	shown := k.Shown()
	shown.Key = text
	return shown
}

// Shown returns what may be shown of a key at any time.
func (k Key) Shown() Shown {
	return Shown{
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
