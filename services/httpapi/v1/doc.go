// Package v1 is the native surface of the HTTP API: its routes, the JSON of docs/contract.md#http, the strictness of
// its bodies, what a bound caller may reach by a path, and one table from errors to RFC 9457 problems. It decides
// nothing: its answers come from the ports of its Config. Package wire has what every surface needs.
//
// No error, log line or metric holds a text that a client sent. huma describes the calls and the schemas of their
// types, and no request passes through it: each parameter is read by its type, and a body by decode, which names the
// fields that are wrong and never their values. An answer is written only when its handler is done, so that stopping
// gracefully loses nothing acknowledged.
package v1
