package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Tell returns of an error what can't hold a text: a panic with its stack, errors of the network and of time in
// their own words, and of all others the types.
func Tell(err error) string {
	var broken *panicked
	if errors.As(err, &broken) {
		return broken.Error() + "\n" + string(broken.stack)
	}
	return types(err)
}

// panicked is a panic of a handler. Its value may be a text; its type is none, and a
// stack holds no values.
type panicked struct {
	kind  string
	stack []byte
}

func (p *panicked) Error() string { return "panic: " + p.kind }

func types(err error) string {
	var network *net.OpError
	switch {
	case errors.As(err, &network):
		return network.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	}
	out := fmt.Sprintf("%T", err)
	switch e := err.(type) { //nolint:errorlint // walks the tree
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			out += " > " + types(next)
		}
	case interface{ Unwrap() []error }:
		out += " > ("
		for i, next := range e.Unwrap() {
			if i > 0 {
				out += ", "
			}
			out += types(next)
		}
		out += ")"
	}
	return out
}
