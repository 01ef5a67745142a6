package projections

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced: another runner or a rebuild has claimed the partition, or has applied the events already. A runner
	// that gets this error stops.
	ErrFenced = errors.New("another runner, or a rebuild, has taken this partition over")
	// ErrStream: the checkpoint belongs to another stream than the log's. The projection must be rebuilt.
	ErrStream = errors.New("the stream is not the one that the projection followed: " +
		"rebuild it with turnledger projections rebuild")
	// ErrUnavailable: the view's store does not answer now, but may later.
	ErrUnavailable = errors.New("the view's store does not answer")
	// ErrOutdated: the view lacks what a call needs, until it is rebuilt.
	ErrOutdated = errors.New("the tables were filled with another TURNLEDGER_SEARCH_CONFIG, or beside another log: " +
		"rebuild them with turnledger projections rebuild audit")
	// ErrNoDeadLetter: the projection has no dead letter at this position.
	ErrNoDeadLetter = errors.New("there is no such dead letter: turnledger deadletters list shows those that there are")
	// ErrNoProjection: no view has that name.
	ErrNoProjection = errors.New("there is no such projection")
	// ErrNotRebuildable is the ErrNoProjection for a projection that exists, but serves nothing: there is nothing to
	// rebuild or verify.
	ErrNotRebuildable = fmt.Errorf("%w that can be rebuilt or verified", ErrNoProjection)
	// ErrNotFed: the view is fed by another process.
	ErrNotFed = errors.New("this process does not feed the projection")
	// ErrNoRebuild: no rebuild of the view runs in this process.
	ErrNoRebuild = errors.New("no rebuild of the projection runs in this process")
	// ErrNotYet: a view is not ready for events to leave the log.
	ErrNotYet = errors.New("what is to be forgotten is not applied yet")
	// ErrEmbedder: the endpoint of embeddings does not answer, or refuses.
	ErrEmbedder = errors.New("the embeddings endpoint does not answer: look at TURNLEDGER_EMBED_URL")
	// ErrOtherModel: another model of embeddings has filled the index.
	ErrOtherModel = errors.New("another model of embeddings, or other dimensions, has filled the index: " +
		"rebuild it with turnledger projections rebuild index")
	// ErrSomeAnonymous: TURNLEDGER_INDEX_ANONYMOUS was changed on an index.
	ErrSomeAnonymous = errors.New("TURNLEDGER_INDEX_ANONYMOUS was changed, so that the index holds some turns of " +
		"anonymous sessions and lacks others: rebuild it with turnledger projections rebuild index")
	// ErrSomeTexts: TURNLEDGER_INDEX_TEXT was changed on an index.
	ErrSomeTexts = errors.New("TURNLEDGER_INDEX_TEXT was changed, so that the index holds texts of some turns and " +
		"none of others: rebuild it with turnledger projections rebuild index")
	errPermanent = errors.New("permanent")
)

// Wrap adds to an error, if there is one, what was attempted. It is for defer, with the function's result.
func Wrap(err *error, attempted string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(attempted, args...), *err)
	}
}

// Permanent marks an error that a retry can't mend: the event becomes a dead letter.
func Permanent(err error) error { return &matched{err, errPermanent} }

// IsPermanent reports whether Permanent has marked an error.
func IsPermanent(err error) bool { return errors.Is(err, errPermanent) }

// Unavailable marks an error as ErrUnavailable; its text stays.
func Unavailable(err error) error { return &matched{err, ErrUnavailable} }

// NotYet marks an error as ErrNotYet; its text stays.
func NotYet(err error) error { return &matched{err, ErrNotYet} }

// matched is an error with its own text that errors.Is also matches with another error.
type matched struct{ err, as error }

func (m *matched) Error() string        { return m.err.Error() }
func (m *matched) Unwrap() error        { return m.err }
func (m *matched) Is(target error) bool { return target == m.as }
