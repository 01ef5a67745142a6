// Package apikeys authenticates callers of the HTTP API by keys that are listed in a file. The file holds only hashes,
// so reading it is not enough to call the API. A key has 130 random bits, too many to guess from its plain SHA-256.
// Hashes are compared in constant time. The file is written in one step, and read again when it changes.
package apikeys
