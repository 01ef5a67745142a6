package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/projections"
)

type rebuildIn struct {
	Name string `path:"name"`
}

type rebuildOut struct{ Body rebuildJSON }

type rebuildJSON struct {
	Name       string `json:"name"`
	Generation uint64 `json:"generation" doc:"Of the tables or keys that are being filled"`
}

func (a *API) rebuild(ctx context.Context, in *rebuildIn) (*rebuildOut, error) {
	n, err := a.cfg.Keeper.Rebuild(ctx, in.Name)
	return &rebuildOut{rebuildJSON{in.Name, n}}, err
}

func (a *API) cancelRebuild(ctx context.Context, in *rebuildIn) (*rebuildOut, error) {
	n, err := a.cfg.Keeper.CancelRebuild(ctx, in.Name)
	return &rebuildOut{rebuildJSON{in.Name, n}}, err
}

// verifyLine is a line of the answer: one of its members.
type verifyLine struct {
	Progress   *verifyProgress   `json:"progress,omitempty"`
	Difference *verifyDifference `json:"difference,omitempty"`
	Result     *verifyResult     `json:"result,omitempty"`
	Problem    *problem          `json:"problem,omitempty"`
}

type verifyProgress struct {
	Events uint64 `json:"events"`
	Of     uint64 `json:"of"`
}

type verifyDifference struct {
	SessionID string `json:"session_id"`
	What      string `json:"what"`
	View      string `json:"view_digest"`
	Log       string `json:"log_digest"`
}

type verifyResult struct {
	Name        string `json:"name"`
	Sessions    int    `json:"sessions"`
	Differences int    `json:"differences"`
}

// verifyLineDeadline is how long a reader may take for one line.
const verifyLineDeadline = 30 * time.Second

type verifyIn struct {
	Name   string `path:"name"`
	Sample string `query:"sample" doc:"Sessions that are drawn from those that the view holds; all by default"`
}

// verify answers with a line of JSON for each step, the last of which is the result or
// a problem. It has no deadline: it ends with the client.
func (a *API) verify(w http.ResponseWriter, r *http.Request) {
	sample, err := 0, error(nil)
	if s := r.URL.Query().Get("sample"); s != "" {
		if sample, err = strconv.Atoi(s); err != nil || sample < 1 {
			problemOf(invalid("sample", "must be a whole number, at least 1")).write(w)
			return
		}
	}
	out := http.NewResponseController(w)
	begun, found, name := false, 0, r.PathValue("name")
	line := func(l verifyLine) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		return within(out.SetWriteDeadline, verifyLineDeadline, func() error {
			return errors.Join(json.NewEncoder(w).Encode(l), out.Flush())
		})
	}
	_ = out.SetWriteDeadline(time.Time{}) // where there is none, none is needed
	defer func() { _ = out.SetWriteDeadline(time.Now().Add(verifyLineDeadline)) }()
	sessions, err := a.cfg.Keeper.Verify(r.Context(), name, sample, func(done, of uint64) error {
		return line(verifyLine{Progress: &verifyProgress{done, of}})
	}, func(d projections.Difference) error {
		found++
		return line(verifyLine{Difference: &verifyDifference{d.SessionID, d.What, d.View, d.Log}})
	})
	switch {
	case err != nil && !begun:
		p := problemOf(err)
		callOf(r.Context()).err = p
		p.write(w)
	case err != nil:
		p := problemOf(err)
		callOf(r.Context()).err = p
		_ = line(verifyLine{Problem: p}) // the client is gone, then
	default:
		_ = line(verifyLine{Result: &verifyResult{name, sessions, found}})
	}
}
