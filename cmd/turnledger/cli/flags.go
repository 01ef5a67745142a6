package cli

import (
	"errors"
	"strconv"
)

// count is a number of things that a flag asks for. It is at least 1: the API takes a 0 for no number, and would answer
// with as many as it does by default.
type count int

// UnmarshalText reads the flag.
func (c *count) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 {
		return errors.New("must be a whole number, at least 1")
	}
	*c = count(n)
	return nil
}

// only is an id, or part of one, to which a flag restricts a verb. An empty one, such as that of a variable that is not
// set, would mean everything.
type only string

// UnmarshalText reads the flag.
func (o *only) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("must not be empty: leave it out for all")
	}
	*o = only(text)
	return nil
}
