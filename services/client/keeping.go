package client

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
)

// Rebuild begins to fill a view anew from the log, and returns the number of the generation that is being filled.
// Projections shows how far the rebuild is.
func (c *Client) Rebuild(ctx context.Context, name string) (generation int, err error) {
	r := request{"rebuild " + name, http.MethodPost, projectionPath(name) + "/rebuild", nil, sentOnce}
	return callField[int](ctx, c, "generation", r)
}

// CancelRebuild cancels the rebuild that runs in the process that answers, and returns the number of the abandoned
// generation.
func (c *Client) CancelRebuild(ctx context.Context, name string) (generation int, err error) {
	r := request{"cancel the rebuild of " + name, http.MethodDelete, projectionPath(name) + "/rebuild", nil, sentOnce}
	return callField[int](ctx, c, "generation", r)
}

func projectionPath(name string) string { return "/projections/" + escape(name) }

// Verified is one step of a verification. Exactly one of its members is set; Result is the last step's.
type Verified struct {
	Progress *struct {
		Events uint64 `json:"events"`
		Of     uint64 `json:"of"`
	} `json:"progress"`
	Difference *Difference `json:"difference"`
	Result     *struct {
		Name        string `json:"name"`
		Sessions    int    `json:"sessions"`
		Differences int    `json:"differences"`
	} `json:"result"`
	Problem *Error `json:"problem"`
}

// Difference between a view and the log. A digest is empty if that side lacks the session.
type Difference struct {
	SessionID string `json:"session_id"`
	What      string `json:"what"`
	View      string `json:"view_digest"`
	Log       string `json:"log_digest"`
}

// Verify compares a view with the log; if sample is above 0, only that many sessions. It calls take with each step, and
// with the line in which the server sent it. It has no deadline.
func (c *Client) Verify(
	ctx context.Context, name string, sample int, take func(step Verified, line []byte) error,
) error {
	what, path := "verify "+name, withQuery(projectionPath(name)+"/verify", "sample", number(max(sample, 0)))
	resp, err := c.open(ctx, http.MethodPost, path, nil, nil)
	if err != nil {
		return attempted(what, err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var step Verified
		err := decode(lines.Bytes(), &step)
		if err == nil && step.Problem != nil {
			err = step.Problem
		}
		if err != nil {
			return attempted(what, err)
		}
		if err := take(step, lines.Bytes()); err != nil || step.Result != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return attempted(what, err)
	}
	return attempted(what, fmt.Errorf("%w: it ended before its result", ErrAnswer))
}
