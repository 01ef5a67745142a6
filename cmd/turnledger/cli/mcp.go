package cli

import (
	"io"
	"os"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/mcp"
	"github.com/turnledger/turnledger/services/contextbuilder/tokens"
)

type mcpCmd struct {
	URL      string `help:"The running server." default:"http://127.0.0.1:8480" env:"TURNLEDGER_URL"`
	Key      string `help:"Key for the server." env:"TURNLEDGER_KEY"`
	MCPWrite bool   `name:"mcp-write" help:"Let agents record turns, too." env:"TURNLEDGER_MCP_WRITE"`
}

// Run speaks the Model Context Protocol on standard input and output, until the input ends.
func (c *mcpCmd) Run(e *Env) error {
	return remote{URL: c.URL, Key: c.Key}.dial(firstTries, func(s *client.Client) error {
		server := mcp.New(mcp.Config{Client: s, Version: e.Version, Write: c.MCPWrite, Count: AgentTokens})
		err := server.Run(e.Ctx, &sdk.IOTransport{Reader: os.Stdin, Writer: unclosed{e.Out}})
		if e.Ctx.Err() != nil {
			return nil
		}
		return err
	})
}

// unclosed is an output that who writes to it does not close.
type unclosed struct{ io.Writer }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }

// AgentTokens counts the tokens of what agents are answered.
func AgentTokens(text string) int { return agentTokens()(text) }

var agentTokens = sync.OnceValue(func() func(string) int {
	counter, err := tokens.ForModel("gpt-4o")
	if err != nil || counter == nil {
		return func(s string) int { return len(s) } // no encoding has more tokens than bytes
	}
	return counter.Count
})
