// Package operate holds an operator's work on a whole log: inspect and change its streams, copy them, and restore
// copies into an empty log.
package operate

import (
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
)

// Log operates a log. Safe for concurrent use.
type Log struct {
	log    *jetlog.Log
	inside inside.Log
}

// On returns a Log that operates the given log. It does no I/O.
func On(log *jetlog.Log) *Log { return &Log{log: log, inside: log.Inside()} }
