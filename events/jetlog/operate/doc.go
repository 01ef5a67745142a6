// Package operate is what an operator does with a whole log: look at its streams and change them, take copies of them,
// and restore copies into an empty log.
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

// On returns what operates a log. It does no I/O.
func On(log *jetlog.Log) *Log { return &Log{log: log, inside: log.Inside()} }
