package services

import "errors"

// Errors of the ports, besides those of events/conversation, events/jetlog and projections. Each
// transport has its own words for what a client can do about them.
var (
	// ErrPositionNotReached: a read named a position that is not there when its deadline ends.
	ErrPositionNotReached = errors.New("the position is not reached yet: the log ends before it")
	// ErrBehind: a view has not applied what the log holds when the deadline of a read ends.
	ErrBehind = errors.New("the view is behind the log")
	// ErrModelFailed: the model did not answer, or not to the end. The turn is pending.
	ErrModelFailed = errors.New("the model did not answer")
	// ErrNoReceipt: nothing was erased under a receipt.
	ErrNoReceipt = errors.New("there is no such receipt")
	// ErrWithheld: a memory keeps back what it has, since a deletion in it is not confirmed yet.
	ErrWithheld = errors.New("withheld until a deletion is confirmed")
)
