package client

import "github.com/turnledger/turnledger/events"

// HashIP returns the ip_hash for a turn's metadata: a hash of an address under your own key, so that the address itself
// is stored nowhere. The same key returns the same hash.
func HashIP(key []byte, address string) string { return events.HashIP(key, address) }

// HashUserAgent returns the user_agent_hash for a turn's metadata, as HashIP does.
func HashUserAgent(key []byte, agent string) string { return events.HashUserAgent(key, agent) }
