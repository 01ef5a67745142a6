package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

type contextCmd struct {
	Session      string `arg:"" help:"The session."`
	Message      string `arg:"" help:"The user's current message."`
	SystemPrompt string `help:"System prompt."`
	MaxMessages  int    `help:"Messages of history; 20 by default."`
	Language     string `help:"neutral or translated."`
	Format       string `help:"openai or anthropic."`
	Pending      bool   `help:"With the questions that have no answer yet."`
	AsOf         string `name:"as-of" help:"A position (0:42) or a time (RFC 3339): what would have been sent then."`
	JSON         bool   `help:"Machine output."`
	remote
}

func (c *contextCmd) Run(e *env) error {
	body := map[string]any{"message": c.Message, "include_pending": c.Pending}
	for name, value := range map[string]string{"system_prompt": c.SystemPrompt, "language": c.Language, "format": c.Format} {
		if value != "" {
			body[name] = value
		}
	}
	if c.MaxMessages != 0 {
		body["max_messages"] = c.MaxMessages
	}
	if c.AsOf != "" {
		key := "position"
		if strings.Contains(c.AsOf, "-") {
			key = "time"
		}
		body["as_of"] = map[string]string{key: c.AsOf}
	}
	var out struct {
		System       string            `json:"system"`
		Messages     []json.RawMessage `json:"messages"`
		Found        bool              `json:"session_found"`
		HistoryTurns int               `json:"history_turns"`
		Dropped      int               `json:"dropped_turns"`
		Source       string            `json:"source"`
		Position     string            `json:"position"`
		Warnings     []string          `json:"warnings"`
	}
	raw, err := c.call(e.ctx, http.MethodPost, sessionPath(c.Session)+"/context", body, &out)
	if err != nil || c.JSON {
		return errors.Join(err, printRaw(e, c.JSON, raw))
	}
	if out.System != "" {
		_, _ = fmt.Fprintf(e.out, "system: %s\n", out.System)
	}
	for _, m := range out.Messages {
		printMessage(e, m)
	}
	_, err = fmt.Fprintf(e.err, "(%d turns of history, %d left out, from the %s at %s)\n", out.HistoryTurns, out.Dropped, out.Source, out.Position)
	return err
}

// printMessage prints a message on a line: its text, or its JSON where it is more
// than a text.
func printMessage(e *env, raw json.RawMessage) {
	var m struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil && len(members) == 2 && json.Unmarshal(raw, &m) == nil {
		_, _ = fmt.Fprintf(e.out, "%s: %s\n", m.Role, m.Content)
		return
	}
	_, _ = fmt.Fprintf(e.out, "%s\n", raw)
}

type historyCmd struct {
	Session string `arg:"" help:"The session."`
	Limit   int    `help:"Turns, the newest." default:"20"`
	JSON    bool   `help:"Machine output."`
	remote
}

func (c *historyCmd) Run(e *env) error {
	var out struct {
		History []struct {
			Question string `json:"question_neutral"`
			Answer   string `json:"answer_neutral"`
		} `json:"history"`
	}
	raw, err := c.call(e.ctx, http.MethodGet, fmt.Sprintf("%s/history?limit=%d", sessionPath(c.Session), c.Limit), nil, &out)
	if err != nil || c.JSON {
		return errors.Join(err, printRaw(e, c.JSON, raw))
	}
	for _, h := range out.History {
		_, _ = fmt.Fprintf(e.out, "Q: %s\nA: %s\n", h.Question, h.Answer)
	}
	if len(out.History) == 0 {
		_, _ = fmt.Fprintln(e.err, "(no finalized turns)")
	}
	return nil
}

type linkCmd struct {
	Session  string `arg:"" help:"The session."`
	Identity string `arg:"" help:"The identity that it belongs to."`
	JSON     bool   `help:"Machine output."`
	remote
}

func (c *linkCmd) Run(e *env) error {
	var out struct {
		Identity string `json:"identity_id"`
		Position string `json:"position"`
	}
	raw, err := c.call(e.ctx, http.MethodPut, sessionPath(c.Session)+"/identity", map[string]string{"identity_id": c.Identity}, &out)
	if err != nil || c.JSON {
		return errors.Join(err, printRaw(e, c.JSON, raw))
	}
	_, err = fmt.Fprintf(e.out, "session %s belongs to %s (position %s)\n", c.Session, out.Identity, out.Position)
	return err
}

type redactCmd struct {
	Session string `arg:"" help:"The session."`
	Turn    string `arg:"" help:"The turn; any version of a corrected turn redacts all."`
	Reason  string `help:"Why."`
	By      string `help:"Who."`
	Yes     bool   `help:"Don't ask." short:"y"`
	JSON    bool   `help:"Machine output."`
	remote
}

func (c *redactCmd) Run(e *env) error {
	if !c.Yes && term.IsTerminal(int(os.Stdin.Fd())) {
		_, _ = fmt.Fprintf(e.err, "Redact turn %s of session %s for ever? [y/N] ", c.Turn, c.Session)
		var answer string
		_, _ = fmt.Fscanln(os.Stdin, &answer) // nothing is a no
		if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
			return errors.New("not redacted")
		}
	}
	var out struct {
		Position  string `json:"position"`
		Duplicate bool   `json:"duplicate"`
	}
	raw, err := c.call(e.ctx, http.MethodPost, sessionPath(c.Session)+"/turns/"+url.PathEscape(c.Turn)+"/redact",
		map[string]string{"reason": c.Reason, "redacted_by": c.By}, &out)
	if err != nil || c.JSON {
		return errors.Join(err, printRaw(e, c.JSON, raw))
	}
	said := "redacted"
	if out.Duplicate {
		said = "was redacted before"
	}
	_, err = fmt.Fprintf(e.out, "turn %s %s (position %s)\n", c.Turn, said, out.Position)
	return err
}

type projectionsCmd struct {
	List projectionsListCmd `cmd:"" help:"Show how far each view is."`
}

type projectionsListCmd struct {
	JSON bool `help:"Machine output."`
	remote
}

func (c *projectionsListCmd) Run(e *env) error {
	var out struct {
		Projections []struct {
			Name       string  `json:"name"`
			Partition  int     `json:"partition"`
			Position   string  `json:"position"`
			Head       string  `json:"head"`
			LagEvents  int64   `json:"lag_events"`
			LagSeconds float64 `json:"lag_seconds"`
			State      string  `json:"state"`
			LastError  string  `json:"last_error"`
		} `json:"projections"`
	}
	raw, err := c.call(e.ctx, http.MethodGet, "/v1/projections", nil, &out)
	if err != nil || c.JSON {
		return errors.Join(err, printRaw(e, c.JSON, raw))
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tPARTITION\tPOSITION\tHEAD\tLAG\tSTATE\tLAST ERROR")
	for _, p := range out.Projections {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d (%.1fs)\t%s\t%s\n", p.Name, p.Partition, p.Position, p.Head, p.LagEvents, p.LagSeconds, p.State, p.LastError)
	}
	return w.Flush()
}

func sessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

// printRaw prints the server's answer as it came.
func printRaw(e *env, asked bool, raw json.RawMessage) error {
	if !asked || raw == nil {
		return nil
	}
	_, err := fmt.Fprintf(e.out, "%s\n", strings.TrimSpace(string(raw)))
	return err
}
