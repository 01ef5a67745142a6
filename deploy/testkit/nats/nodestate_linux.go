package nats

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
)

// Ready waits until all nodes are healthy: each knows its leader, and has caught up.
func (n *Nodes) Ready(t testing.TB) {
	t.Helper()
	hang.Until(t, func() bool {
		for i := range n.nodes {
			if !n.Healthy(i) {
				return false
			}
		}
		return true
	}, "the cluster is not ready")
}

// Healthy reports whether a node calls itself healthy.
func (n *Nodes) Healthy(i int) bool {
	var v struct{ Status string }
	return n.ask(i, "/healthz", &v) == nil && v.Status == "ok"
}

// stored is the state of a stream on one node.
type stored struct {
	Messages, Bytes uint64
	FirstSeq        uint64 `json:"first_seq"`
	LastSeq         uint64 `json:"last_seq"`
}

// Agree waits until all nodes have the same state of every stream with three replicas.
func (n *Nodes) Agree(t testing.TB) {
	t.Helper()
	var told [size]string
	hang.Until(t, func() bool {
		for i := range n.nodes {
			held, err := n.holds(i)
			if err != nil {
				return false
			}
			raw, err := json.Marshal(held)
			told[i] = string(raw)
			if err != nil || len(held) == 0 || told[i] != told[0] {
				return false
			}
		}
		return true
	}, "the nodes hold %v", &told)
}

func (n *Nodes) holds(i int) (map[string]stored, error) {
	var v struct {
		Accounts []struct {
			Streams []struct {
				Name   string
				State  stored
				Config struct {
					Replicas int `json:"num_replicas"`
				}
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := n.ask(i, "/jsz?accounts=true&streams=true&config=true", &v); err != nil {
		return nil, err
	}
	out := map[string]stored{}
	for _, a := range v.Accounts {
		for _, s := range a.Streams {
			if s.Config.Replicas == size {
				out[s.Name] = s.State
			}
		}
	}
	return out, nil
}

// ask reads a path of a node's monitoring.
func (n *Nodes) ask(i int, path string, out any) error {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + n.nodes[i].monitor + path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(out)
}
