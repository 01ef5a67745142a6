// Package wire is what every surface of the HTTP API needs: the router, limits, authentication, the log line,
// metrics and span of each call, checks of where a request comes from, long answers, the server, and the calls at
// the root (/healthz, /readyz, /metrics).
//
// It knows no noun of ours, and no form of an error. A Surface says which paths are its own, what its routes need,
// what a bound caller may reach by a path, and how it refuses. The errors of this package are given to the Refuse
// of the surface that the path belongs to, so that a client reads one form of error only, whoever refuses.
//
// Nothing that a client sent stands in a log line, a metric or a span, besides what a surface notes by Call.Note.
package wire
