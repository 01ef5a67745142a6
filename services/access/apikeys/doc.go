// Package apikeys authenticates callers of the HTTP API by keys that are listed in a
// file. The file holds hashes: nobody who reads it can call the API. A key has 130
// random bits, so that a plain SHA-256 of it can't be guessed at, and is compared in
// constant time. The file is written in one step and read again when it changes.
package apikeys
