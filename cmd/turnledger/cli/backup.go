package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/client"
)

// place is where a backup is kept.
type place struct {
	Place    string `arg:"" help:"A folder, or s3://bucket/prefix (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION as usual)."`
	Endpoint string `help:"URL of a store that speaks S3." default:"https://s3.amazonaws.com" env:"AWS_ENDPOINT_URL_S3,AWS_ENDPOINT_URL"`
	Spool    string `help:"Folder with room for the copy of the largest partition, for S3; that of the system by default." type:"path"`
}

func (p place) store() (backup.Store, error) {
	at := backup.Place{Name: p.Place, Endpoint: p.Endpoint, Region: os.Getenv("AWS_REGION"), Spool: p.Spool}
	store, err := at.Open()
	if errors.Is(err, backup.ErrPlace) {
		err = fmt.Errorf("%w: %w", config.ErrUsage, err)
	}
	return store, err
}

type backupCmd struct {
	place
	remote
}

// Run copies the log of a running server.
func (c *backupCmd) Run(e *Env) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	return c.dial(firstTries, func(s *client.Client) error {
		bars := &bars{e: e}
		defer bars.done()
		began := time.Now()
		m, err := backup.Take(e.Ctx, source{s, c.remote, e}, store, e.Version, began, bars.at)
		switch {
		case errors.Is(err, backup.ErrExists):
			return fmt.Errorf("%s: %w", c.Place, err)
		case err != nil:
			return fmt.Errorf("%w (nothing at %s is a backup before its manifest.json is there; "+
				"the same again begins anew)", err, c.Place)
		}
		bars.done()
		if c.JSON {
			shown := *m
			shown.ItemKey = "" // stands in the backup alone
			return json.NewEncoder(e.Out).Encode(shown)
		}
		e.print("%s holds %s of %s, %d bytes, after %s", c.Place, Counted(m.Events(), "event"),
			Counted(m.Partitions, "partition"), m.Bytes(), time.Since(began).Round(time.Millisecond))
		return nil
	})
}

// source is a server from which a backup is taken. It explains the server's errors itself, since other errors are about
// the place of the backup.
type source struct {
	*client.Client
	at remote
	e  *Env
}

// Partitions implements backup.Source.
func (c source) Partitions(ctx context.Context) (int, error) {
	n, err := c.Client.Partitions(ctx)
	return n, c.at.explain(ctx, err)
}

// Snapshot implements backup.Source.
func (c source) Snapshot(ctx context.Context, partition int) (backup.Copy, error) {
	m, body, err := c.Client.Snapshot(ctx, partition)
	f := backup.File{First: m.First, Last: m.Last, Events: m.Events,
		RawBytes: int64(m.Bytes)} //nolint:gosec // below 2^63
	return backup.Copy{File: f, ItemKey: m.ItemKey, Body: body}, c.at.explain(ctx, err)
}

// DeadLetters implements backup.Source. If a view's store does not answer, or the key may not read dead letters, the
// backup is taken without them: the log matters most.
func (c source) DeadLetters(ctx context.Context) (out []projections.DeadLetter, _ error) {
	all, err := c.Client.DeadLetters(ctx, "")
	if err != nil && ctx.Err() == nil {
		c.e.printErr("the dead letters are not in the backup: %v", c.at.explain(ctx, err))
		return nil, nil
	}
	for _, l := range all {
		at, err := events.ParsePosition(l.Position)
		if err != nil {
			return nil, err
		}
		dead := projections.DeadLetter{
			Projection: l.Projection, Position: at, EventID: l.EventID, Type: l.Type, SessionID: l.SessionID,
			Reason: l.Reason, Attempts: l.Attempts, ParkedAt: l.ParkedAt,
		}
		if !l.DroppedAt.IsZero() {
			dead.Dropped = &projections.Drop{Reason: l.DropReason, By: l.DroppedBy, At: l.DroppedAt}
		}
		out = append(out, dead)
	}
	return out, err
}

// bars shows how far each file is, one after the other.
type bars struct {
	e    *Env
	name string
	bar  *progress
}

func (b *bars) at(name string, done, of int64) {
	if name != b.name {
		b.done()
		b.name, b.bar = name, newProgress(b.e.Err, name, "bytes", of)
	}
	b.bar.Reach(uint64(done), uint64(max(of, done))) //nolint:gosec // sizes
}

func (b *bars) done() {
	if b.bar != nil {
		b.bar.Done()
	}
	b.bar = nil
}

type restoreCmd struct {
	place
	Erasures []string `help:"Files of events, as turnledger replay prints them: what they redact or erase is erased in what is restored, before anybody reads it." type:"existingfile"`
	remote
}

// Run checks a whole backup, and makes it the log of a running server whose log is empty.
func (c *restoreCmd) Run(e *Env) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	erasures, err := c.erasures()
	if err != nil {
		return err
	}
	bars := &bars{e: e}
	defer bars.done()
	whole, err := backup.Check(e.Ctx, store, func(name string, done, of int64) { bars.at("check "+name, done, of) })
	if err != nil {
		return err
	}
	defer whole.Close()
	bars.done()
	var got client.Restored
	err = c.dial(1, func(s *client.Client) error {
		if n, err := (source{s, c.remote, e}).Partitions(e.Ctx); err != nil {
			return err
		} else if n != whole.Partitions {
			return fmt.Errorf("the backup has %s, and the server's log %d: "+
				"start a server with TURNLEDGER_PARTITIONS=%d on an empty data directory",
				Counted(whole.Partitions, "partition"), n, whole.Partitions)
		}
		report := func(n int64) { bars.at("restore", n, max(n, whole.Size())) }
		return whole.Send(erasures, report, func(packed io.Reader) (err error) {
			got, err = s.Restore(e.Ctx, packed)
			return c.explain(e.Ctx, err)
		})
	})
	if err != nil {
		return err
	}
	bars.done()
	if c.JSON {
		return json.NewEncoder(e.Out).Encode(got)
	}
	e.print("restored: %s of %s, as they were at %s", Counted(whole.Events(), "event"),
		Counted(whole.Partitions, "partition"), whole.TakenAt.Format(time.RFC3339))
	if len(c.Erasures) > 0 {
		e.print("erased since: %d said again, %d concern what the backup does not hold",
			got.Erasures.Applied, got.Erasures.Unknown)
	} else {
		e.print("what was redacted or erased after that moment is there again: " +
			"say it again with turnledger redact and turnledger erase, or restore with --erasures FILE")
	}
	e.printErr("restart other processes of this deployment; then look: turnledger projections list. " +
		"A view that says failed followed the former log: turnledger projections rebuild NAME")
	return nil
}

func (c *restoreCmd) erasures() (out []backup.Erasure, err error) {
	for _, name := range c.Erasures {
		f, err := os.Open(name) //nolint:gosec // a file that the operator named
		if err != nil {
			return nil, err
		}
		some, err := backup.ReadErasures(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%w: --erasures %s: %w", config.ErrUsage, name, err)
		}
		out = append(out, some...)
	}
	return out, nil
}
