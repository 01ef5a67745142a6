// Package v1 is the native surface of the HTTP API: its routes, the JSON of docs/contract.md#http, the checks of its
// bodies, what a bound caller may reach by a path, and one table from errors to RFC 9457 problems. It has no logic of
// its own: its answers come from the ports of its Config. Package wire has what every surface needs.
//
// No error, log line or metric holds a text that a client sent. huma only describes the calls and the schemas of their
// types; no request passes through it. Each parameter is read by its own type, and a body by decode, which names faulty
// fields but never their values. An answer is written only when its handler is done, so a graceful stop loses nothing
// acknowledged.
package v1
