package v1

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/access"
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
func (a *API) backs(api huma.API) {
	registerRaw[snapshotIn](api, operation("snapshot-partition", access.Admin|access.EventsRead, http.MethodGet, "/partitions/{partition}/snapshot", "Copy a partition of the log; turnledger backup does it", notFound), a.snapshot)
	registerRaw[struct{}](api, operation("restore-backup", access.Admin|access.EventsRead|access.TurnsWrite, http.MethodPost, "/restore", "Take a backup in; turnledger restore does it", unread, conflict), a.restore)
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
func (a *API) snapshot(w http.ResponseWriter, r *http.Request) {
	partition, err := strconv.ParseUint(r.PathValue("partition"), 10, 8)
	if err != nil {
		newProblem(codeNotFound, "there is no such partition: GET /v1/streams lists them").write(w)
		return
	}
	out := newPatient(w, nil)
	defer out.end()
	err = a.cfg.Backups.Snapshot(r.Context(), int(partition), func(m jetlog.Moment) (io.Writer, error) {
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		for name, n := range map[string]uint64{headerFirst: m.First, headerLast: m.Last, headerEvents: m.Events, headerBytes: m.Bytes} {
			h.Set(name, strconv.FormatUint(n, 10))
		}
		out.begun = true
		return out, nil
	})
	if err == nil {
		return
	}
	p := problemOf(err)
	if errors.Is(err, jetlog.ErrNotReached) {
		p = newProblem(codeNotFound, "there is no such partition: GET /v1/streams lists them")
	}
	callOf(r.Context()).err = p
	if out.begun {
		a.cfg.Logger.Error("a copy of the log was broken off", "partition", partition, "err", err)
		panic(http.ErrAbortHandler)
	}
	p.write(w)
}

type restoredJSON struct {
	Partitions int `json:"partitions"`
	Erasures   struct {
		Applied int `json:"applied"`
		Unknown int `json:"unknown"`
	} `json:"erasures"`
}

// restore takes a backup in. Nothing else is answered meanwhile.
func (a *API) restore(w http.ResponseWriter, r *http.Request) {
	if !a.restoring.CompareAndSwap(false, true) {
		newProblem(codeLogUnavailable, "a backup is being restored already").write(w)
		return
	}
	defer a.restoring.Store(false)
	in := newPatient(w, r.Body)
	got, err := a.cfg.Backups.Restore(r.Context(), in)
	in.end()
	if err != nil {
		p := problemOf(err)
		callOf(r.Context()).err = p
		level := slog.LevelError
		if p.Status < http.StatusInternalServerError {
			level = slog.LevelWarn // it was refused, and nothing has changed
		}
		a.cfg.Logger.Log(r.Context(), level, "a backup was not restored", "err", tellable(err))
		p.write(w)
		return
	}
	out := restoredJSON{Partitions: got.Partitions}
	out.Erasures.Applied, out.Erasures.Unknown = got.Erasures, got.Unknown
	writeJSON(w, http.StatusOK, out)
}

// streamPiece is how long a client may take for a piece of a long body.
const streamPiece = 30 * time.Second

// patient reads or writes a long body, whose pieces have deadlines and whose whole has
// none.
type patient struct {
	w     io.Writer
	r     io.Reader
	c     *http.ResponseController
	begun bool
}

func newPatient(w http.ResponseWriter, r io.Reader) *patient {
	p := &patient{w: w, r: r, c: http.NewResponseController(w)}
	_ = p.c.SetWriteDeadline(time.Time{}) // where there is none, none is needed
	return p
}

// end gives what is still to be written its time.
func (p *patient) end() { _ = p.c.SetWriteDeadline(time.Now().Add(streamPiece)) }

func (p *patient) Write(b []byte) (n int, err error) {
	err = within(p.c.SetWriteDeadline, streamPiece, func() error { n, err = p.w.Write(b); return err })
	return n, err
}

func (p *patient) Read(b []byte) (n int, err error) {
	err = within(p.c.SetReadDeadline, streamPiece, func() error { n, err = p.r.Read(b); return err })
	return n, err
}
