package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
	"github.com/turnledger/turnledger/services/access/bearer"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Make a key. It is shown once."`
	List   keysListCmd   `cmd:"" help:"List the keys; what is shown of one is no secret."`
	Rotate keysRotateCmd `cmd:"" help:"Make a key that takes the place of another, which goes on for a while. It is shown once."`
	Revoke keysRevokeCmd `cmd:"" help:"End a key. Servers know it within a second."`
}

// keyring is the file that the verbs change. They need no server.
type keyring struct {
	Auth string `help:"Where the file of keys is, as keys:FILE." default:"keys:./data/keys.json" env:"TURNLEDGER_AUTH"`
	JSON bool   `help:"Machine output."`
	file apikeys.File
}

// AfterApply implements kong's hook: it finds the file among the sources that --auth names.
func (k *keyring) AfterApply() error {
	sources, err := bearer.ParseSources(k.Auth)
	if err == nil && sources.Keys == "" {
		err = errors.New("has no keys:FILE")
	}
	if err != nil {
		return fmt.Errorf("%w: --auth, TURNLEDGER_AUTH: %w", config.ErrUsage, err)
	}
	k.file = sources.Keys
	return nil
}

type keysCreateCmd struct {
	Name     string        `arg:"" help:"Whose key it is; several may have one name."`
	Scopes   []string      `help:"What it may do, with commas between: turns:write, context:read, events:read, turns:redact, admin, tokens:issue." required:""`
	Identity only          `help:"The one identity whose sessions it reaches; without, it reaches all."`
	Expires  time.Duration `help:"How long it counts, such as 90d." default:"off"`
	keyring
}

// Run makes a key.
func (c *keysCreateCmd) Run(e *Env) error {
	now := time.Now()
	spec := apikeys.Key{Name: c.Name, Scopes: c.Scopes, IdentityID: string(c.Identity)}
	if c.Expires > 0 {
		spec.ExpiresAt = now.Add(c.Expires).UTC().Truncate(time.Second)
	}
	k, text, err := apikeys.New(spec, now)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrUsage, err)
	}
	if err := c.file.Add(e.Ctx, k); err != nil {
		return err
	}
	return c.show(e, k, text)
}

// show prints a new key, which is never shown again. Only the key itself goes to standard output.
func (k keyring) show(e *Env, made apikeys.Key, text string) error {
	if k.JSON {
		return e.printJSON(struct {
			Text string `json:"key"`
			access.Key
		}{text, made.Shown()})
	}
	e.print("%s", text)
	e.printErr("This is the key %s of %s. It is not shown again: %s holds its hash only.\n"+
		"Servers with TURNLEDGER_AUTH=%s know it within a second; callers set TURNLEDGER_KEY to it, "+
		"or send Authorization: Bearer KEY.", made.Prefix, made.Name, k.file, k.Auth)
	return nil
}

type keysListCmd struct{ keyring }

// Run lists the keys.
func (c *keysListCmd) Run(e *Env) error {
	keys, err := c.file.Keys()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: make the first key with turnledger keys create NAME "+
			"--scopes turns:write,context:read", c.file)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		out := []access.Key{}
		for _, k := range keys {
			out = append(out, k.Shown())
		}
		return e.printJSON(map[string]any{"keys": out})
	}
	table(e, "PREFIX\tNAME\tSCOPES\tIDENTITY\tCREATED\tEXPIRES\tSTATE", keys, func(k apikeys.Key) []any {
		expires := "never"
		if !k.ExpiresAt.IsZero() {
			expires = k.ExpiresAt.Format(time.DateOnly)
		}
		scopes, created := strings.Join(k.Scopes, ","), k.CreatedAt.Format(time.DateOnly)
		return []any{k.Prefix, k.Name, scopes, k.IdentityID, created, expires, k.State(time.Now())}
	})
	return nil
}

type keysRotateCmd struct {
	Prefix  string        `arg:"" help:"The beginning of the key, as turnledger keys list shows it."`
	Keep    time.Duration `help:"How long the former key goes on to count." default:"7d"`
	Expires time.Duration `help:"How long the new key counts; off: as long as the former one did." default:"off"`
	keyring
}

// Run makes a key in the place of another.
func (c *keysRotateCmd) Run(e *Env) error {
	now := time.Now()
	old, next, text, err := c.file.Rotate(e.Ctx, c.Prefix, now.Add(c.Keep), c.Expires, now)
	if err != nil {
		return err
	}
	if err := c.show(e, next, text); err != nil || c.JSON {
		return err
	}
	e.printErr("The former key %s counts until %s. End it before with: turnledger keys revoke %s",
		old.Prefix, old.ExpiresAt.Format(time.RFC3339), old.Prefix)
	return nil
}

type keysRevokeCmd struct {
	Prefix string `arg:"" help:"The beginning of the key, as turnledger keys list shows it."`
	keyring
}

// Run ends a key.
func (c *keysRevokeCmd) Run(e *Env) error {
	k, err := c.file.Revoke(e.Ctx, c.Prefix, time.Now())
	if err != nil {
		return err
	}
	if c.JSON {
		return e.printJSON(k.Shown())
	}
	e.print("%s of %s is revoked", k.Prefix, k.Name)
	return nil
}
