package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Stream is a stream of the log. If Kind is notes, it is the stream of the notes.
type Stream struct {
	Name      string           `json:"name"`
	Kind      string           `json:"kind"`
	CreatedAt time.Time        `json:"created_at"`
	Storage   string           `json:"storage"`
	Replicas  int              `json:"replicas"`
	Leader    string           `json:"leader"`
	Followers []StreamFollower `json:"followers"`
	Events    uint64           `json:"events"`
	Bytes     uint64           `json:"bytes"`
	First     uint64           `json:"first_sequence"`
	Last      uint64           `json:"last_sequence"`
	Changes   []StreamChange   `json:"changes"`
}

// StreamFollower is another server that keeps a copy of a stream. Behind counts the operations that it lacks.
type StreamFollower struct {
	Server  string `json:"server"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Behind  uint64 `json:"behind"`
}

// StreamChange is a difference between a stream and the wanted state. Refused says why the change can't be made.
type StreamChange struct {
	What    string `json:"what"`
	Have    string `json:"have"`
	Want    string `json:"want"`
	Refused string `json:"refused"`
}

// StreamsWanted is the wanted state of the streams; 0 means no change.
type StreamsWanted struct{ Partitions, Replicas int }

// PlanStreams returns the streams, with their differences from the wanted state.
func (c *Client) PlanStreams(ctx context.Context, w StreamsWanted) ([]Stream, error) {
	return c.streams(ctx, "look at the streams", http.MethodGet, w)
}

// Partitions returns how many partitions the log has.
func (c *Client) Partitions(ctx context.Context) (n int, err error) {
	all, err := c.PlanStreams(ctx, StreamsWanted{})
	for _, s := range all {
		if s.Kind == "log" {
			n++
		}
	}
	return n, err
}

// ApplyStreams changes the streams to the wanted state as far as possible, and returns them as they are then. New
// replicas continue to fill afterwards.
func (c *Client) ApplyStreams(ctx context.Context, w StreamsWanted) ([]Stream, error) {
	return c.streams(ctx, "change the streams", http.MethodPost, w)
}

func (c *Client) streams(ctx context.Context, what, method string, w StreamsWanted) ([]Stream, error) {
	r := get(what, "/streams", "partitions", number(w.Partitions), "replicas", number(w.Replicas))
	r.method = method
	return callField[[]Stream](ctx, c, "streams", r)
}

// Moment is the state of a partition when it was copied. Bytes is about the size of the copy before packing. ItemKey is
// the key of the ids of items.
type Moment struct {
	First, Last, Events, Bytes uint64
	ItemKey                    string
}

// Snapshot begins a copy of a partition. The caller reads it to its end, quickly, and closes it. A broken copy ends
// with an error other than io.EOF.
func (c *Client) Snapshot(ctx context.Context, partition int) (m Moment, body io.ReadCloser, err error) {
	what := "copy partition " + strconv.Itoa(partition)
	resp, err := c.open(ctx, http.MethodGet, "/partitions/"+strconv.Itoa(partition)+"/snapshot", nil, nil)
	if err != nil {
		return m, nil, attempted(what, err)
	}
	for name, into := range map[string]*uint64{
		"First-Sequence": &m.First, "Last-Sequence": &m.Last, "Events": &m.Events, "Bytes": &m.Bytes,
	} {
		if *into, err = strconv.ParseUint(resp.Header.Get("Turnledger-"+name), 10, 64); err != nil {
			_ = resp.Body.Close()
			return m, nil, attempted(what, fmt.Errorf("%w: the header Turnledger-%s is missing", ErrAnswer, name))
		}
	}
	if m.ItemKey = resp.Header.Get("Turnledger-Item-Key"); m.ItemKey == "" {
		_ = resp.Body.Close()
		return m, nil, attempted(what, fmt.Errorf("%w: the header Turnledger-Item-Key is missing", ErrAnswer))
	}
	return m, resp.Body, nil
}

// Restored counts what a server has restored from a backup.
type Restored struct {
	Partitions int `json:"partitions"`
	Erasures   struct {
		Applied int `json:"applied"`
		Unknown int `json:"unknown"`
	} `json:"erasures"`
}

// Restore sends a backup, as services/backup packs it, and waits until it is the server's log. It has no deadline, and
// sends the backup only once.
func (c *Client) Restore(ctx context.Context, backup io.Reader) (out Restored, err error) {
	// With this header a server refuses before the whole backup is sent.
	resp, err := c.open(ctx, http.MethodPost, "/restore", backup, http.Header{"Expect": {"100-continue"}})
	if err != nil {
		return out, attempted("restore", err)
	}
	answer, err := c.readAll(resp)
	if err == nil {
		err = decode(answer, &out)
	}
	return out, attempted("restore", err)
}
