package v1

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/access"
)

// StreamKeeper tells of the streams of the log, and changes them while they are in use.
// Its errors are those of events/jetlog.
type StreamKeeper interface {
	Plan(ctx context.Context, w jetlog.Want) ([]jetlog.Stream, error)
	Apply(ctx context.Context, w jetlog.Want) ([]jetlog.Stream, error)
}

// keepsStreams adds the calls that look after the streams.
func (a *surface) keepsStreams() {
	call(a, operation("plan-streams", access.Admin, http.MethodGet, "/streams", "See the streams of the log, and what sets them apart from what is asked for"), a.planStreams)
	call(a, operation("apply-streams", access.Admin, http.MethodPost, "/streams", "Make the streams what is asked for, while they are in use", conflict), a.applyStreams)
}

type streamsIn struct {
	Partitions string `query:"partitions" doc:"What the log should have; what it has by default"`
	Replicas   string `query:"replicas" doc:"What the streams should have; what they have by default"`
}

func (in *streamsIn) want() (w jetlog.Want, err error) {
	if w.Partitions, err = wholeNumber("partitions", in.Partitions, 256); err != nil {
		return w, err
	}
	w.Replicas, err = wholeNumber("replicas", in.Replicas, 5)
	return w, err
}

// wholeNumber reads a number from 1 to most; empty is 0.
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
	Name      string           `json:"name" example:"TURNS-0"`
	Kind      string           `json:"kind" enum:"log,notes" doc:"log: events; notes: what side effects remember"`
	CreatedAt time.Time        `json:"created_at"`
	Storage   string           `json:"storage" example:"file"`
	Replicas  int              `json:"replicas"`
	Leader    string           `json:"leader"`
	Followers []followerJSON   `json:"followers" nullable:"false"`
	Events    uint64           `json:"events"`
	Bytes     uint64           `json:"bytes"`
	First     uint64           `json:"first_sequence"`
	Last      uint64           `json:"last_sequence"`
	Changes   []streamDiffJSON `json:"changes" nullable:"false"`
}

type followerJSON struct {
	Server  string `json:"server"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Behind  uint64 `json:"behind" doc:"Operations that it lacks"`
}

type streamDiffJSON struct {
	What    string  `json:"what" example:"replicas"`
	Have    string  `json:"have"`
	Want    string  `json:"want"`
	Refused *string `json:"refused" doc:"Why it can't be made; null where apply makes it"`
}

func (a *surface) planStreams(ctx context.Context, in *streamsIn) (*reply[streamsJSON], error) {
	return answerStreams(ctx, in, a.cfg.Streams.Plan)
}

func (a *surface) applyStreams(ctx context.Context, in *streamsIn) (*reply[streamsJSON], error) {
	return answerStreams(ctx, in, a.cfg.Streams.Apply)
}

func answerStreams(ctx context.Context, in *streamsIn, ask func(context.Context, jetlog.Want) ([]jetlog.Stream, error)) (*reply[streamsJSON], error) {
	w, err := in.want()
	if err != nil {
		return nil, err
	}
	all, err := ask(ctx, w)
	if err != nil {
		return nil, err
	}
	out := ok(streamsJSON{Streams: []streamJSON{}})
	for i := range all {
		row := newStreamJSON(&all[i])
		if row.Kind == "log" {
			out.Body.Partitions++
		}
		out.Body.Streams = append(out.Body.Streams, row)
	}
	return out, nil
}

func newStreamJSON(s *jetlog.Stream) streamJSON {
	row := streamJSON{
		Name: s.Name, Kind: "log", CreatedAt: s.Created, Storage: s.Storage, Replicas: s.Replicas, Leader: s.Leader,
		Followers: []followerJSON{}, Events: s.Events, Bytes: s.Bytes, First: s.First, Last: s.Last, Changes: []streamDiffJSON{},
	}
	if s.Bucket {
		row.Kind = "notes"
	}
	for _, f := range s.Followers {
		row.Followers = append(row.Followers, followerJSON(f))
	}
	for i := range s.Changes {
		c := &s.Changes[i]
		row.Changes = append(row.Changes, streamDiffJSON{c.What, c.Have, c.Want, optional(&c.Refused)})
	}
	return row
}
