package client

import "github.com/turnledger/turnledger/events"

// HashIP returns metadata's ip_hash of an address: a hash under a key of yours, so that
// the address itself is kept nowhere. The same key makes the same hash.
func HashIP(key []byte, address string) string { return events.HashIP(key, address) }

// HashUserAgent returns metadata's user_agent_hash.
func HashUserAgent(key []byte, agent string) string { return events.HashUserAgent(key, agent) }
