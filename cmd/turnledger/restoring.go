package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/cmd/turnledger/cli"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
)

// backups copies the log of an app out and in.
type backups struct{ *app }

// Snapshot implements v1.Backups.
func (b backups) Snapshot(ctx context.Context, partition int, begin func(operate.Moment) (io.Writer, error)) error {
	return operate.On(b.store.log).Snapshot(ctx, partition, begin)
}

// Restore implements v1.Backups: the log becomes what the backup holds, what was
// erased since is erased in it before anybody reads it, and the app is opened again.
func (b backups) Restore(ctx context.Context, from io.Reader) (out v1.Restored, err error) {
	defer func() {
		if errors.Is(err, backup.ErrDamaged) && !errors.Is(err, v1.ErrBackup) {
			err = fmt.Errorf("%w: %w", v1.ErrBackup, err)
		}
	}()
	if b.store.server == nil && b.store.nc.ConnectedServerName() == embedded.Name {
		return out, fmt.Errorf("%w: the log is on the NATS of another Turnledger, which follows it and can't hold still for "+
			"this process: restore through that one", jetlog.ErrRefused)
	}
	if err := operate.On(b.store.log).Vacant(ctx); err != nil {
		return out, err
	}
	packed, err := backup.Unpack(from)
	if err != nil {
		return out, fmt.Errorf("%w: %w", v1.ErrBackup, err)
	}
	if have := b.store.log.Partitions(); have != packed.Partitions {
		return out, fmt.Errorf("%w that this log can take in: it has %s, and the log was opened with %d: start the server with TURNLEDGER_PARTITIONS=%d on an empty data directory",
			v1.ErrBackup, cli.Counted(packed.Partitions, "partition"), have, packed.Partitions)
	}
	b.logger.Info("a backup is being restored", "taken_at", packed.TakenAt, "events", packed.Events())
	// Whatever comes of it, what is open here does not fit the log any more.
	defer b.pause.end()
	if err := b.stop(ctx); err != nil {
		return out, err
	}
	if b.store.server != nil {
		defer b.store.server.Hold()()
	}
	if err := b.replace(ctx, packed); err != nil {
		return out, err
	}
	out.Partitions = packed.Partitions
	out.Erasures.Applied, out.Erasures.Unknown, err = b.settle(ctx, packed)
	if err != nil {
		return out, fmt.Errorf("the log is in place, but what was erased since the backup is not erased in it, so that "+
			"nobody may open it: empty the data directory and restore again: %w", err)
	}
	b.logger.Info("a backup was restored", "erasures", out.Erasures.Applied)
	return out, nil
}

// stop refuses all other requests and ends what follows the log, so that nothing reads from a log that is being
// replaced, or writes to it.
func (b backups) stop(ctx context.Context) error {
	b.pause.hush()
	drain, cancel := context.WithTimeout(ctx, stopDeadline)
	defer cancel()
	if err := b.front.shut(drain, 1); err != nil { // this request is the one that stays
		return fmt.Errorf("%w: nothing was changed: %w", jetlog.ErrUnavailable, err)
	}
	b.logger.Debug("no other request is under way")
	b.pause.still()
	b.logger.Debug("nothing follows the log any more")
	return nil
}

// replace takes the streams of the empty log away and those of the backup in.
func (b backups) replace(ctx context.Context, packed *backup.Packed) error {
	if err := operate.On(b.store.log).Vacate(ctx); err != nil {
		return err
	}
	b.logger.Debug("the empty log is gone")
	err := operate.On(b.store.log).Restore(ctx, func(k int) (io.Reader, error) {
		b.logger.Debug("a partition is taken in", "partition", k)
		return packed.Next(k)
	}, func(ctx context.Context) error { return complete(ctx, b.store.log, packed) })
	b.logger.Debug("the backup's streams are in place", "err", err)
	return err
}

// settle brings the restored log to disk, and says in it what was erased since it was
// copied.
func (b backups) settle(ctx context.Context, packed *backup.Packed) (said, unknown int, err error) {
	cfg := b.store.logConfig(b.cfg)
	cfg.Restoring = true
	log, err := jetlog.Open(ctx, b.store.nc, cfg)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	for k := range log.Partitions() {
		if err := overwrite.On(log).Settle(ctx, k); err != nil {
			return 0, 0, err
		}
	}
	if err := desk.Of(log).Restore(ctx, log, packed.DeadLetters); err != nil {
		return 0, 0, err
	}
	s := history.New(history.On(log), history.Config{Rules: b.cfg.Rules(), Policy: b.cfg.Policy(), Logger: b.logger})
	life, end := context.WithCancel(ctx)
	defer end()
	var g errgroup.Group
	g.Go(func() error { return s.Run(life) })
	for _, e := range packed.Erasures {
		known, err := erased(ctx, s, e)
		if err != nil {
			return said, unknown, err
		}
		if known {
			said++
		} else {
			unknown++
		}
	}
	end()
	if err := g.Wait(); err != nil {
		return said, unknown, err
	}
	return said, unknown, operate.On(log).Restored(ctx)
}

// complete holds what the server took in against what the backup says that it holds.
func complete(ctx context.Context, log *jetlog.Log, packed *backup.Packed) error {
	streams, err := operate.On(log).Plan(ctx, operate.Want{})
	if err != nil {
		return err
	}
	for k, f := range packed.Files {
		if s := streams[k]; s.Events != f.Events || s.Last != f.Last {
			return fmt.Errorf("%w: %s holds %d events up to %d, and the backup has %d up to %d: empty the data directory and restore again",
				jetlog.ErrStream, s.Name, s.Events, s.Last, f.Events, f.Last)
		}
	}
	return nil
}

// erased says an erasure, and tells whether the log knows what it is of.
func erased(ctx context.Context, s *history.Service, e backup.Erasure) (known bool, err error) {
	d := &e.Data
	switch events.WithdrawalOf(e.Type) {
	case events.WithdrawsSession:
		_, err = s.EraseSession(ctx, d.SessionID, services.Erasure{Reason: d.Reason, By: d.ErasedBy})
	case events.WithdrawsIdentity:
		_, err = s.EraseIdentity(ctx, d.IdentityID, services.Erasure{Reason: d.Reason, By: d.ErasedBy})
	case events.WithdrawsTurn:
		for _, turn := range d.Turns() {
			_, err = s.RedactTurn(ctx, d.SessionID, conversation.Redact{TurnID: turn, Reason: d.Reason, RedactedBy: d.RedactedBy})
			if !errors.Is(err, conversation.ErrTurnNotFound) {
				break
			}
		}
	case events.WithdrawsNothing, events.WithdrawsVersion: // ReadErasures leaves these out
	}
	switch {
	case err == nil, errors.Is(err, conversation.ErrSessionErased):
		return true, nil
	case errors.Is(err, conversation.ErrSessionNotFound), errors.Is(err, conversation.ErrTurnNotFound):
		return false, nil
	default:
		return false, err
	}
}
