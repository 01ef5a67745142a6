package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// mostSecret bounds a file with a secret, in bytes.
const mostSecret = 64 << 10

// fromFiles sets a flag whose variable X is not set to the first line of the file that X_FILE names. So secrets need
// not stand in an environment, which others may see. An error names the file and never its content.
func fromFiles(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		file, given := os.LookupEnv(name + "_FILE")
		if !given || file == "" {
			continue
		}
		if os.Getenv(name) != "" {
			return nil, fmt.Errorf("%s and %s_FILE are both set: unset one", name, name)
		}
		value, err := secretIn(file)
		if err != nil {
			return nil, fmt.Errorf("%s_FILE: %w", name, err)
		}
		return value, nil
	}
	return nil, nil //nolint:nilnil // kong's way to say that there is none
}

func secretIn(file string) (string, error) {
	f, err := os.Open(file) //nolint:gosec // the file that the operator named
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, mostSecret+1))
	value := strings.TrimRight(string(raw), "\r\n")
	switch {
	case err != nil:
		return "", err
	case len(raw) > mostSecret || strings.ContainsAny(value, "\r\n\x00"):
		return "", errors.New(file + " must hold one line")
	case value == "":
		return "", errors.New(file + " is empty")
	default:
		return value, nil
	}
}
