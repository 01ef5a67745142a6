package projections

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced: another runner or a rebuild has taken the partition over, or has applied the events already. A runner
	// that gets it stops.
	ErrFenced = errors.New("another runner, or a rebuild, has taken this partition over")
	// ErrStream: the stream is not the one of the checkpoint. The projection must be
	// rebuilt.
	ErrStream = errors.New("the stream is not the one that the projection followed: rebuild it with turnledger " +
		"projections rebuild")
	// ErrUnavailable: the view's store does not answer, and may later.
	ErrUnavailable = errors.New("the view's store does not answer")
	// ErrNoDeadLetter: a projection has no dead letter of that position.
	ErrNoDeadLetter = errors.New("there is no such dead letter: turnledger deadletters list shows those that there are")
	// ErrNoProjection: no view has that name.
	ErrNoProjection = errors.New("there is no such projection")
	// ErrNotFed: the view is fed by another process.
	ErrNotFed = errors.New("this process does not feed the projection")
	// ErrNoRebuild: no rebuild of the view runs in this process.
	ErrNoRebuild = errors.New("no rebuild of the projection runs in this process")
	// ErrNotYet: a view is not ready for events to leave the log.
	ErrNotYet    = errors.New("what is to be forgotten is not applied yet")
	errPermanent = errors.New("permanent")
)

// Wrap says what was attempted before an error, if there is one. It is for defer, with the result of the function.
func Wrap(err *error, attempted string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(attempted, args...), *err)
	}
}

// Permanent marks an error that trying again can't mend: the event is parked in
// the dead letters.
func Permanent(err error) error { return &marked{err, errPermanent} }

// IsPermanent reports whether an error was marked so.
func IsPermanent(err error) bool { return errors.Is(err, errPermanent) }

// Unavailable marks an error as ErrUnavailable; its text stays.
func Unavailable(err error) error { return &marked{err, ErrUnavailable} }

// NotYet marks an error as ErrNotYet; its text stays.
func NotYet(err error) error { return &marked{err, ErrNotYet} }

// marked is an error that is also another one, in its own words.
type marked struct{ err, as error }

func (m *marked) Error() string        { return m.err.Error() }
func (m *marked) Unwrap() error        { return m.err }
func (m *marked) Is(target error) bool { return target == m.as }
