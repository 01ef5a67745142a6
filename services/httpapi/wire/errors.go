package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/turnledger/turnledger/services/access"
)

// Errors that are passed to a Surface's Refuse, besides those of its own handlers and those of access.Authenticator.
// Their texts may be shown to clients.
var (
	// ErrForeign: 403.
	ErrForeign = errors.New("a page of another site may not call this API; without authentication it answers " +
		"only to an IP address or localhost")
	// ErrNoScope: 403.
	ErrNoScope = errors.New("nobody may make this call: it was declared without a scope")
	// ErrBound: 403.
	ErrBound = errors.New("a key that is bound to an identity can't make this call")
	// ErrNoRoute: 404.
	ErrNoRoute = errors.New("there is no such call")
	// ErrMethod: 405.
	ErrMethod = errors.New("the call has another method: the header Allow names it")
	// ErrQuery: the query is malformed, so a parameter could be taken for missing.
	ErrQuery = errors.New("the query is not percent-encoded as it should be")
	// ErrBody: 400.
	ErrBody = errors.New("the body ended early or came too slowly")
	// ErrPacked: 400.
	ErrPacked = errors.New("the body is not what its header Content-Encoding says, or its window is wider than 8 MiB")
	// ErrEncoding: 415. The header Accept-Encoding is set.
	ErrEncoding = errors.New("the header Content-Encoding of a body may be gzip or zstd")
	// ErrOverloaded: 503. API.enter returns it, by MaxRequests and MaxStreams.
	ErrOverloaded = errors.New("as many requests are under way as may be: " +
		"come again when the header Retry-After says so")
)

// MissingScopes are the scopes that a caller lacks: 403.
type MissingScopes struct{ Scopes access.Scopes }

// Error names the scopes.
func (e *MissingScopes) Error() string {
	return "the key lacks the scope " + strings.Join(e.Scopes.Names(), ", ")
}

// OtherRole says that processes of another role answer a call: 404.
type OtherRole struct{ Role string }

// Error names the role.
func (e *OtherRole) Error() string {
	return "this process has not the role " + e.Role + ", which answers this call: " +
		"ask one that has it, by --url or TURNLEDGER_URL"
}

// TooLarge says that a body has more than Most bytes: 413.
type TooLarge struct{ Most int64 }

// Error names the bound.
func (e *TooLarge) Error() string { return fmt.Sprintf("the body has more than %d KiB", e.Most>>10) }

// Suspended is the refusal of all but public calls while the log is restored from a backup: 503. API.Suspend and Closed
// return it.
type Suspended struct{ Why string }

// Error returns the reason.
func (e *Suspended) Error() string { return e.Why }
