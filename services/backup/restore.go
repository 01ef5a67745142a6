package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/jetlog/store"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/services"
)

// Host is the process whose log is replaced.
type Host interface {
	// EndAnswers ends the running answers of models.
	EndAnswers()
	// Still stops everything that follows the log, and waits until it has stopped.
	Still()
	// Reopen makes the process open its log again, once the last running request has ended.
	Reopen()
	// Eraser returns an Eraser that writes to a log.
	Eraser(log *jetlog.Log) Eraser
	// KeepItemKey keeps a key of the ids of items beside a log, in the place of another.
	KeepItemKey(ctx context.Context, log *jetlog.Log, key string) error
}

// Eraser records erasures in the log. It works while Run follows the log.
type Eraser interface {
	Run(ctx context.Context) error
	EraseSession(ctx context.Context, sessionID string, c services.Erasure) (receipt string, err error)
	EraseIdentity(ctx context.Context, identityID string, c services.Erasure) (receipt string, err error)
	RedactTurn(ctx context.Context, sessionID string, c decide.Redact) (services.Turn, error)
	PruneTurn(ctx context.Context, c decide.Prune) (services.Turn, error)
}

// Log copies the log of a running process, and replaces an empty log by a backup.
type Log struct {
	*store.Store
	Door   *Door
	Host   Host
	Logger *slog.Logger
}

// Snapshot writes a copy of a partition, as operate.Log does.
func (l *Log) Snapshot(ctx context.Context, partition int, begin func(operate.Moment) (io.Writer, error)) error {
	return operate.On(l.Log).Snapshot(ctx, partition, begin)
}

// Restore replaces the log by a backup. It shuts the door, stops what follows the log, and records in the restored log
// what was erased since the backup was taken. Then the host opens its log again, and the door. A failure before any
// change opens the door again. After any later failure the host gets whatever is there: the empty log, or a log that it
// refuses to open.
func (l *Log) Restore(ctx context.Context, from io.Reader) (out services.Restored, err error) {
	defer func() {
		if errors.Is(err, ErrDamaged) {
			err = fmt.Errorf("%w: %w", services.ErrBackup, err)
		}
	}()
	if l.Server == nil && l.NC.ConnectedServerName() == embedded.Name {
		return out, fmt.Errorf("%w: the log is on the NATS of another Turnledger, "+
			"which follows it and can't hold still for this process: restore through that one", jetlog.ErrRefused)
	}
	if err := operate.On(l.Log).Vacant(ctx); err != nil {
		return out, err
	}
	packed, err := Unpack(from)
	if err != nil {
		return out, err
	}
	if have := l.Log.Partitions(); have != packed.Partitions {
		return out, fmt.Errorf("%w that this log can take in: "+
			"its log had TURNLEDGER_PARTITIONS=%d, and this one has %d: "+
			"start the server with that setting on an empty data directory",
			services.ErrBackup, packed.Partitions, have)
	}
	l.Logger.Info("a backup is being restored", "taken_at", packed.TakenAt, "events", packed.Events())
	if err := l.Door.shut(ctx, l.Host.EndAnswers); err != nil {
		return out, fmt.Errorf("%w: nothing was changed: %w", jetlog.ErrUnavailable, err)
	}
	l.Logger.Debug("no other request is under way")
	// From here on, success or not, the services that are open do not fit the log any more.
	defer l.Host.Reopen()
	l.Host.Still()
	l.Logger.Debug("nothing follows the log any more")
	if l.Server != nil {
		defer l.Server.Hold()()
	}
	if err := l.replace(ctx, packed); err != nil {
		return out, err
	}
	out, err = l.settle(ctx, packed)
	if err != nil {
		return out,
			fmt.Errorf("the log is in place, but what was erased since the backup is not erased in it, so that "+
				"nobody may open it: empty the data directory and restore again: %w", err)
	}
	l.Logger.Info("a backup was restored", "erasures", out.Erasures.Applied)
	return out, nil
}

// replace deletes the streams of the empty log and restores those of the backup.
func (l *Log) replace(ctx context.Context, packed *Packed) error {
	log := operate.On(l.Log)
	if err := log.Vacate(ctx); err != nil {
		return err
	}
	l.Logger.Debug("the empty log is gone")
	err := log.Restore(ctx, func(k int) (io.Reader, error) {
		l.Logger.Debug("a partition is taken in", "partition", k)
		return packed.Next(k)
	}, func(ctx context.Context) error { return complete(ctx, log, packed) })
	l.Logger.Debug("the backup's streams are in place", "err", err)
	return err
}

// complete compares the events that the server has received with the backup's manifest.
func complete(ctx context.Context, log *operate.Log, packed *Packed) error {
	streams, err := log.Plan(ctx, operate.Want{})
	if err != nil {
		return err
	}
	for k, f := range packed.Files {
		if s := streams[k]; s.Events != f.Events || s.Last != f.Last {
			return fmt.Errorf("%w: %s holds %d events up to %d, and the backup has %d up to %d: "+
				"empty the data directory and restore again", jetlog.ErrStream, s.Name, s.Events, s.Last, f.Events,
				f.Last)
		}
	}
	return nil
}

// settle brings the restored log to disk, and records in it what was erased since it was copied.
func (l *Log) settle(ctx context.Context, packed *Packed) (out services.Restored, err error) {
	cfg := l.Config
	cfg.Restoring = true
	log, err := jetlog.Open(ctx, l.NC, cfg)
	if err != nil {
		return out, err
	}
	defer log.Close()
	out.Partitions = log.Partitions()
	for k := range log.Partitions() {
		if err := overwrite.On(log).Settle(ctx, k); err != nil {
			return out, err
		}
	}
	if err := desk.Of(log).Restore(ctx, log, packed.DeadLetters); err != nil {
		return out, err
	}
	if err := l.Host.KeepItemKey(ctx, log, packed.ItemKey); err != nil {
		return out, err
	}
	eraser := l.Host.Eraser(log)
	g, saying := errgroup.WithContext(ctx)
	following, end := context.WithCancel(saying)
	g.Go(func() error { return eraser.Run(following) })
	g.Go(func() error {
		defer end()
		for _, e := range packed.Erasures {
			known, err := e.record(saying, eraser)
			switch {
			case err != nil:
				return err
			case known:
				out.Erasures.Applied++
			default:
				out.Erasures.Unknown++
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return out, err
	}
	return out, operate.On(log).Restored(ctx)
}

// record records an erasure, and reports whether the log knows the erased turn, session or identity.
func (e *Erasure) record(ctx context.Context, s Eraser) (known bool, err error) {
	d := &e.Data
	switch events.WithdrawalOf(e.Type) {
	case events.WithdrawsSession:
		_, err = s.EraseSession(ctx, d.SessionID, services.Erasure{Reason: d.Reason, By: d.ErasedBy})
	case events.WithdrawsIdentity:
		_, err = s.EraseIdentity(ctx, d.IdentityID, services.Erasure{Reason: d.Reason, By: d.ErasedBy})
	case events.WithdrawsMessages:
		err = e.prune(ctx, s)
	case events.WithdrawsTurn:
		err = e.redact(ctx, s)
	case events.WithdrawsNothing, events.WithdrawsDescription, events.WithdrawsVersion: // ReadErasures leaves these out
	}
	switch {
	case err == nil, errors.Is(err, decide.ErrSessionErased):
		return true, nil
	case errors.Is(err, decide.ErrSessionNotFound), errors.Is(err, decide.ErrTurnNotFound):
		return false, nil
	default:
		return false, err
	}
}

// redact redacts the turn, by the version of it that the log knows.
func (e *Erasure) redact(ctx context.Context, s Eraser) (err error) {
	for _, turn := range e.Data.Turns() {
		_, err = s.RedactTurn(ctx, e.Data.SessionID, decide.Redact{
			TurnID: turn, Reason: e.Data.Reason, RedactedBy: e.Data.RedactedBy,
		})
		if !errors.Is(err, decide.ErrTurnNotFound) {
			break
		}
	}
	return err
}

// prune redacts the turn, unless the log holds the prune: the list of erasures does not say which messages it took out.
func (e *Erasure) prune(ctx context.Context, s Eraser) error {
	_, err := s.PruneTurn(ctx, decide.Prune{
		SessionID: e.Data.SessionID, TurnID: e.Data.TurnID, PruneID: e.Data.PruneID,
		Keep: func(m session.Message) json.RawMessage { return m.Raw },
	})
	for _, lacks := range []error{
		decide.ErrMessageNotFound, decide.ErrTurnNotFound, decide.ErrTurnReplaced,
	} {
		if errors.Is(err, lacks) {
			return e.redact(ctx, s)
		}
	}
	if errors.Is(err, decide.ErrTurnRedacted) {
		return nil
	}
	return err
}
