package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Stream is one that the log is kept in, or (Kind notes) what side effects remember.
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

// StreamFollower is another server that keeps a stream; Behind counts operations.
type StreamFollower struct {
	Server  string `json:"server"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Behind  uint64 `json:"behind"`
}

// StreamChange is what sets a stream apart from what is asked for. Refused says why it
// can't be made.
type StreamChange struct {
	What    string `json:"what"`
	Have    string `json:"have"`
	Want    string `json:"want"`
	Refused string `json:"refused"`
}

// StreamsWanted is what the streams should have; what is 0 is not asked for.
type StreamsWanted struct{ Partitions, Replicas int }

func (w StreamsWanted) path() string {
	v := url.Values{}
	if w.Partitions != 0 {
		v.Set("partitions", strconv.Itoa(w.Partitions))
	}
	if w.Replicas != 0 {
		v.Set("replicas", strconv.Itoa(w.Replicas))
	}
	return withQuery("/streams", v)
}

// PlanStreams gives the streams, and what sets them apart from what is wanted.
func (c *Client) PlanStreams(ctx context.Context, w StreamsWanted) ([]Stream, error) {
	return c.streams(ctx, request{"look at the streams", http.MethodGet, w.path(), nil, true})
}

// ApplyStreams makes the streams what is wanted, as far as that can be, and gives them as
// they then are; new replicas go on to fill.
func (c *Client) ApplyStreams(ctx context.Context, w StreamsWanted) ([]Stream, error) {
	return c.streams(ctx, request{"change the streams", http.MethodPost, w.path(), nil, true})
}

func (c *Client) streams(ctx context.Context, r request) ([]Stream, error) {
	var out struct {
		Streams []Stream `json:"streams"`
	}
	err := c.do(ctx, r, &out)
	return out.Streams, err
}

// Moment is where a partition stood when it was copied; Bytes are about those of its
// copy before packing.
type Moment struct{ First, Last, Events, Bytes uint64 }

// Snapshot begins a copy of a partition. The caller reads it to its end, quickly, and
// closes it; one that breaks off ends with another error than io.EOF.
func (c *Client) Snapshot(ctx context.Context, partition int) (m Moment, body io.ReadCloser, err error) {
	what := "copy partition " + strconv.Itoa(partition)
	resp, err := c.open(ctx, http.MethodGet, c.base+"/partitions/"+strconv.Itoa(partition)+"/snapshot", nil)
	if err != nil {
		return m, nil, attempted(what, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return m, nil, attempted(what, refusal(resp))
	}
	for name, into := range map[string]*uint64{"First-Sequence": &m.First, "Last-Sequence": &m.Last, "Events": &m.Events, "Bytes": &m.Bytes} {
		if *into, err = strconv.ParseUint(resp.Header.Get("Turnledger-"+name), 10, 64); err != nil {
			_ = resp.Body.Close()
			return m, nil, attempted(what, fmt.Errorf("%w: the header Turnledger-%s is missing", ErrAnswer, name))
		}
	}
	return m, resp.Body, nil
}

// Restored tells of a backup that a server has taken in.
type Restored struct {
	Partitions int `json:"partitions"`
	Erasures   struct {
		Applied int `json:"applied"`
		Unknown int `json:"unknown"`
	} `json:"erasures"`
}

// Restore sends a backup, as services/backup packs it, and waits until it is the log. It
// lasts as long as it takes, and is sent once.
func (c *Client) Restore(ctx context.Context, backup io.Reader) (out Restored, err error) {
	resp, err := c.open(ctx, http.MethodPost, c.base+"/restore", backup)
	if err != nil {
		return out, attempted("restore", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return out, attempted("restore", refusal(resp))
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, attempted("restore", fmt.Errorf("%w: %w", ErrAnswer, err))
	}
	return out, nil
}

// open sends one request without a deadline of its own, whose answer is read by the
// caller.
func (c *Client) open(ctx context.Context, method, address string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		// A server that refuses says so before it is sent for nothing.
		req.Header.Set("Expect", "100-continue")
	}
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	return resp, nil
}

// refusal reads the problem of an answer.
func refusal(resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	return problemIn(resp, raw)
}
