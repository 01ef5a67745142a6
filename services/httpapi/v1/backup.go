package v1

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Backups copies the log out, and takes copies in.
type Backups interface {
	// Snapshot writes a copy of a partition as it is at one moment, which begin is told of
	// before.
	Snapshot(ctx context.Context, partition int, begin func(jetlog.Moment) (io.Writer, error)) error
	// Restore takes a whole backup in, in the form that services/backup packs, and returns
	// when it is on disk and served as soon as requests are taken again. Its errors are
	// jetlog.ErrNotEmpty, ErrBackup and others of the log, as they are or wrapped.
	Restore(ctx context.Context, backup io.Reader) (Restored, error)
}

// Restored tells of a backup that was taken in: Erasures that were said again, and those
// that concern what it does not hold.
type Restored struct {
	Partitions, Erasures, Unknown int
}

// ErrBackup says that what was sent is no backup, or is damaged. Its text may be shown.
var ErrBackup = errors.New("what was sent is not a whole backup")

// backs adds the calls that copy the log out and in. Both see texts.
func (a *surface) backs() {
	raw(a, long(operation("snapshot-partition", access.Admin|access.EventsRead, http.MethodGet, "/partitions/{partition}/snapshot", "Copy a partition of the log; turnledger backup does it", notFound)), a.snapshot)
	raw(a, long(operation("restore-backup", access.Admin|access.EventsRead|access.TurnsWrite, http.MethodPost, "/restore", "Take a backup in; turnledger restore does it", unread, conflict)), a.restore)
}

type snapshotIn struct {
	Partition string `path:"partition"`
}

// Where a copy stands, in the header of its answer.
const (
	headerFirst  = "Turnledger-First-Sequence"
	headerLast   = "Turnledger-Last-Sequence"
	headerEvents = "Turnledger-Events"
	headerBytes  = "Turnledger-Bytes"
)

// snapshot answers with a copy. One that is broken off ends without the end of its body,
// which every client takes for an error.
func (a *surface) snapshot(w http.ResponseWriter, r *http.Request, in *snapshotIn) error {
	noPartition := newProblem(codeNotFound, "there is no such partition: GET /v1/streams lists them")
	partition, err := strconv.ParseUint(in.Partition, 10, 8)
	if err != nil {
		return noPartition
	}
	out, begun := wire.NewPatient(w, nil), false
	defer out.End()
	err = a.cfg.Backups.Snapshot(r.Context(), int(partition), func(m jetlog.Moment) (io.Writer, error) {
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		for name, n := range map[string]uint64{
			headerFirst: m.First, headerLast: m.Last, headerEvents: m.Events, headerBytes: m.Bytes,
		} {
			h.Set(name, strconv.FormatUint(n, 10))
		}
		begun = true
		return out, nil
	})
	if err != nil && begun {
		wire.CallOf(r.Context()).Failed(err)
		a.wire.Logger().Error("a copy of the log was broken off", "partition", partition, "err", err)
		panic(http.ErrAbortHandler)
	}
	if errors.Is(err, jetlog.ErrNotReached) {
		return noPartition
	}
	return err
}

type restoredJSON struct {
	Partitions int `json:"partitions"`
	Erasures   struct {
		Applied int `json:"applied"`
		Unknown int `json:"unknown"`
	} `json:"erasures"`
}

// whyRestoring is told to all that ask for something while a backup is restored.
const whyRestoring = "a backup is being restored: ask again when it is"

// restore takes a backup in. Nothing else is answered meanwhile.
func (a *surface) restore(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	release, ok := a.wire.Hold(whyRestoring)
	if !ok {
		return newProblem(codeLogUnavailable, "a backup is being restored already")
	}
	defer release()
	in := wire.NewPatient(w, r.Body)
	got, err := a.cfg.Backups.Restore(r.Context(), in)
	in.End()
	if err != nil {
		level := slog.LevelError
		if problemOf(err).Status < http.StatusInternalServerError {
			level = slog.LevelWarn // it was refused, and nothing has changed
		}
		a.wire.Logger().Log(r.Context(), level, "a backup was not restored", "err", tellable(err))
		return err
	}
	out := restoredJSON{Partitions: got.Partitions}
	out.Erasures.Applied, out.Erasures.Unknown = got.Erasures, got.Unknown
	wire.WriteJSON(w, http.StatusOK, out)
	return nil
}
