package contextbuilder

import (
	"time"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Asked is what tests look into.
func Asked(
	req services.ContextRequest, r services.Reading, idle time.Duration, now time.Time,
) (turns []*session.Turn, shown, silent int) {
	turns, n := asked(req, r, idle, now)
	return turns, n.shown, n.silent
}
