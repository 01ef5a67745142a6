package v1

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// StreamKeeper describes the streams of the log, and changes them while they are in use.
// Its errors are those of events/jetlog.
type StreamKeeper interface {
	Plan(ctx context.Context, w operate.Want) ([]operate.Stream, error)
	Apply(ctx context.Context, w operate.Want) ([]operate.Stream, error)
}

// keepsStreams adds the calls that describe and change the log's streams.
func (a *surface) keepsStreams() {
	call(a, func(ctx context.Context, in *streamsIn) (streamsJSON, error) {
		return answerStreams(ctx, in, a.cfg.Streams.Plan)
	}, op("plan-streams", access.Admin, "GET /streams",
		"See the streams of the log, and what sets them apart from what is asked for"))
	call(a, func(ctx context.Context, in *streamsIn) (streamsJSON, error) {
		return answerStreams(ctx, in, a.cfg.Streams.Apply)
	}, op("apply-streams", access.Admin, "POST /streams",
		"Make the streams what is asked for, while they are in use", conflict))
}

type streamsIn struct {
	Partitions string `query:"partitions" doc:"What the log should have; what it has by default"`
	Replicas   string `query:"replicas" doc:"What the streams should have; what they have by default"`
}

func (in *streamsIn) want() (w operate.Want, err error) {
	if w.Partitions, err = wholeNumber("partitions", in.Partitions, 256); err != nil {
		return w, err
	}
	w.Replicas, err = wholeNumber("replicas", in.Replicas, 5)
	return w, err
}

// wholeNumber parses a number from 1 to most; an empty text is 0.
func wholeNumber(field, s string, most int) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, invalid(field, "must be a whole number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

type streamsJSON struct {
	Partitions int          `json:"partitions" doc:"Of the log"`
	Streams    []streamJSON `json:"streams" nullable:"false"`
}

type streamJSON struct {
	Name      string            `json:"name" example:"TURNS-0"`
	Kind      string            `json:"kind" enum:"log,notes" doc:"log: events; notes: what side effects remember"`
	CreatedAt time.Time         `json:"created_at"`
	Storage   string            `json:"storage" example:"file"`
	Replicas  int               `json:"replicas"`
	Leader    string            `json:"leader"`
	Followers []operate.Replica `json:"followers" nullable:"false"`
	Events    uint64            `json:"events"`
	Bytes     uint64            `json:"bytes"`
	First     uint64            `json:"first_sequence"`
	Last      uint64            `json:"last_sequence"`
	Changes   []streamDiffJSON  `json:"changes" nullable:"false"`
}

type streamDiffJSON struct {
	What    string  `json:"what" example:"replicas"`
	Have    string  `json:"have"`
	Want    string  `json:"want"`
	Refused *string `json:"refused" doc:"Why it can't be made; null where apply makes it"`
}

func answerStreams(
	ctx context.Context, in *streamsIn, ask func(context.Context, operate.Want) ([]operate.Stream, error),
) (out streamsJSON, err error) {
	w, err := in.want()
	if err != nil {
		return out, err
	}
	all, err := ask(ctx, w)
	out.Streams = mapped(all, newStreamJSON)
	for _, s := range all {
		if !s.Bucket {
			out.Partitions++
		}
	}
	return out, err
}

func newStreamJSON(s *operate.Stream) streamJSON {
	row := streamJSON{
		Name: s.Name, Kind: "log", CreatedAt: s.Created, Storage: s.Storage, Replicas: s.Replicas, Leader: s.Leader,
		Events: s.Events, Bytes: s.Bytes, First: s.First, Last: s.Last,
		Followers: append([]operate.Replica{}, s.Followers...), // never null
		Changes: mapped(s.Changes, func(c *operate.Change) streamDiffJSON {
			return streamDiffJSON{c.What, c.Have, c.Want, optional(&c.Refused)}
		}),
	}
	if s.Bucket {
		row.Kind = "notes"
	}
	return row
}

// Backups copies the log, and restores copies.
type Backups interface {
	// Snapshot writes a copy of a partition as it is at one moment. It calls begin with that moment before it writes.
	Snapshot(ctx context.Context, partition int, begin func(operate.Moment) (io.Writer, error)) error
	// Restore restores a whole backup, in the form that services/backup packs. It returns when the backup is on disk;
	// the log is served from the next request on. Its errors are jetlog.ErrNotEmpty, services.ErrBackup and others of
	// the log, plain or wrapped.
	Restore(ctx context.Context, backup io.Reader) (services.Restored, error)
}

// backs adds the calls that copy and restore the log. Both handle texts.
func (a *surface) backs() {
	raw[anyAnswer](a, a.snapshot, op("snapshot-partition", access.Admin|access.EventsRead,
		"GET /partitions/{partition}/snapshot", "Copy a partition of the log; turnledger backup does it",
		notFound).takesLong())
	restore := op("restore-backup", access.Admin|access.EventsRead|access.TurnsWrite,
		"POST /restore", "Take a backup in; turnledger restore does it", unread, conflict)
	restore.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {},
	}}
	raw[anyAnswer](a, a.restore, restore.takesLong())
}

type snapshotIn struct {
	Partition string `path:"partition"`
}

// Headers that describe a copy.
const (
	headerFirst  = "Turnledger-First-Sequence"
	headerLast   = "Turnledger-Last-Sequence"
	headerEvents = "Turnledger-Events"
	headerBytes  = "Turnledger-Bytes"
	// headerItemKey has the key of the ids of items: it stands beside the log, and is to be restored with it.
	headerItemKey = "Turnledger-Item-Key"
)

// snapshot responds with a copy. If the copy breaks off, the body ends improperly, which every client reports as an
// error.
func (a *surface) snapshot(w http.ResponseWriter, r *http.Request, in *snapshotIn) error {
	partition, err := strconv.ParseUint(in.Partition, 10, 8)
	if err != nil {
		return jetlog.ErrNoPartition
	}
	out, begun := a.wire.NewPatient(w, nil), false
	defer out.End()
	err = a.cfg.Backups.Snapshot(r.Context(), int(partition), func(m operate.Moment) (io.Writer, error) {
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		for name, n := range map[string]uint64{
			headerFirst: m.First, headerLast: m.Last, headerEvents: m.Events, headerBytes: m.Bytes,
		} {
			h.Set(name, strconv.FormatUint(n, 10))
		}
		h.Set(headerItemKey, a.cfg.ItemKey)
		begun = true
		return out, nil
	})
	if err != nil && begun {
		wire.CallOf(r.Context()).Failed(err)
		a.wire.Logger().Error("a copy of the log was broken off", "partition", partition, "err", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// whyRestoring is the detail of every refusal while a backup is being restored.
const whyRestoring = "a backup is being restored: ask again when it is"

// restore restores a backup. All other calls are refused meanwhile.
func (a *surface) restore(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	release, ok := a.wire.Suspend(whyRestoring)
	if !ok {
		return problems.New(problems.CodeLogUnavailable, "a backup is being restored already")
	}
	defer release()
	in := a.wire.NewPatient(w, r.Body)
	got, err := a.cfg.Backups.Restore(r.Context(), in)
	in.End()
	if err != nil {
		level := slog.LevelError
		if !problems.Of(err).Retry {
			level = slog.LevelWarn // the restore was refused, and changed nothing
		}
		a.wire.Logger().Log(r.Context(), level, "a backup was not restored", "err", safeText(err))
		return err
	}
	wire.WriteJSON(w, http.StatusOK, got)
	return nil
}
