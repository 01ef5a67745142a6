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
	v := map[string]string{"version": e.Version, "commit": "unknown", "nats_server": server.VERSION}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				v["commit"] = s.Value
			case s.Key == "vcs.modified" && s.Value == "true": // stands behind the revision
				v["commit"] += " with changes"
			}
		}
	}
	if c.JSON {
		return e.printJSON(v)
	}
	e.print("turnledger %s (commit %s, %s, nats-server %s)", v["version"], v["commit"], v["go"], v["nats_server"])
	return nil
}
