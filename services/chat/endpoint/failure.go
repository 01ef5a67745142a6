package endpoint

import (
	"errors"
	"fmt"
	"net"
	"net/http"
)

var (
	// ErrSilent is the cause of a context that ended since nothing was heard.
	ErrSilent = errors.New("the model fell silent")
	// ErrBroken says that a stream ended before its answer did.
	ErrBroken = errors.New("the model's stream ended before its answer did")
)

// failure tells of an error what an operator needs. The error's own text may hold what the
// endpoint answered, and so what a turn says.
type failure struct {
	why   string
	cause error
}

func (f *failure) Error() string { return f.why }
func (f *failure) Unwrap() error { return f.cause }

func reason(err error, status int) string {
	var unreachable net.Error
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Sprintf("the endpoint answered %d: is TURNLEDGER_MODEL_KEY right?", status)
	case status == http.StatusNotFound:
		return fmt.Sprintf("the endpoint answered %d: are TURNLEDGER_MODEL_URL, up to its version, and "+
			"TURNLEDGER_MODEL_NAME right?", status)
	case status != 0:
		return fmt.Sprintf("the endpoint answered %d", status)
	case errors.As(err, &unreachable):
		return "the endpoint can't be reached: is TURNLEDGER_MODEL_URL right?"
	default:
		return "the endpoint's answer is broken"
	}
}
