package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/turnledger/turnledger/services/access/apikeys"
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
}

func (k keyring) file() (apikeys.File, error) {
	sources, err := parseAuth(k.Auth)
	if err == nil && sources.keys == "" {
		err = errors.New("has no keys:FILE")
	}
	if err != nil {
		err = fmt.Errorf("%w: --auth, TURNLEDGER_AUTH: %w", errUsage, err)
	}
	return sources.keys, err
}

// keyJSON is a key as --json shows it; Key is there once, when it is made.
type keyJSON struct {
	Key        string     `json:"key,omitempty"`
	Prefix     string     `json:"prefix"`
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	IdentityID *string    `json:"identity_id"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	State      string     `json:"state"`
}

func newKeyJSON(k apikeys.Key, text string) keyJSON {
	out := keyJSON{Key: text, Prefix: k.Prefix, Name: k.Name, Scopes: k.Scopes, CreatedAt: k.CreatedAt, State: k.State(time.Now())}
	if k.IdentityID != "" {
		out.IdentityID = &k.IdentityID
	}
	if !k.ExpiresAt.IsZero() {
		out.ExpiresAt = &k.ExpiresAt
	}
	if !k.RevokedAt.IsZero() {
		out.RevokedAt = &k.RevokedAt
	}
	return out
}

type keysCreateCmd struct {
	Name     string   `arg:"" help:"Whose key it is; several may have one name."`
	Scopes   []string `help:"What it may do, with commas between: turns:write, context:read, events:read, turns:redact, admin." required:""`
	Identity string   `help:"The one identity whose sessions it reaches; without, it reaches all."`
	Expires  Duration `help:"How long it counts, such as 90d." default:"off"`
	keyring
}

func (c *keysCreateCmd) Run(e *env) error {
	file, err := c.file()
	if err != nil {
		return err
	}
	now := time.Now()
	spec := apikeys.Key{Name: c.Name, Scopes: c.Scopes, IdentityID: c.Identity}
	if c.Expires > 0 {
		spec.ExpiresAt = now.Add(time.Duration(c.Expires)).UTC().Truncate(time.Second)
	}
	k, text, err := apikeys.New(spec, now)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := file.Add(e.ctx, k); err != nil {
		return err
	}
	return c.show(e, k, text)
}

// show prints a key that was made, this once. Alone it goes to standard output.
func (k keyring) show(e *env, made apikeys.Key, text string) error {
	if k.JSON {
		return printJSON(e.out, newKeyJSON(made, text))
	}
	if _, err := fmt.Fprintln(e.out, text); err != nil {
		return err
	}
	file, err := k.file()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.err, "This is the key %s of %s. It is not shown again: %s holds its hash only.\nServers with TURNLEDGER_AUTH=%s know it within a second; callers set TURNLEDGER_KEY to it, or send Authorization: Bearer KEY.\n",
		made.Prefix, made.Name, file, k.Auth)
	return err
}

type keysListCmd struct{ keyring }

func (c *keysListCmd) Run(e *env) error {
	file, err := c.file()
	if err != nil {
		return err
	}
	keys, err := file.Keys()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: make the first key with turnledger keys create NAME --scopes turns:write,context:read", file)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		out := struct {
			Keys []keyJSON `json:"keys"`
		}{[]keyJSON{}}
		for _, k := range keys {
			out.Keys = append(out.Keys, newKeyJSON(k, ""))
		}
		return printJSON(e.out, out)
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PREFIX\tNAME\tSCOPES\tIDENTITY\tCREATED\tEXPIRES\tSTATE")
	for _, k := range keys {
		expires := "never"
		if !k.ExpiresAt.IsZero() {
			expires = k.ExpiresAt.Format(time.DateOnly)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Prefix, k.Name, strings.Join(k.Scopes, ","), k.IdentityID, k.CreatedAt.Format(time.DateOnly), expires, k.State(time.Now()))
	}
	return w.Flush()
}

type keysRotateCmd struct {
	Prefix  string   `arg:"" help:"The beginning of the key, as turnledger keys list shows it."`
	Keep    Duration `help:"How long the former key goes on to count." default:"7d"`
	Expires Duration `help:"How long the new key counts; off: as long as the former one did." default:"off"`
	keyring
}

func (c *keysRotateCmd) Run(e *env) error {
	file, err := c.file()
	if err != nil {
		return err
	}
	now := time.Now()
	old, next, text, err := file.Rotate(e.ctx, c.Prefix, now.Add(time.Duration(c.Keep)), time.Duration(c.Expires), now)
	if err != nil {
		return err
	}
	if err := c.show(e, next, text); err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(e.err, "The former key %s counts until %s. End it before with: turnledger keys revoke %s\n", old.Prefix, old.ExpiresAt.Format(time.RFC3339), old.Prefix)
	return err
}

type keysRevokeCmd struct {
	Prefix string `arg:"" help:"The beginning of the key, as turnledger keys list shows it."`
	keyring
}

func (c *keysRevokeCmd) Run(e *env) error {
	file, err := c.file()
	if err != nil {
		return err
	}
	k, err := file.Revoke(e.ctx, c.Prefix, time.Now())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, newKeyJSON(k, ""))
	}
	_, err = fmt.Fprintf(e.out, "%s of %s is revoked\n", k.Prefix, k.Name)
	return err
}
