package jetlog

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable: the log did not answer, or its answer is unknown. A write may
	// or may not have happened; the same request again finds out.
	ErrUnavailable = errors.New("the log is unavailable")
	// ErrNoWrites: an ErrUnavailable whose cause is known.
	ErrNoWrites = fmt.Errorf("%w: it takes no writes, since its disk is full or failing", ErrUnavailable)
	// ErrTooLarge: an event is larger than the log takes.
	ErrTooLarge = errors.New("the event is too large for the log")
	// ErrConflict: the session has events that the expectation did not know.
	ErrConflict = errors.New("the session has moved on")
	// ErrBatchDuplicate: an event of an atomic append is in the log already, and so
	// the append wrote nothing; an earlier attempt of it, whose answer was lost, may
	// have.
	ErrBatchDuplicate = errors.New("an event of the batch is in the log already")
	// ErrStream: a stream that is there does not fit the configuration.
	ErrStream = errors.New("the log's streams do not fit the configuration")
	// ErrRefused: a stream that is there can't become what is wanted.
	ErrRefused = errors.New("the streams can't become that")
	// ErrLayout: the server's files are not laid out as the durability gate needs.
	ErrLayout = errors.New("the stream's files are not where the durability gate expects them")
	// ErrNotReached: a position is beyond what the log holds.
	ErrNotReached = errors.New("the log has not reached the position")
	// ErrClosed: the log or tail was closed.
	ErrClosed = errors.New("closed")
)

// Conflict is an ErrConflict with the sequence that the server names as the
// session's last, 0 where it names none.
type Conflict struct{ Last uint64 }

func (c *Conflict) Error() string {
	return fmt.Sprintf("%s: its last sequence is %d", ErrConflict, c.Last)
}

// Is matches ErrConflict.
func (c *Conflict) Is(target error) bool { return target == ErrConflict }
