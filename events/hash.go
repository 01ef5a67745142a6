package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// KeyedHash hashes a value that must not be stored, such as an address or a user agent, to 8 bytes in hex: HMAC-SHA-256
// under a key that is stored elsewhere. Without the key nobody can try all addresses. kind separates the hashes of
// different things. The hash of an empty value is empty.
func KeyedHash(key []byte, kind, value string) string {
	if value == "" {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(kind + "\x00" + value)) // never fails
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// HashIP returns the keyed hash of an address for metadata's ip_hash. All spellings of an address have the same hash.
// An IPv6 address has the hash of its /64, which belongs to one customer.
func HashIP(key []byte, address string) string {
	address = strings.TrimSpace(address)
	if ip, err := netip.ParseAddr(address); err == nil {
		ip = ip.Unmap().WithZone("")
		address = ip.String()
		if prefix, err := ip.Prefix(64); err == nil && ip.Is6() {
			address = prefix.Addr().String()
		}
	}
	return KeyedHash(key, "ip", address)
}

// HashUserAgent returns the keyed hash of a user agent for metadata's user_agent_hash.
func HashUserAgent(key []byte, agent string) string {
	return KeyedHash(key, "user_agent", strings.TrimSpace(agent))
}

// SessionDigest returns a short digest of a session's id: names that are made of it do not tell the id.
func SessionDigest(sessionID string) string {
	sum := sha256.Sum256([]byte(sessionID))
	return hex.EncodeToString(sum[:8])
}
