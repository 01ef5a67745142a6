package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export"
)

type replayCmd struct {
	Session  *string  `help:"Events of one session."`
	Identity *string  `help:"All events of the sessions that are linked to an identity."`
	Type     []string `help:"Event types, with commas between; several times, too."`
	From     string   `help:"Go on after these positions (0:42, or 0:42,1:17), which an earlier replay printed."`
	To       string   `help:"Up to these positions, inclusive."`
	Since    string   `help:"Recorded at or after a time (RFC 3339), or so long ago (36h)."`
	Until    string   `help:"Recorded before a time, or so long ago."`
	Follow   bool     `help:"Go on with what comes." short:"f"`
	Format   string   `help:"jsonl, csv or parquet." default:"jsonl" enum:"jsonl,csv,parquet"`
	Output   string   `help:"Write to a file instead of standard output." short:"o"`
	Turns    bool     `help:"A row for each folded turn instead of each event."`
	remote
}

// Run prints the log as the server reads it, and the position where a later replay goes
// on.
func (c *replayCmd) Run(e *env) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	out, err := c.sink(e)
	if err != nil {
		return err
	}
	// A stream has no deadline, and reconnects for as long as a server takes to restart.
	s, err := c.dial(firstTries, nil)
	if err != nil {
		return errors.Join(err, out.abandon())
	}
	defer s.Close()
	reading := s.Events(q)
	err = c.print(e, reading, out)
	return c.finish(e, reading, out, err)
}

// query holds what was asked against what can be done.
func (c *replayCmd) query(now time.Time) (q client.EventQuery, err error) {
	switch {
	case c.Turns && (c.Follow || len(c.Type) > 0):
		return q, fmt.Errorf("%w: --turns folds whole sessions to the log's end: leave out --follow and --type", errUsage)
	case c.Follow && c.Format == string(export.Parquet):
		return q, fmt.Errorf("%w: a Parquet file can be read only when it is complete: follow with --format jsonl or csv", errUsage)
	}
	q = client.EventQuery{Types: c.Type, From: c.From, To: c.To, Follow: c.Follow}
	if q.SessionID, err = idOf("--session", c.Session); err != nil {
		return q, err
	}
	if q.IdentityID, err = idOf("--identity", c.Identity); err != nil {
		return q, err
	}
	if q.Since, err = moment("--since", c.Since, now); err != nil {
		return q, err
	}
	q.Until, err = moment("--until", c.Until, now)
	return q, err
}

// idOf reads an id, nil where none was given. An empty one, of a variable that was not set, would mean the whole log.
func idOf(flag string, id *string) (string, error) {
	if id == nil {
		return "", nil
	}
	if *id == "" {
		return "", fmt.Errorf("%w: %s is empty: leave it out for all", errUsage, flag)
	}
	return *id, nil
}

// moment reads a time, or how long ago one was.
func moment(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return at, fmt.Errorf("%w: %s: want a time such as 2026-11-21T08:00:00Z, or how long ago, such as 36h", errUsage, flag)
	}
	return at, nil
}

// print hands every event on. While it follows, an event is on its way at once.
func (c *replayCmd) print(e *env, reading *client.Events, out *replayFile) error {
	// A follower has no end to be near, and a terminal shows the events themselves.
	var bar *progress
	if !c.Follow && (c.Output != "" || !isTerminal(e.out)) {
		bar = newProgress(e.err, "replaying", unitEvents, -1)
		defer bar.done()
	}
	var shown uint64
	every := 0
	for ev, err := range reading.All(e.ctx) {
		if err != nil {
			return err
		}
		if err := out.add(ev.JSON); err != nil {
			return &unwritten{err}
		}
		if every++; bar != nil && every%progressEvery == 0 {
			passed, total := reading.Progress()
			bar.reach(passed, total, &shown)
		}
		if c.Follow {
			if err := out.flush(); err != nil {
				return &unwritten{err}
			}
		}
	}
	return nil
}

// progressEvery is after how many events the progress is told.
const progressEvery = 1000

// unwritten: an event could not be put where the replay goes. Which of those before it
// are there is not known: they were kept together.
type unwritten struct{ error }

func (u *unwritten) Unwrap() error { return u.error }

// finish completes the file, or leaves what there is of it, and says where to go on.
func (c *replayCmd) finish(e *env, reading *client.Events, out *replayFile, err error) error {
	stopped := e.ctx.Err() != nil && errors.Is(err, context.Canceled)
	at := reading.Position()
	out.rules.MetadataKeys = reading.MetadataKeys()
	var left error
	if err == nil || stopped && c.Follow {
		left = out.complete()
	} else {
		left = out.abandon()
	}
	var lost *unwritten
	if errors.As(err, &lost) {
		left = lost.error
	}
	switch {
	case left == nil:
	case c.Output == "" || c.Turns:
		return left
	case c.Follow:
		return fmt.Errorf("%w: the end of %s may be cut off: go on with --from the position of its last whole event", left, out.name())
	default:
		return fmt.Errorf("%w: %s is not whole: run the same again", left, out.name())
	}
	if err != nil && !stopped {
		err = c.explain(e.ctx, err)
	}
	if at != "" {
		_, _ = fmt.Fprintf(e.err, "position %s\n", at)
	}
	if err == nil || stopped && c.Follow {
		return nil
	}
	if c.Output != "" && !c.Turns && at != "" {
		_, _ = fmt.Fprintf(e.err, "what was written is in %s; for the rest, the same with --from %s and another file\n", out.name(), at)
	}
	return err
}
