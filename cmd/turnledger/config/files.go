package config

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/services/access/secrets"
)

// fromFiles reads a setting from a file: if the variable X of a flag is not set, it uses the first line of the file
// that X_FILE names. So secrets need not be in the environment, which others may see. An error names the file and never
// its content.
func fromFiles(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		file, given := os.LookupEnv(name + "_FILE")
		if !given || file == "" {
			continue
		}
		if os.Getenv(name) != "" {
			return nil, fmt.Errorf("%s and %s_FILE are both set: unset one", name, name)
		}
		value, err := secrets.Read(file)
		if err != nil {
			return nil, fmt.Errorf("%s_FILE: %w", name, err)
		}
		return value, nil
	}
	return nil, nil //nolint:nilnil // kong's way to say that there is none
}
