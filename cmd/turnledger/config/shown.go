package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/services/access/secrets"
)

// Options are what the command line needs to read settings.
func Options() []kong.Option {
	return []kong.Option{
		kong.Resolvers(kong.ResolverFunc(fromFiles)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
	}
}

// prefix begins the names of all variables.
const prefix = "TURNLEDGER_"

// Row is a setting as the verb config prints it.
type Row struct{ Name, Value string }

// Rows returns the settings of a command in the order of their fields, without secrets.
func Rows(of *kong.Node) (out []Row) {
	for _, f := range of.Flags {
		if len(f.Envs) == 1 && f.Tag.Get("show") != "never" {
			out = append(out, Row{f.Envs[0], shown(f)})
		}
	}
	return out
}

func shown(f *kong.Flag) string {
	text := Text(f.Target.Interface())
	switch f.Tag.Get("show") {
	case "url":
		return secrets.Hide(text)
	case "auth":
		return ShownAuth(text)
	case "given":
		return secrets.Placeholder(text)
	default:
		return text
	}
}

// Text returns a setting's value in the form that its variable accepts.
func Text(value any) string {
	switch v := value.(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		if v == 0 {
			return "off"
		}
	}
	return fmt.Sprint(value)
}

// Unknown returns the environment variables that look like settings but that no flag reads, so that nobody relies on
// them. It also accepts each known variable with the suffix _FILE.
func Unknown(model *kong.Application) (names []string) {
	known := []string{prefix + "TEST_DATA", prefix + "TEST_OPENAPI", prefix + "TORTURE"} // tests read these
	_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok {
			known = append(known, f.Envs...)
		}
		return next(nil)
	})
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, prefix) && !slices.Contains(known, strings.TrimSuffix(name, "_FILE")) {
			names = append(names, name)
		}
	}
	return names
}

// readDuration reads "24h", "30d" or "off", in place of kong's own reading.
func readDuration(k *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := k.Scan.PopValueInto("duration", &s); err != nil {
		return err
	}
	if s == "off" || s == "keep" || s == "" {
		target.SetInt(0)
		return nil
	}
	v, ok := ParseDuration(s)
	if !ok {
		return errors.New("want a time such as 30m, 24h or 7d, or off")
	}
	target.SetInt(int64(v))
	return nil
}

// ParseDuration reads a duration such as 30m, 24h or 7d, and reports whether it is one. None is below 0.
func ParseDuration(s string) (time.Duration, bool) {
	v, err := time.ParseDuration(s)
	if n, days := strings.CutSuffix(s, "d"); days {
		var f float64
		f, err = strconv.ParseFloat(n, 64)
		v = time.Duration(f * 24 * float64(time.Hour))
	}
	return v, err == nil && v >= 0
}
