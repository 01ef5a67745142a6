package services

import (
	"errors"
	"strconv"
	"time"
)

// ModelRefusal comes with ErrModelFailed: the model's endpoint answered with an HTTP status, and asked its callers to
// wait for a time, if that is above 0.
type ModelRefusal struct {
	Status int
	After  time.Duration
	// Type, Code and Param name what is wrong in the endpoint's terms; each is a name or "".
	Type, Code, Param string
}

func (r *ModelRefusal) Error() string { return "the endpoint answered " + strconv.Itoa(r.Status) }

// SafeText returns the error's text, which holds nothing of the call.
func (r *ModelRefusal) SafeText() string { return r.Error() }

// TooOften says that a session or an identity sends too many requests, and when it may send the next.
type TooOften struct{ Wait time.Duration }

// Error says what to do.
func (e *TooOften) Error() string {
	return "the session or the identity asks too often: come again when the header Retry-After says so"
}

// ProblemCode returns the code of the contract.
func (*TooOften) ProblemCode() (code, field string) { return "rate_limited", "" }

// Errors of the ports, besides those of events/session, events/jetlog and projections. Each transport says in its
// own words what a client can do about them.
var (
	// ErrNoSession is returned for every session that the caller may not know of.
	ErrNoSession = errors.New("there is no such session")
	// ErrOtherIdentity says that a bound caller asked for another identity.
	ErrOtherIdentity = errors.New("identity_id is another identity than the key is bound to")
	// ErrPositionNotReached: a read named a position that the log had not reached by the read's deadline.
	ErrPositionNotReached = errors.New("the position is not reached yet: the log ends before it")
	// ErrBehind: a view had not applied the log's events by the read's deadline.
	ErrBehind = errors.New("the view is behind the log")
	// ErrBusy comes with jetlog.ErrUnavailable: a session got so many concurrent writes that this write lost every
	// race. It had no effect.
	ErrBusy = errors.New("the session is too busy to decide on; try again")
	// ErrModelFailed: the model sent no answer, or broke off. The turn is pending.
	ErrModelFailed = errors.New("the model did not answer")
	// ErrPromptTooLong: the prompt is longer than the model's context.
	ErrPromptTooLong = errors.New("the prompt is longer than the model's context")
	// ErrNoResponse: there is no such response, or not any more.
	ErrNoResponse = errors.New("there is no such response")
	// ErrNoPrevious: there is no response with which the step is to go on.
	ErrNoPrevious = errors.New("there is no response to go on with")
	// ErrUnanswered: the response with which the step is to go on has no answer.
	ErrUnanswered = errors.New("the response to go on with has no answer")
	// ErrNoConversation: there is no conversation to which the step is to be added.
	ErrNoConversation = errors.New("there is no conversation to go on with")
	// ErrNoItem: the session has no item of this id.
	ErrNoItem = errors.New("there is no such item")
	// ErrItemTaken: the session has an item of an id that another one brings.
	ErrItemTaken = errors.New("there is an item of this id already")
	// ErrManySessions: the items of a request refer to those of too many sessions.
	ErrManySessions = errors.New("the items refer to too many sessions")
	// ErrNoInput: a step brings nothing that could be answered.
	ErrNoInput = errors.New("there is nothing to answer")
	// ErrNoReceipt: there is no receipt with this id.
	ErrNoReceipt = errors.New("there is no such receipt")
	// ErrNotExplained: the session has no turn that could be explained.
	ErrNotExplained = errors.New("the session has no such turn")
	// ErrNotRepeated: no earlier call was the same.
	ErrNotRepeated = errors.New("no earlier call was the same")
	// ErrWithheld: a memory withholds its texts, since a deletion in it is not confirmed yet.
	ErrWithheld = errors.New("withheld until a deletion is confirmed")
)
