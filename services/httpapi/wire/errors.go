package wire

import (
	"errors"
	"fmt"
)

// refusal is an error with its code of docs/contract.md#errors, and the field that is wrong, if there is one.
type refusal struct{ code, field, text string }

func (r *refusal) Error() string                     { return r.text }
func (r *refusal) ProblemCode() (code, field string) { return r.code, r.field }

// Errors that are passed to a Surface's Refuse, besides those of its own handlers and those of access.Authenticator.
// Their texts may be shown to clients.
var (
	ErrForeign error = &refusal{"forbidden", "", "a page of another site may not call this API; without " +
		"authentication it answers only to an IP address or localhost"}
	ErrNoScope error = &refusal{"forbidden", "", "nobody may make this call: it was declared without a scope"}
	ErrBound   error = &refusal{"forbidden", "", "a key that is bound to an identity can't make this call"}
	// ErrLater is what a Route's Admit returns if its handler admits the call, once it knows which session it names.
	ErrLater         = errors.New("the handler admits the call")
	ErrNoRoute error = &refusal{"not_found", "", "there is no such call: /docs lists them"}
	ErrMethod  error = &refusal{"method_not_allowed", "", "the call has another method: the header Allow names it"}
	// ErrQuery: the query is malformed, so a parameter could be taken for missing.
	ErrQuery  error = &refusal{"invalid_argument", "query", "query: is not percent-encoded as it should be"}
	ErrBody   error = &refusal{"malformed", "", "the body ended early or came too slowly"}
	ErrPacked error = &refusal{"malformed", "", "the body is not what its header Content-Encoding says, or its " +
		"window is wider than 8 MiB"}
	// ErrEncoding: the header Accept-Encoding is set.
	ErrEncoding error = &refusal{"unsupported_encoding", "", "the header Content-Encoding of a body may be gzip " +
		"or zstd"}
	// ErrOverloaded: API.enter returns it, by MaxRequests and MaxStreams.
	ErrOverloaded error = &refusal{"overloaded", "", "as many requests are under way as may be: " +
		"come again when the header Retry-After says so"}
)

// otherRole returns an error that names the role whose processes answer a call.
func otherRole(role string) error {
	return &refusal{"not_found", "", "this process has not the role " + role + ", which answers this call: " +
		"ask one that has it, by --url or TURNLEDGER_URL"}
}

// TooLarge says that a body has more than Most bytes.
type TooLarge struct{ Most int64 }

// Error names the bound.
func (e *TooLarge) Error() string { return fmt.Sprintf("the body has more than %d KiB", e.Most>>10) }

// ProblemCode returns the code of the contract.
func (*TooLarge) ProblemCode() (code, field string) { return "body_too_large", "" }

// Suspended is the refusal of all but public calls while the log is restored from a backup. API.Suspend and Closed
// return it.
type Suspended struct{ Why string }

// Error returns the reason.
func (e *Suspended) Error() string { return e.Why }

// ProblemCode returns the code of the contract.
func (*Suspended) ProblemCode() (code, field string) { return "log_unavailable", "" }
