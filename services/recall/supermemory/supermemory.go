// Package supermemory is a client of Supermemory, a long-term memory, by its API v5, or by v3/v4, which is shut down on
// 2026-12-31. One document is one turn, under the turn's id.
package supermemory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/recall"
)

// Config of a memory. URL is the API's address without a version.
type Config struct {
	URL, Key string
	// Timeout of a call; 10 s by default.
	Timeout time.Duration
}

// New returns the service by a version of its API: v4, or v5 for any other.
func New(version string, c Config) recall.Service {
	if version == "v4" {
		return NewV4(c)
	}
	return NewV5(c)
}

// client calls the API.
type client struct{ api endpoint.Caller }

func newClient(c Config) client {
	return client{endpoint.NewCaller(c.URL, c.Key, cmp.Or(c.Timeout, 10*time.Second))}
}

// put sends a document. If the service rejects the request itself, the error is permanent, so that it is not sent
// again.
func (c client) put(ctx context.Context, path string, body any) error {
	_, err := c.api.Call(ctx, http.MethodPost, path, body)
	if endpoint.Unfit(err) {
		return projections.Permanent(err)
	}
	return err
}

// remove deletes something; if it does not exist, that is no error.
func (c client) remove(ctx context.Context, path string, body any) error {
	_, err := c.api.Call(ctx, http.MethodDelete, path, body)
	return missing(err)
}

// errStillThere says that a document still exists after it was deleted.
var errStillThere = errors.New("the memory still has a document that was deleted")

// gone checks a deletion: the service must not find the document any more.
func (c client) gone(ctx context.Context, path string) error {
	_, err := c.api.Call(ctx, http.MethodGet, path, nil)
	switch status := endpoint.StatusOf(err); {
	case status == http.StatusNotFound, status == http.StatusGone:
		return nil
	case err != nil:
		return err
	default:
		return errStillThere
	}
}

// missing returns nil if the error says that something does not exist.
func missing(err error) error {
	if endpoint.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// errForm says that an answer is not one of the API.
var errForm = errors.New("the memory's answer has another form")

// search returns the results of a search, the best first. A scope that does not exist has none.
func (c client) search(ctx context.Context, path string, body map[string]any) (out []recall.Found, err error) {
	var answer struct {
		Results []result `json:"results"`
	}
	raw, err := c.api.Call(ctx, http.MethodPost, path, body)
	if err != nil {
		return nil, missing(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, errForm
	}
	for _, r := range answer.Results {
		f := recall.Found{Text: cmp.Or(r.Memory, r.Chunk, r.Content)}
		if id, err := uuid.Parse(r.Metadata.TurnID); err == nil {
			f.TurnID = id
		} else if id, err := uuid.Parse(r.ID); err == nil {
			f.TurnID = id
		}
		f.Place, _ = strconv.ParseUint(r.Metadata.Place, 10, 64) // a turn without one is before every boundary
		if f.Text != "" {
			out = append(out, f)
		}
	}
	return out, nil
}

func content(d recall.Document) string {
	return "User: " + d.Question + "\nAssistant: " + d.Answer
}

func metadata(d recall.Document) map[string]string {
	return map[string]string{"session_id": d.SessionID, "turn_id": d.TurnID.String(),
		"place": strconv.FormatUint(d.Place, 10)}
}

// result is a search result, with the fields of both versions.
type result struct {
	ID       string `json:"id"`
	Memory   string `json:"memory"`
	Chunk    string `json:"chunk"`
	Content  string `json:"content"`
	Metadata struct {
		TurnID string `json:"turn_id"`
		Place  string `json:"place"`
	} `json:"metadata"`
}
