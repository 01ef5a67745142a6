package config

import (
	"net/url"
	"time"

	"github.com/alecthomas/units"

	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// bounds limits what callers of the API may use.
type bounds struct {
	MaxBody        units.Base2Bytes `name:"http-max-body" help:"Most bytes of a request's body." default:"1MiB" env:"TURNLEDGER_HTTP_MAX_BODY"`
	MaxHeader      units.Base2Bytes `name:"http-max-header" help:"Most bytes of a request's headers." default:"64KiB" env:"TURNLEDGER_HTTP_MAX_HEADER"`
	HeaderTimeout  time.Duration    `name:"http-header-timeout" help:"How long a client may take for the headers." default:"5s" env:"TURNLEDGER_HTTP_HEADER_TIMEOUT"`
	ReadTimeout    time.Duration    `name:"http-read-timeout" help:"How long a client may take for a whole request." default:"30s" env:"TURNLEDGER_HTTP_READ_TIMEOUT"`
	KeepTimeout    time.Duration    `name:"http-idle-timeout" help:"How long a connection is kept that nothing is asked on." default:"2m" env:"TURNLEDGER_HTTP_IDLE_TIMEOUT"`
	RequestTimeout time.Duration    `name:"http-request-timeout" help:"How long an answer may take; those of models and streams have their own." default:"30s" env:"TURNLEDGER_HTTP_REQUEST_TIMEOUT"`
	MaxRequests    int              `name:"http-max-requests" help:"Requests that are answered at once; more are refused with 503." default:"1024" env:"TURNLEDGER_HTTP_MAX_REQUESTS"`
	MaxStreams     int              `name:"http-max-streams" help:"Streams of events and answers of models at once." default:"1024" env:"TURNLEDGER_HTTP_MAX_STREAMS"`
	MaxConnections int              `name:"http-max-connections" help:"Connections that are open at once; more wait." default:"10000" env:"TURNLEDGER_HTTP_MAX_CONNECTIONS"`
	OpenAIBody     units.Base2Bytes `name:"openai-body" help:"Most bytes of a request's body on OpenAI's routes." default:"16MiB" env:"TURNLEDGER_OPENAI_BODY"`
	OpenAIStrict   bool             `name:"openai-strict" help:"OpenAI's routes refuse what OpenAI refuses, such as more than 20 items in one call." env:"TURNLEDGER_OPENAI_STRICT"`
	CORSOrigins    []string         `name:"cors-origins" help:"Origins whose web pages may call the API, but for tokens and what operates the system, such as https://app.example.org." env:"TURNLEDGER_CORS_ORIGINS"`
	Pprof          string           `help:"Address on loopback for profiles of this process (pprof); unset: none." env:"TURNLEDGER_PPROF"`
}

func (c bounds) validate(no *complaints) {
	no.unless(within(c.MaxBody, units.KiB, 8*units.MiB),
		"HTTP_MAX_BODY", "must be 1KiB to 8MiB, which is the most that the log takes")
	no.unless(within(c.OpenAIBody, units.KiB, 256*units.MiB), "OPENAI_BODY", "must be 1KiB to 256MiB")
	for _, origin := range c.CORSOrigins {
		u, err := url.Parse(origin)
		no.unless(err == nil && u.Scheme != "" && u.Host != "" && origin == u.Scheme+"://"+u.Host, "CORS_ORIGINS",
			"must be origins, as browsers send them: https://app.example.org, without a path")
	}
	no.unless(within(c.MaxHeader, 4*units.KiB, units.MiB), "HTTP_MAX_HEADER", "must be 4KiB to 1MiB")
	if c.Pprof != "" {
		err := wire.CheckProfiles(c.Pprof)
		no.when(err != nil, "PPROF", "%v", err)
	}
	for name, d := range map[string]time.Duration{
		"HEADER": c.HeaderTimeout, "READ": c.ReadTimeout, "IDLE": c.KeepTimeout, "REQUEST": c.RequestTimeout,
	} {
		no.unless(within(d, 100*time.Millisecond, time.Hour), "HTTP_"+name+"_TIMEOUT", "must be 100ms to 1h")
	}
	for name, n := range map[string]int{
		"REQUESTS": c.MaxRequests, "STREAMS": c.MaxStreams, "CONNECTIONS": c.MaxConnections,
	} {
		no.unless(within(n, 1, 1_000_000), "HTTP_MAX_"+name, "must be 1 to 1000000")
	}
}
