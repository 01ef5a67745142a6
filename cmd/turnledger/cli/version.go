package cli

import (
	"runtime/debug"

	"github.com/nats-io/nats-server/v2/server"
)

type versionCmd struct {
	JSON bool `help:"Machine output."`
}

// Run prints the versions of the program and its parts.
func (c *versionCmd) Run(e *Env) error {
	v := map[string]string{"version": e.Version, "nats_server": server.VERSION}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
	}
	if c.JSON {
		return e.printJSON(v)
	}
	e.print("turnledger %s (%s, nats-server %s)", v["version"], v["go"], v["nats_server"])
	return nil
}
