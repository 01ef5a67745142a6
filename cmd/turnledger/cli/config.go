package cli

import (
	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
)

type configCmd struct {
	config.Config
	JSON bool `help:"Machine output."`
}

// Run prints the settings, without secrets.
func (c *configCmd) Run(e *Env, k *kong.Context) error {
	rows := config.Rows(k.Selected())
	if !c.JSON {
		for _, r := range rows {
			e.print("%s=%s", r.Name, r.Value)
		}
		return nil
	}
	out := map[string]string{}
	for _, r := range rows {
		out[r.Name] = r.Value
	}
	return e.printJSON(out)
}
