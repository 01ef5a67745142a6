package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/units"

	"github.com/turnledger/turnledger/services/access/certfile"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// limitsConfig bounds what callers of the API may take.
type limitsConfig struct {
	MaxBody        units.Base2Bytes `name:"http-max-body" help:"Most bytes of a request's body." default:"1MiB" env:"TURNLEDGER_HTTP_MAX_BODY"`
	MaxHeader      units.Base2Bytes `name:"http-max-header" help:"Most bytes of a request's headers." default:"64KiB" env:"TURNLEDGER_HTTP_MAX_HEADER"`
	HeaderTimeout  Duration         `name:"http-header-timeout" help:"How long a client may take for the headers." default:"5s" env:"TURNLEDGER_HTTP_HEADER_TIMEOUT"`
	ReadTimeout    Duration         `name:"http-read-timeout" help:"How long a client may take for a whole request." default:"30s" env:"TURNLEDGER_HTTP_READ_TIMEOUT"`
	KeepTimeout    Duration         `name:"http-idle-timeout" help:"How long a connection is kept that nothing is asked on." default:"2m" env:"TURNLEDGER_HTTP_IDLE_TIMEOUT"`
	RequestTimeout Duration         `name:"http-request-timeout" help:"How long an answer may take; those of models and streams have their own." default:"30s" env:"TURNLEDGER_HTTP_REQUEST_TIMEOUT"`
	MaxRequests    int              `name:"http-max-requests" help:"Requests that are answered at once; more are refused with 503." default:"1024" env:"TURNLEDGER_HTTP_MAX_REQUESTS"`
	MaxStreams     int              `name:"http-max-streams" help:"Streams of events and answers of models at once." default:"1024" env:"TURNLEDGER_HTTP_MAX_STREAMS"`
	MaxConnections int              `name:"http-max-connections" help:"Connections that are open at once; more wait." default:"10000" env:"TURNLEDGER_HTTP_MAX_CONNECTIONS"`
}

func (c limitsConfig) validate(complain func(name, format string, args ...any)) {
	if c.MaxBody < units.KiB || c.MaxBody > 8*units.MiB {
		complain("TURNLEDGER_HTTP_MAX_BODY", "must be 1KiB to 8MiB, which is the most that the log takes")
	}
	if c.MaxHeader < 4*units.KiB || c.MaxHeader > units.MiB {
		complain("TURNLEDGER_HTTP_MAX_HEADER", "must be 4KiB to 1MiB")
	}
	for name, d := range map[string]Duration{
		"HEADER": c.HeaderTimeout, "READ": c.ReadTimeout, "IDLE": c.KeepTimeout, "REQUEST": c.RequestTimeout,
	} {
		if d := time.Duration(d); d < 100*time.Millisecond || d > time.Hour {
			complain("TURNLEDGER_HTTP_"+name+"_TIMEOUT", "must be 100ms to 1h")
		}
	}
	for name, n := range map[string]int{"REQUESTS": c.MaxRequests, "STREAMS": c.MaxStreams, "CONNECTIONS": c.MaxConnections} {
		if n < 1 || n > 1_000_000 {
			complain("TURNLEDGER_HTTP_MAX_"+name, "must be 1 to 1000000")
		}
	}
}

func (c limitsConfig) rows() []setting {
	return []setting{
		{"TURNLEDGER_HTTP_MAX_BODY", c.MaxBody.String()},
		{"TURNLEDGER_HTTP_MAX_HEADER", c.MaxHeader.String()},
		{"TURNLEDGER_HTTP_HEADER_TIMEOUT", c.HeaderTimeout.String()},
		{"TURNLEDGER_HTTP_READ_TIMEOUT", c.ReadTimeout.String()},
		{"TURNLEDGER_HTTP_IDLE_TIMEOUT", c.KeepTimeout.String()},
		{"TURNLEDGER_HTTP_REQUEST_TIMEOUT", c.RequestTimeout.String()},
		{"TURNLEDGER_HTTP_MAX_REQUESTS", fmt.Sprint(c.MaxRequests)},
		{"TURNLEDGER_HTTP_MAX_STREAMS", fmt.Sprint(c.MaxStreams)},
		{"TURNLEDGER_HTTP_MAX_CONNECTIONS", fmt.Sprint(c.MaxConnections)},
	}
}

// server gives the bounds of connections; those of requests are the API's.
func (c limitsConfig) server(pair *certfile.Pair, logger *slog.Logger) httpwire.ServerConfig {
	s := httpwire.ServerConfig{
		Logger: logger, Drain: stopDeadline, HeaderTimeout: time.Duration(c.HeaderTimeout), ReadTimeout: time.Duration(c.ReadTimeout),
		IdleTimeout: time.Duration(c.KeepTimeout), MaxHeader: int(c.MaxHeader), MaxConnections: c.MaxConnections,
		WriteTimeout: max(3*time.Minute, time.Duration(c.RequestTimeout+c.ReadTimeout)),
	}
	if pair != nil {
		s.TLS = pair.Server()
	}
	return s
}
