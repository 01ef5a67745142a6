package apikeys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/access"
)

// Key is a key as the file holds it: everything but the key's own text. It is valid from CreatedAt until ExpiresAt
// (zero: no end) or RevokedAt (zero: not revoked).
type Key struct {
	Prefix     string    `json:"prefix"` // the beginning of the key, by which people recognise it
	Name       string    `json:"name"`
	Hash       digest    `json:"hash"`
	Scopes     []string  `json:"scopes"`
	IdentityID string    `json:"identity_id,omitempty"` // if set, the key reaches only sessions linked to it
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
}

// States of a key.
const (
	Active  = "active"
	Expired = "expired"
	Revoked = "revoked"
)

// State returns the state of the key at a time.
func (k Key) State(now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return Revoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Expired
	default:
		return Active
	}
}

// A key is "tl_", eight characters by which people recognise it, "_" and the secret.
const (
	keyStart  = "tl_"
	prefixLen = len(keyStart) + 8
)

// New makes a key with k's name, scopes, identity and expiry, and returns it with its text, which is stored nowhere. It
// refuses keys that the server would refuse.
func New(k Key, now time.Time) (Key, string, error) {
	k.Prefix = keyStart + strings.ToLower(rand.Text()[:8])
	text := k.Prefix + "_" + rand.Text()
	k.Hash, k.CreatedAt = digestOf(text), now.UTC().Truncate(time.Second)
	return k, text, k.check()
}

// check refuses keys that would not do what an operator expects of them.
func (k Key) check() error {
	scopes, err := access.ParseScopes(k.Scopes)
	switch {
	case len(k.Prefix) != prefixLen || !strings.HasPrefix(k.Prefix, keyStart):
		return errors.New("the prefix is none of a key")
	case events.ValidID(k.Name) != nil:
		return errors.New("its name must have 1 to 256 bytes and no control characters")
	case err != nil:
		return err
	case scopes == 0:
		return errors.New("it has no scope")
	case k.IdentityID != "" && events.ValidID(k.IdentityID) != nil:
		return fmt.Errorf("its identity: %w", events.ErrID)
	case k.IdentityID != "" && slices.Contains(k.Scopes, access.Admin.Names()[0]):
		return errors.New("one that is bound to an identity can't have the scope admin")
	default:
		return nil
	}
}

// digest is the SHA-256 of a key. The type prevents comparison with ==, so that digests are compared in constant time
// (docs/decisions.md#a-key-is-130-random-bits-and-its-sha-256-is-kept).
type digest struct {
	_   [0]func()
	sum [sha256.Size]byte
}

func digestOf(text string) digest { return digest{sum: sha256.Sum256([]byte(text))} }

func (d digest) equal(other digest) bool {
	return subtle.ConstantTimeCompare(d.sum[:], other.sum[:]) == 1
}

// MarshalText writes hexadecimal digits.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d.sum[:]), nil }

// UnmarshalText reads hexadecimal digits.
func (d *digest) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(d.sum)) {
		return errors.New("want the 64 hexadecimal digits of a SHA-256")
	}
	_, err := hex.Decode(d.sum[:], b)
	return err
}
