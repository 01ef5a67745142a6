package events

import "errors"

var (
	// ErrPosition: the text is not a position.
	ErrPosition = errors.New("not a position")
	// ErrSubject: the subject is not one that the log's rules give.
	ErrSubject = errors.New("not a subject of the log")
	// ErrMalformed: an envelope that states no fact. Only its reason is told,
	// never its content.
	ErrMalformed = errors.New("malformed event")
	// ErrID: an id of a session, request or identity that breaks CONTRACT §2.
	ErrID = errors.New("must be 1 to 256 bytes of UTF-8 without control characters, other than one or two dots")
)
