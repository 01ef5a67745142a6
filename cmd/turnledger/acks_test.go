package main

import (
	"context"
	"io"
	"iter"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// acks remembers what a server has acknowledged.
type acks struct {
	mu    sync.Mutex
	turns map[[2]string]string // session and turn id: status
}

func newAcks() *acks { return &acks{turns: map[[2]string]string{}} }

func (a *acks) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.turns)
}

func (a *acks) set(session, turn, status string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turns[[2]string{session, turn}] != "finalized" {
		a.turns[[2]string{session, turn}] = status
	}
}

// importAll runs an import that remembers each acknowledgement, until ctx ends.
func (a *acks) importAll(ctx context.Context, t testing.TB, p *process, files iter.Seq2[int, string]) {
	im := &importer{rec: noting{p.recorder(t), a}, seen: map[string][32]byte{}, report: io.Discard, bar: newProgress(io.Discard, "", unitBytes, -1)}
	var names []string
	for _, name := range files {
		names = append(names, name)
	}
	_ = im.files(ctx, names, 8) // broken off
}

// check finds every acknowledged turn in the state that was acknowledged.
func (a *acks) check(t testing.TB, p *process, seed uint64) {
	t.Helper()
	sessions := map[string]map[string]string{}
	a.mu.Lock()
	for k, status := range a.turns {
		if sessions[k[0]] == nil {
			sessions[k[0]] = map[string]string{}
		}
		sessions[k[0]][k[1]] = status
	}
	a.mu.Unlock()
	for id, turns := range sessions {
		found := map[string]string{}
		out := p.must(t, http.StatusOK, http.MethodGet, session(id)+"/turns?status=all&limit=10000", nil)
		for _, x := range out["turns"].([]any) {
			turn := x.(map[string]any)
			require.NotContains(t, found, turn["turn_id"], "seed %d: a turn stands twice", seed)
			found[turn["turn_id"].(string)] = turn["status"].(string)
		}
		for turn, status := range turns {
			require.Contains(t, found, turn, "seed %d: an acknowledged turn is lost", seed)
			if status == "finalized" {
				require.Equal(t, "finalized", found[turn], "seed %d: an acknowledged answer is lost", seed)
			}
		}
	}
}

// noting is a recorder that notes what was acknowledged.
type noting struct {
	recorder
	acks *acks
}

func (n noting) start(ctx context.Context, session string, t turnIn) (string, bool, error) {
	id, duplicate, err := n.recorder.start(ctx, session, t)
	if err == nil {
		n.acks.set(session, id, "pending")
	}
	return id, duplicate, err
}

func (n noting) finalize(ctx context.Context, session, turnID string, t turnIn) (bool, error) {
	duplicate, err := n.recorder.finalize(ctx, session, turnID, t)
	if err == nil {
		n.acks.set(session, turnID, "finalized")
	}
	return duplicate, err
}
