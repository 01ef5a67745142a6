package reach

import (
	"errors"
	"slices"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// ours are errors whose whole text is the program's.
var ours = []error{
	services.ErrModelFailed, services.ErrBehind, services.ErrPositionNotReached,
	jetlog.ErrUnavailable, jetlog.ErrStream, jetlog.ErrTooLarge, jetlog.ErrClosed,
}

// known are errors whose own text is the program's, while what they come with may hold a client's.
var known = slices.Concat(ours, []error{
	jetlog.ErrNoWrites,
	projections.ErrUnavailable, projections.ErrOutdated, projections.ErrNotYet, projections.ErrEmbedder,
	projections.ErrOtherModel, projections.ErrSomeAnonymous,
	services.ErrIndex, services.ErrNoIndex, services.ErrWithheld, services.ErrNoReceipt, services.ErrNotExplained,
})

// Words returns what a log may hold of an error of any layer: the known parts of its reason.
func Words(err error) string { return wire.SafeText(err, known...) }

// SafeText returns what a log may hold of an error of a port, to which no surface has added words: the reason, and
// nothing that a client sent.
func SafeText(err error) string {
	for _, own := range ours {
		if errors.Is(err, own) {
			return err.Error()
		}
	}
	return Words(err)
}
