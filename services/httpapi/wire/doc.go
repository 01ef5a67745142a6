// Package wire is what every surface of the HTTP API needs: the router, limits, authentication, the log line, metrics
// and span of each call, checks of where a request comes from, long answers, the server, and the calls at the root
// (/healthz, /readyz, /metrics).
//
// It knows nothing of turns and sessions, and no form of an error. A Surface says which paths are its own, what its
// routes need, what a bound caller may reach by a path, and how it refuses. This package passes its own errors to the
// Refuse of the surface that the path belongs to, so a client sees only one form of error.
//
// No log line, metric or span holds anything that a client sent, except what a surface passes to Call.SetAttribute.
package wire
