package main

import (
	"fmt"

	"github.com/turnledger/turnledger/events"
)

// letterName is how an operator names a letter on the command line.
type letterName struct {
	Projection string `arg:"" help:"The view: recent, audit or memory."`
	Position   string `arg:"" help:"Where the event stands in the log, such as 0:42."`
}

// Validate implements kong's: a position that is none is wrong use.
func (n letterName) Validate() error {
	if _, err := events.ParsePosition(n.Position); err != nil {
		return fmt.Errorf("%q is no position: turnledger deadletters list names them", n.Position)
	}
	return nil
}

func (n letterName) String() string { return fmt.Sprintf("%s of %s", n.Position, n.Projection) }
