// Package access defines who calls and what the caller may do: scopes, callers, and the port that finds the caller of a
// token. Packages below it authenticate: apikeys by a file of keys, tokens by an OpenID Connect issuer; certfile keeps
// TLS certificates. A transport asks an Authenticator for the caller, and compares the caller's Scopes with those that
// the route needs.
package access
