// Package supermemory is a client of Supermemory, a long-term memory, by its API v5, or by v3/v4, which is shut down on
// 2026-12-31. One document is one turn, under the turn's id.
package supermemory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
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
type client struct {
	base, key string
	http      *http.Client
}

func newClient(c Config) client {
	timeout := cmp.Or(c.Timeout, 10*time.Second)
	return client{strings.TrimRight(c.URL, "/"), c.Key, &http.Client{Timeout: timeout}}
}

// statusError is the status of a failed request. It holds nothing of the body, since the service may repeat a text
// there.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("the memory answered %d", int(s)) }

// statusOf returns the status of a failed request, or 0 for any other error.
func statusOf(err error) int {
	status, _ := errors.AsType[statusError](err)
	return int(status)
}

// longestAnswer bounds the bytes that are read of a response.
const longestAnswer = 4 << 20

// call sends a body, if there is one, and decodes the response into out, if out is set.
func (c client) call(ctx context.Context, method, path string, body, out any) error {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return brief(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices:
		return statusError(resp.StatusCode)
	case err != nil:
		return brief(err)
	case out != nil:
		return json.Unmarshal(raw, out)
	default:
		return nil
	}
}

// brief strips the URL from an error, since the URL names an identity.
func brief(err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		return inner.Err
	}
	return err
}

// put sends a document. If the service rejects the request itself, the error is permanent, so that it is not sent
// again.
func (c client) put(ctx context.Context, path string, body any) error {
	err := c.call(ctx, http.MethodPost, path, body, nil)
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return projections.Permanent(err)
	default:
		return err
	}
}

// remove deletes something; if it does not exist, that is no error.
func (c client) remove(ctx context.Context, path string, body any) error {
	return missing(c.call(ctx, http.MethodDelete, path, body, nil))
}

// errStillThere says that a document still exists after it was deleted.
var errStillThere = errors.New("the memory still has a document that was deleted")

// gone checks a deletion: the service must not find the document any more.
func (c client) gone(ctx context.Context, path string) error {
	err := c.call(ctx, http.MethodGet, path, nil, nil)
	switch status := statusOf(err); {
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
	if statusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// search returns the results of a search, the best first. A scope that does not exist has none.
func (c client) search(ctx context.Context, path string, body map[string]any) (out []recall.Found, err error) {
	var answer struct {
		Results []result `json:"results"`
	}
	err = c.call(ctx, http.MethodPost, path, body, &answer)
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
	return out, missing(err)
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
