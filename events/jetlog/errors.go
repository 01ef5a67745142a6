package jetlog

import (
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

var (
	// ErrUnavailable: the log did not answer, or its answer is unknown. A write may or may not have happened; the same
	// request again finds out.
	ErrUnavailable = failure.ErrUnavailable
	// ErrNoWrites is an ErrUnavailable whose cause is known: the disk is full or failing.
	ErrNoWrites = failure.ErrNoWrites
	// ErrTooLarge: an event is larger than the log accepts.
	ErrTooLarge = errors.New("the event is too large for the log")
	// ErrConflict: the session has events after the sequence that the append expected.
	ErrConflict = errors.New("the session has moved on")
	// ErrBatchDuplicate: an event of an atomic append is in the log already, so the append wrote nothing. An earlier
	// attempt of the same append may have written it, and its answer was lost.
	ErrBatchDuplicate = errors.New("an event of the batch is in the log already")
	// ErrStream: a stream that exists does not fit the configuration, or is not the one that was opened.
	ErrStream = failure.ErrStream
	// ErrRefused: a stream can't be changed as requested.
	ErrRefused = errors.New("the streams can't become that")
	// ErrNotEmpty: the log holds events, so no backup can be restored into it.
	ErrNotEmpty = errors.New(
		"the log holds events: restore into an empty one (another TURNLEDGER_DATA_DIR, or another NATS account)",
	)
	// ErrLayout: the server's files are not laid out as the durability gate needs.
	ErrLayout = failure.ErrLayout
	// ErrNoPartition: the log has fewer partitions than the caller names.
	ErrNoPartition = errors.New("the log has no such partition")
	// ErrClosed: the log, tail or subscriber was closed.
	ErrClosed = errors.New("closed")
)

// Conflict is an ErrConflict. Last is the session's last sequence as the server names it, or 0 if it names none.
type Conflict struct{ Last uint64 }

func (c *Conflict) Error() string {
	return fmt.Sprintf("%s: its last sequence is %d", ErrConflict, c.Last)
}

// Is reports whether target is ErrConflict.
func (c *Conflict) Is(target error) bool { return target == ErrConflict }

// Unavailable returns an ErrUnavailable for an error, after the words for what was being done, if there are any. An
// error that is one already is not told so twice.
func Unavailable(doing string, err error) error { return failure.Unavailable(doing, err) }
