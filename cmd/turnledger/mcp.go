package main

import (
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/mcp"
)

// mountMCP adds the door for agents, whose tools call the native API of this process.
func (a *app) mountMCP(api *httpwire.API) {
	if a.roles.has(roleContext) {
		mcp.Mount(api, v1.Form(), mcp.Config{Version: version, Write: a.cfg.MCPWrite})
	}
}
