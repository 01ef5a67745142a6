package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export"
)

type replayCmd struct {
	Session  only     `help:"Events of one session."`
	Identity only     `help:"All events of the sessions that are linked to an identity."`
	Type     []string `help:"Event types, with commas between; several times, too."`
	From     string   `help:"Go on after these positions (0:42, or 0:42,1:17), which an earlier replay printed."`
	To       string   `help:"Up to these positions, inclusive."`
	Since    moment   `help:"Recorded at or after a date, a time, or so long ago (36h)."`
	Until    moment   `help:"Recorded before a date, a time, or so long ago."`
	Follow   bool     `help:"Go on with what comes." short:"f"`
	Format   string   `help:"jsonl, csv or parquet." default:"jsonl" enum:"jsonl,csv,parquet"`
	Output   string   `help:"Write to a file instead of standard output." short:"o"`
	Turns    bool     `help:"A row for each folded turn instead of each event."`
	remote
}

// Run prints the log as the server reads it, and the position from which a later replay can continue.
func (c *replayCmd) Run(e *Env) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	out, err := c.file(e)
	if err != nil {
		return err
	}
	// A stream has no deadline, and reconnects for as long as a server takes to restart.
	done := false
	err = c.dial(firstTries, func(s *client.Client) error {
		done = true
		reading := s.Events(q)
		err := c.print(e, reading, out)
		if err == nil {
			err = c.printShared(e, s, out)
		}
		return c.finish(e, reading, out, err)
	})
	if !done {
		err = errors.Join(err, out.Abandon())
	}
	return err
}

// file opens the output of the replay.
func (c *replayCmd) file(e *Env) (*export.File, error) {
	f := export.FileConfig{Path: c.Output, To: e.Out, Format: export.Format(c.Format), Turns: c.Turns, Grows: c.Follow,
		Session: string(c.Session)}
	if info, err := os.Stat(c.Output); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%w: -o %s is a folder: name a file in it", config.ErrUsage, c.Output)
	}
	if c.Output == "" && f.Format == export.Parquet && isTerminal(e.Out) {
		return nil, fmt.Errorf("%w: a Parquet file is not for a terminal: name a file with -o", config.ErrUsage)
	}
	return export.OpenFile(f)
}

// query returns the query of the flags, and fails if the flags contradict each other.
func (c *replayCmd) query() (q client.EventQuery, err error) {
	switch {
	case c.Turns && (c.Follow || len(c.Type) > 0):
		return q, fmt.Errorf("%w: --turns folds whole sessions to the log's end: leave out --follow and --type",
			config.ErrUsage)
	case c.Follow && c.Format == string(export.Parquet):
		return q, fmt.Errorf("%w: a Parquet file can be read only when it is complete: "+
			"follow with --format jsonl or csv", config.ErrUsage)
	}
	q = client.EventQuery{SessionID: string(c.Session), IdentityID: string(c.Identity),
		Types: c.Type, From: c.From, To: c.To, Follow: c.Follow, Since: time.Time(c.Since), Until: time.Time(c.Until)}
	return q, nil
}

// progressEvery is the number of events between two reports of progress.
const progressEvery = 1000

// print writes every event. While it follows the log, it writes each event at once.
func (c *replayCmd) print(e *Env, reading *client.Events, out *export.File) error {
	// There is no bar for a follower, which has no end, nor on a terminal that shows the events themselves.
	var bar *progress
	if !c.Follow && (c.Output != "" || !isTerminal(e.Out)) {
		bar = newProgress(e.Err, "replaying", "events", totalUnknown)
		defer bar.Done()
	}
	n := 0
	for ev, err := range reading.All(e.Ctx) {
		if err != nil {
			return err
		}
		err = out.Add(ev.JSON)
		if err == nil && c.Follow {
			err = out.Flush()
		}
		if err != nil {
			return &unwritten{err}
		}
		if n++; bar != nil && n%progressEvery == 0 {
			bar.Reach(reading.Progress())
		}
	}
	return nil
}

// printShared adds the turns that a session shares as a branch, as they are at the end of the log.
func (c *replayCmd) printShared(e *Env, s *client.Client, out *export.File) error {
	for _, session := range out.Origins() {
		for ev, err := range s.Events(client.EventQuery{SessionID: session}).All(e.Ctx) {
			if err != nil {
				return err
			}
			if err := out.Add(ev.JSON); err != nil {
				return &unwritten{err}
			}
		}
	}
	return nil
}

// unwritten: an event could not be written to the output. It is not known which earlier events are there, since they
// were buffered together.
type unwritten struct{ error }

func (u *unwritten) Unwrap() error { return u.error }

// finish completes the file, or leaves its incomplete part, and prints where to continue.
func (c *replayCmd) finish(e *Env, reading *client.Events, out *export.File, err error) error {
	stopped := e.Ctx.Err() != nil && errors.Is(err, context.Canceled)
	whole := err == nil || stopped && c.Follow
	var left error
	if whole {
		left = out.Complete(session.Rules{MetadataKeys: reading.MetadataKeys()})
	} else {
		left = out.Abandon()
	}
	if lost, ok := errors.AsType[*unwritten](err); ok {
		left = lost.error
	}
	switch {
	case left == nil:
	case c.Output == "" || c.Turns:
		return left
	case c.Follow:
		return fmt.Errorf("%w: the end of %s may be cut off: go on with --from the position of its last whole event",
			left, out.Name())
	default:
		return fmt.Errorf("%w: %s is not whole: run the same again", left, out.Name())
	}
	at := reading.Position()
	if at != "" {
		e.printErr("position %s", at)
	}
	if whole {
		return nil
	}
	if c.Output != "" && !c.Turns && at != "" {
		e.printErr("what was written is in %s; for the rest, the same with --from %s and another file", out.Name(), at)
	}
	if stopped {
		return err
	}
	return c.explain(e.Ctx, err)
}
