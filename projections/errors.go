package projections

import "errors"

var (
	// ErrFenced: another runner has taken the partition over, or has applied the
	// events already. The one who gets it stops.
	ErrFenced = errors.New("another runner has taken this partition over")
	// ErrStream: the stream is not the one of the checkpoint. The projection must be
	// rebuilt.
	ErrStream = errors.New("the stream is not the one that the projection followed: rebuild it with turnledger projections rebuild")
	// ErrNoDeadLetter: a projection has no dead letter of that position.
	ErrNoDeadLetter = errors.New("there is no such dead letter: turnledger deadletters list shows those that there are")
	errPermanent    = errors.New("permanent")
)

// Permanent marks an error that trying again can't mend: the event is parked in
// the dead letters.
func Permanent(err error) error { return &permanent{err} }

// IsPermanent tells whether an error was marked so.
func IsPermanent(err error) bool { return errors.Is(err, errPermanent) }

type permanent struct{ err error }

func (p *permanent) Error() string        { return p.err.Error() }
func (p *permanent) Unwrap() error        { return p.err }
func (p *permanent) Is(target error) bool { return target == errPermanent }
