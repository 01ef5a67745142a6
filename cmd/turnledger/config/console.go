package config

import (
	"net/url"
	"strings"

	"github.com/turnledger/turnledger/services/access/bearer"
	"github.com/turnledger/turnledger/services/access/login"
)

// console says how the web console is reached.
type console struct {
	Console                 string   `help:"The web console at /console/ of each process with the role context: on or off." default:"on" env:"TURNLEDGER_CONSOLE"`
	ConsoleKey              string   `help:"Key that seals the console's cookies; unset: one that is drawn once and kept in the log's NATS." env:"TURNLEDGER_CONSOLE_KEY" show:"given"`
	ConsoleURL              string   `name:"console-url" help:"The address at which browsers reach this deployment, such as https://ledger.example.org; needed to sign in at the issuer of TURNLEDGER_AUTH." env:"TURNLEDGER_CONSOLE_URL" show:"url"`
	ConsoleOIDCClientID     string   `name:"console-oidc-client-id" help:"What the issuer knows the console by; unset: people sign in to it with a key or a token." env:"TURNLEDGER_CONSOLE_OIDC_CLIENT_ID"`
	ConsoleOIDCClientSecret string   `name:"console-oidc-client-secret" help:"The console's secret at the issuer, if it has one." env:"TURNLEDGER_CONSOLE_OIDC_CLIENT_SECRET" show:"given"`
	ConsoleOIDCScopes       []string `name:"console-oidc-scopes" help:"Scopes that the console asks the issuer for besides openid." env:"TURNLEDGER_CONSOLE_OIDC_SCOPES"`
}

// HasConsole reports whether the web console is on.
func (c console) HasConsole() bool { return c.Console == "on" }

func (c console) validate(no *complaints, a auth) {
	no.unless(c.Console == "on" || c.Console == "off", "CONSOLE", "must be on or off")
	if c.ConsoleOIDCClientID == "" {
		return
	}
	sources, _ := bearer.ParseSources(a.Auth) // a fault is told of TURNLEDGER_AUTH
	no.when(sources.Issuer == "", "CONSOLE_OIDC_CLIENT_ID", "needs an issuer: set TURNLEDGER_AUTH to oidc:ISSUER")
	u, err := url.Parse(c.ConsoleURL)
	no.when(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "",
		"CONSOLE_URL", "must be the address of this deployment without a path, such as https://ledger.example.org")
}

// Login returns how people sign in to the console at the issuer; false if they don't. callback is the path to which the
// issuer sends them back.
func (c Config) Login(callback string) (login.Config, bool) {
	sources, err := bearer.ParseSources(c.Auth)
	return login.Config{
		Issuer: sources.Issuer, ClientID: c.ConsoleOIDCClientID, ClientSecret: c.ConsoleOIDCClientSecret,
		Redirect: strings.TrimSuffix(c.ConsoleURL, "/") + callback, Scopes: c.ConsoleOIDCScopes,
	}, err == nil && c.ConsoleOIDCClientID != ""
}
