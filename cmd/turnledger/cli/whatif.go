package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export"
)

type whatifCmd struct {
	Sessions    []string `help:"Sessions, with commas between; several times, too. A comma of an id itself is written \\,." sep:","`
	Identity    only     `help:"The sessions that are linked to an identity."`
	Since       moment   `help:"Turns that were answered at or after a date, a time, or so long ago (36h); alone, of all sessions."`
	MaxTokens   count    `help:"What if history had at most so many tokens."`
	MaxMessages count    `help:"What if history had at most so many messages, at least 2."`
	Summary     bool     `help:"What if a summary stood in the place of turns that the window left out."`
	Memory      bool     `help:"What if prompts had long-term memory, as it is today."`
	System      string   `help:"What if prompts began with the text of a file." placeholder:"FILE"`
	Format      string   `help:"parquet: make a table of it, in the file that -o names." enum:",parquet" default:""`
	Output      string   `help:"The file of --format." short:"o"`
	remote
}

// Run shows what models were told of the history, and what they would have been told.
func (c *whatifCmd) Run(e *Env) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	out, err := c.rows(e)
	if err != nil {
		return err
	}
	return c.dial(1, func(s *client.Client) error {
		total, last, err := s.WhatIf(e.Ctx, q, out.add)
		if err = errors.Join(c.explain(e.Ctx, err), out.close(err == nil)); err != nil {
			return err
		}
		if c.JSON {
			_, err = fmt.Fprintf(e.Out, "%s\n", last)
			return err
		}
		for _, line := range whatIfTotal(total) {
			if c.Output != "" {
				e.printErr("%s", line)
			} else {
				e.print("%s", line)
			}
		}
		return nil
	})
}

func (c *whatifCmd) query() (q client.WhatIfQuery, err error) {
	of := 0
	for _, given := range []bool{len(c.Sessions) > 0, c.Identity != "", !time.Time(c.Since).IsZero()} {
		if given {
			of++
		}
	}
	switch {
	case of == 0 || len(c.Sessions) > 0 && c.Identity != "":
		return q, fmt.Errorf("%w: name --sessions, or --identity, or --since", config.ErrUsage)
	case c.MaxMessages == 1:
		return q, fmt.Errorf("%w: --max-messages must be at least 2, a question and its answer", config.ErrUsage)
	case (c.Format == "") != (c.Output == ""):
		return q, fmt.Errorf("%w: --format parquet and -o FILE go together", config.ErrUsage)
	case c.JSON && c.Format != "":
		return q, fmt.Errorf("%w: choose --json or --format", config.ErrUsage)
	}
	q = client.WhatIfQuery{
		Sessions: c.Sessions, IdentityID: string(c.Identity), Since: time.Time(c.Since), MaxTokens: int(c.MaxTokens),
		MaxMessages: int(c.MaxMessages), Summary: c.Summary, Memory: c.Memory,
	}
	if c.System != "" {
		text, err := os.ReadFile(c.System)
		if err != nil {
			return q, fmt.Errorf("%w: --system: %w", config.ErrUsage, err)
		}
		if q.System = strings.TrimSpace(string(text)); q.System == "" {
			return q, fmt.Errorf("%w: --system: %s is empty", config.ErrUsage, c.System)
		}
	}
	return q, nil
}

// whatIfRows takes rows as they come.
type whatIfRows struct {
	add   func(row client.WhatIf, line []byte) error
	close func(whole bool) error
}

func (c *whatifCmd) rows(e *Env) (whatIfRows, error) {
	switch {
	case c.Format != "":
		f, err := export.OpenWhatIf(c.Output)
		if err != nil {
			return whatIfRows{}, err
		}
		return whatIfRows{func(row client.WhatIf, _ []byte) error {
			return f.Write(export.WhatIfRow(row))
		}, f.Close}, nil
	case c.JSON:
		out := bufio.NewWriter(e.Out)
		return whatIfRows{func(_ client.WhatIf, line []byte) error {
			_, err := fmt.Fprintf(out, "%s\n", line)
			return err
		}, func(bool) error { return out.Flush() }}, nil
	}
	var all []client.WhatIf
	return whatIfRows{func(r client.WhatIf, _ []byte) error {
		all = append(all, r)
		return nil
	}, func(whole bool) error {
		if whole && len(all) > 0 {
			table(e, client.WhatIfHeading, all, client.WhatIf.Cells)
		}
		return nil
	}}, nil
}

// whatIfTotal says what rows sum up to.
func whatIfTotal(t client.WhatIfTotal) []string {
	change := ""
	if t.TokensTold > 0 && t.TokensIf != t.TokensTold {
		change = fmt.Sprintf(" (%+.1f %%)", 100*float64(t.TokensIf-t.TokensTold)/float64(t.TokensTold))
	}
	return []string{
		fmt.Sprintf("%s: %d told the same, %d assumed, %d known in part", Counted(t.Turns, "answered turn"), t.Same,
			t.Assumed, t.Part),
		fmt.Sprintf("turns in prompts: %d told, %d if (%d left out, %d brought in)", t.TurnsTold, t.TurnsIf, t.LeftOut,
			t.BroughtIn),
		fmt.Sprintf("tokens of prompts: %d told, %d if%s", t.TokensTold, t.TokensIf, change),
	}
}
