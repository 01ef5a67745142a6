package services

import "errors"

// Errors of the ports, besides those of events/conversation, events/jetlog and projections. A
// transport tells its clients what to do about each in its own words.
var (
	// ErrPositionNotReached: a read named a position that is not there when its deadline ends.
	ErrPositionNotReached = errors.New("the position is not reached yet: the log ends before it")
	// ErrModelFailed: the model did not answer, or not to the end. The turn is pending.
	ErrModelFailed = errors.New("the model did not answer")
	// ErrNoReceipt: nothing was erased under a receipt.
	ErrNoReceipt = errors.New("there is no such receipt")
	// ErrWithheld: a memory keeps back what it has, since a deletion in it is not confirmed yet.
	ErrWithheld = errors.New("withheld until a deletion is confirmed")
)
