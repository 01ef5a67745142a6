package cli

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
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

// moment is a time that a flag names: a date or a time, in UTC unless it says otherwise, or how long ago.
type moment time.Time

// Layouts of a moment besides RFC 3339.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04",
	time.DateOnly}

// UnmarshalText reads the flag.
func (m *moment) UnmarshalText(text []byte) error {
	s := string(text)
	if ago, ok := config.ParseDuration(s); ok {
		*m = moment(time.Now().Add(-ago))
		return nil
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, s); err == nil {
			*m = moment(at)
			return nil
		}
	}
	return errors.New("want a date such as 2026-11-27, a time such as 2026-11-27T08:00:00Z, " +
		"or how long ago, such as 36h or 7d")
}

// hyphen stands before an argument that begins with a hyphen and is no flag. No argument of a process holds it.
const hyphen = "\x00"

// Hyphened marks the arguments that begin with a hyphen and can't be flags of their verb, such as the id -100123, so
// that they are taken for what they are. Unhyphened takes the marks away after the parse.
func Hyphened(model *kong.Application, args []string) []string {
	short := "h" + shortFlags(model.Node, args)
	args = slices.Clone(args)
	for i, a := range args {
		switch {
		case a == "--":
			return args
		case len(a) < 2 || a[0] != '-' || a[1] == '-':
		case a[1] >= '0' && a[1] <= '9', len(a) > 2 && !strings.Contains(short, a[1:2]):
			args[i] = hyphen + a
		}
	}
	return args
}

// shortFlags returns the letters of the flags of the verb that arguments begin with.
func shortFlags(verb *kong.Node, args []string) (letters string) {
	for _, a := range args {
		i := slices.IndexFunc(verb.Children, func(n *kong.Node) bool { return n.Name == a })
		if i < 0 {
			break
		}
		verb = verb.Children[i]
	}
	for _, f := range verb.Flags {
		if f.Short != 0 {
			letters += string(f.Short)
		}
	}
	return letters
}

// Unhyphened takes the marks of Hyphened away from the arguments and flags of a parse.
func Unhyphened(k *kong.Context) {
	for _, p := range k.Path {
		switch {
		case p.Positional != nil:
			unhyphen(p.Positional.Target)
		case p.Flag != nil:
			unhyphen(p.Flag.Target)
		}
	}
}

func unhyphen(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.TrimPrefix(v.String(), hyphen))
	case reflect.Slice:
		for i := range v.Len() {
			unhyphen(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			unhyphen(v.Elem())
		}
	}
}
