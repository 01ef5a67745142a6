package access

import "time"

// Key is what may be shown of an API key. Text is set only once, when the key is made.
type Key struct {
	Text       string    `json:"key,omitempty"`
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
