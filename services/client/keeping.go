package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Rebuild begins to fill a view anew from the log, and gives the number of the
// generation that is being filled; Projections tells how far it is.
func (c *Client) Rebuild(ctx context.Context, name string) (generation int, err error) {
	var out struct {
		Generation int `json:"generation"`
	}
	err = c.do(ctx, request{"rebuild " + name, http.MethodPost, "/projections/" + escape(name) + "/rebuild", nil, false}, &out)
	return out.Generation, err
}

// CancelRebuild breaks off the rebuild that runs in the process asked, and gives the number of the generation that is given up.
func (c *Client) CancelRebuild(ctx context.Context, name string) (generation int, err error) {
	var out struct {
		Generation int `json:"generation"`
	}
	err = c.do(ctx, request{"cancel the rebuild of " + name, http.MethodDelete, "/projections/" + escape(name) + "/rebuild", nil, false}, &out)
	return out.Generation, err
}

// Verified is one step of a verification: one of its members is set, Result at the end.
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

// Difference between a view and the log; a digest is empty where that side has none.
type Difference struct {
	SessionID string `json:"session_id"`
	What      string `json:"what"`
	View      string `json:"view_digest"`
	Log       string `json:"log_digest"`
}

// Verify holds a view against the log, or sample of its sessions where that is above
// 0, and gives each step to take, as it was sent too. It lasts as long as it takes.
func (c *Client) Verify(ctx context.Context, name string, sample int, take func(step Verified, line []byte) error) error {
	path := c.base + "/projections/" + escape(name) + "/verify"
	if sample > 0 {
		path += "?sample=" + strconv.Itoa(sample)
	}
	what := "verify " + name
	resp, err := c.open(ctx, http.MethodPost, path, nil)
	if err != nil {
		return attempted(what, err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	if resp.StatusCode != http.StatusOK {
		lines.Scan()
		return attempted(what, problemIn(resp, lines.Bytes()))
	}
	for lines.Scan() {
		var step Verified
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return attempted(what, fmt.Errorf("%w: %w", ErrAnswer, err))
		}
		if step.Problem != nil {
			return attempted(what, step.Problem)
		}
		if err := take(step, lines.Bytes()); err != nil {
			return err
		}
		if step.Result != nil {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return attempted(what, err)
	}
	return attempted(what, fmt.Errorf("%w: it ended before its result", ErrAnswer))
}
