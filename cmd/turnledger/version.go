package main

import (
	"fmt"
	"runtime/debug"

	"github.com/nats-io/nats-server/v2/server"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = "dev"

type versionCmd struct {
	JSON bool `help:"Machine output."`
}

func (c *versionCmd) Run(e *env) error {
	v := map[string]string{"version": version, "nats_server": server.VERSION}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	_, err := fmt.Fprintf(e.out, "turnledger %s (%s, nats-server %s)\n", v["version"], v["go"], v["nats_server"])
	return err
}
