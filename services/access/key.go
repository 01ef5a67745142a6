package access

import "time"

// Key is what may be shown of an API key at any time: never the key itself.
type Key struct {
	Prefix     string    `json:"prefix" doc:"The beginning of the key, which names it"`
	Name       string    `json:"name"`
	Scopes     []string  `json:"scopes" nullable:"false"`
	IdentityID *string   `json:"identity_id" doc:"The only identity that the key reaches; null: all"`
	CreatedAt  time.Time `json:"created_at"`
	// ExpiresAt is null if the key never expires, RevokedAt if it was not revoked.
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	State     string     `json:"state" enum:"active,expired,revoked"`
}
