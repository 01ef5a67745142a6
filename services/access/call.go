package access

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Call is a call as its transport knows it. The transport's contexts hold it under CallKey.
type Call struct {
	// Caller is the zero value if the caller is not authenticated.
	Caller Caller
	// Remote is the address that the call came from, and Path is what it asks for.
	Remote, Path string
	// Admitted: the caller reaches what the call is about, and has not asked too often.
	Admitted bool
	// Steps measures the slow parts of the call; nil where nobody does.
	Steps Steps
	// Owners are the identities of the sessions that were looked up for the call.
	Owners sync.Map
}

// Steps measures the slow parts of a call: Step does one of them, Record records one that was measured elsewhere. A
// name is one word, and never a text from a client.
type Steps interface {
	Step(ctx context.Context, name string, do func(context.Context) error) error
	Record(ctx context.Context, name string, took time.Duration, err error)
}

// CallKey is the key of a *Call in a context.
type CallKey struct{}

// CallOf returns the call of a context.
func CallOf(ctx context.Context) *Call {
	if c, ok := ctx.Value(CallKey{}).(*Call); ok {
		return c
	}
	return &Call{}
}

// Detached returns a context for work that outlasts the call of a context: it knows the caller, and neither ends with
// the call nor measures anything for it.
func Detached(ctx context.Context) context.Context {
	c := CallOf(ctx)
	of := &Call{Caller: c.Caller, Remote: c.Remote, Path: c.Path, Admitted: c.Admitted}
	return context.WithValue(context.WithoutCancel(ctx), CallKey{}, of)
}

// MissingScopes are the scopes that a caller lacks.
type MissingScopes struct{ Scopes Scopes }

// Error names the scopes.
func (e *MissingScopes) Error() string {
	return "the key lacks the scope " + strings.Join(e.Scopes.Names(), ", ")
}

// ProblemCode returns the code of the contract.
func (*MissingScopes) ProblemCode() (code, field string) { return "forbidden", "" }
