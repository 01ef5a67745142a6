package events

import "errors"

var (
	// ErrPosition says that a text is not a position.
	ErrPosition = errors.New("not a position")
	// ErrSubject says that a subject does not follow the rules of the log.
	ErrSubject = errors.New("not a subject of the log")
	// ErrMalformed says that an envelope states no fact. The error holds the reason, never the
	// content.
	ErrMalformed = errors.New("malformed event")
	// ErrID says that a text can't be the id of a session, a request or an identity.
	ErrID = errors.New("must be 1 to 256 bytes of UTF-8 without control characters, other than one or two dots")
)

// NotReady says why something can't be used. Reason may be shown to anybody; Err is for the operator and may be nil.
type NotReady struct {
	Reason string
	Err    error
}

func (n *NotReady) Error() string { return errors.Join(errors.New(n.Reason), n.Err).Error() }
func (n *NotReady) Unwrap() error { return n.Err }

// Public returns the reason.
func (n *NotReady) Public() string { return n.Reason }
