package client

import "github.com/turnledger/turnledger/events"

// HashIP gives metadata's ip_hash of an address: a hash under a key of yours, so that
// the address itself is kept nowhere. The same key gives the same hash.
func HashIP(key []byte, address string) string { return events.HashIP(key, address) }

// HashUserAgent gives metadata's user_agent_hash.
func HashUserAgent(key []byte, agent string) string { return events.HashUserAgent(key, agent) }
