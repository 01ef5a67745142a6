// Package httpapi is the transport: routes, the JSON of CONTRACT §2, and one table
// from errors to RFC 9457 problems. It decides nothing; whatever it answers comes
// from the ports that it is wired to (ports.go).
//
// No error, log line or metric holds a text that a client sent: huma registers and
// documents the calls, but parameters reach it as plain strings and bodies are read
// here, since its own validation echoes what it refuses. An answer is written only
// when its handler is done, so that stopping gracefully loses nothing acknowledged.
package httpapi
