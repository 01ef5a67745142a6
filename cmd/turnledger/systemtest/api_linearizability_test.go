package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// Four clients of two processes make random calls to a session, erasures included. Each session's history is
// linearizable, its branches share the turns from before their forks, and both views equal a fresh fold of the log.
//
//conformance:i1 i78 i84
func TestSessionsAreLinearizable(t *testing.T) {
	t.Parallel()
	interleavings := 25
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		interleavings = 200
	}
	nats, redis, pg := stack.FreeAddress(t), redistest.Start(t), pg.URL(t)
	env := []string{"TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg,
		"TURNLEDGER_ERASE_RATE=1000"}
	a := stack.Serve(t, append(stack.ServeNATS(nats), env...))
	b := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve")
	clients := []*stack.Process{a, a, b, b}
	for seed := range interleavings {
		history := interleave(t, clients, fmt.Sprint("s", seed), uint64(seed))
		result := porcupine.CheckOperationsTimeout(sessionModel(), history, time.Minute)
		require.Equal(t, porcupine.Ok, result, "seed %d: %s", seed, describe(history))
	}
	t.Cleanup(func() {
		for name, p := range map[string]*stack.Process{"a": a, "b": b} {
			for line := range strings.SplitSeq(p.Log.String(), "\n") {
				if t.Failed() && !strings.Contains(line, "msg=request") {
					t.Log(name, line)
				}
			}
		}
	})
	for _, p := range []*stack.Process{a, b} {
		p.WaitNoLag(t)
	}
	out := a.Done(t, "projections", "verify")
	require.Contains(t, out, "recent: ")
	require.Contains(t, out, "audit: ")
}

// interleave lets the clients make random calls to a session, reads its branches when they are done, and returns the
// calls with their answers. Which of the forks with one request made the branch is not for the model, since the branch
// is decided before: exactly one says so.
func interleave(t *testing.T, clients []*stack.Process, id string, seed uint64) (history []porcupine.Operation) {
	t.Helper()
	var mu sync.Mutex
	began := time.Now()
	made, found := map[string]int{}, map[string]int{}
	g, ctx := errgroup.WithContext(t.Context())
	for n, p := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		g.Go(func() error {
			for range 7 {
				c := randomCall(rng)
				calls, act := []call{c}, perform
				if c.kind == "batch" {
					calls = []call{{kind: "whole", request: "r1"}, {kind: "whole", request: "r2"}}
					act = performBatch
				}
				from := time.Since(began)
				replies, err := act(ctx, p, id, c)
				to := time.Since(began)
				if err != nil {
					return fmt.Errorf("%+v: %w", c, err)
				}
				mu.Lock()
				for i, r := range replies {
					if c.kind == "fork" && r.code == "" {
						found[c.request] = 1
						if !r.duplicate {
							made[c.request]++
						}
						r.status, r.duplicate = http.StatusCreated, false
					}
					// Each line of a batch is a call of its own, which the others may come between.
					history = append(history, porcupine.Operation{ClientId: n + i*len(clients),
						Input: calls[i], Output: r, Call: from.Nanoseconds(), Return: to.Nanoseconds()})
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait(), "seed %d", seed)
	require.Equal(t, found, made, "seed %d: %s", seed, describe(history))
	for n, request := range forks {
		c := call{kind: "branch", request: request}
		from := time.Since(began)
		replies, err := perform(t.Context(), clients[n], id, c)
		require.NoError(t, err)
		history = append(history, porcupine.Operation{Input: c, Output: replies[0], Call: from.Nanoseconds(),
			Return: time.Since(began).Nanoseconds()})
	}
	return history
}

// forks are the requests that fork a session.
var forks = []string{"f1", "f2", "f3"}

// branchOf returns the branch of a fork's request.
func branchOf(id, request string) string { return id + "-" + request }

func randomCall(rng *rand.Rand) call {
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	c := call{kind: one("start", "start", "start", "whole", "whole", "batch", "finalize", "finalize", "correct",
		"correct", "link", "redact", "reset", "describe", "fork", "fork", "summarise", "summarise", "summaries",
		"summaries", "read", "read", "read", "look")}
	if rng.IntN(75) == 0 {
		c.kind = "erase"
	}
	switch c.kind {
	case "describe":
		c.title = one("t1", "t2")
	case "start", "whole", "finalize":
		c.request = one("r1", "r2")
	case "fork":
		c.request = one(forks...)
	case "redact":
		c.request = one("r1", "r2", "c1", "c2")
	case "correct":
		c.request, c.of = one("c1", "c2"), one("r1", "r2", "c1")
	case "summarise":
		c.request, c.of = one("m1", "m2"), one("r1", "r2", "r2", "c1", "c2")
	case "link":
		c.identity = one("alice", "bob")
	}
	if c.request == c.of {
		c.of = "r2"
	}
	if c.kind != "correct" && c.kind != "summarise" {
		c.of = ""
	}
	return c
}

// perform makes a call and reads the answer as the model sees it.
func perform(ctx context.Context, p *stack.Process, id string, c call) ([]reply, error) {
	turn := func(request string) string {
		return stack.SessionPath(id) + "/turns/" + events.TurnID(id, request).String()
	}
	method, path, body := http.MethodPost, "", map[string]any{}
	switch c.kind {
	case "start":
		path, body = stack.SessionPath(id)+"/turns",
			map[string]any{"request_id": c.request, "question_neutral": "q " + c.request}
	case "whole":
		path, body = stack.SessionPath(id)+"/turns", map[string]any{"request_id": c.request,
			"question_neutral": "q " + c.request, "answer_neutral": "a " + c.request}
	case "describe":
		method, path, body = http.MethodPatch, stack.SessionPath(id), map[string]any{"title": c.title}
	case "look":
		method, path, body = http.MethodGet, stack.SessionPath(id), nil
	case "finalize":
		path, body = turn(c.request)+"/finalize", map[string]any{"answer_neutral": "a " + c.request}
	case "redact":
		path = turn(c.request) + "/redact"
	case "correct":
		path, body = turn(c.of)+"/correct", map[string]any{"request_id": c.request, "answer_neutral": "b " + c.request}
	case "link":
		method, path, body = http.MethodPut, stack.SessionPath(id)+"/identity",
			map[string]any{"identity_id": c.identity}
	case "reset":
		path = stack.SessionPath(id) + "/reset"
	case "fork":
		path, body = stack.SessionPath(id)+"/fork",
			map[string]any{"request_id": c.request, "session_id": branchOf(id, c.request)}
	case "summarise":
		path, body = stack.SessionPath(id)+"/summaries", map[string]any{"request_id": c.request,
			"through_turn_id": events.TurnID(id, c.of).String(), "summary_neutral": c.request}
	case "summaries":
		method, path, body = http.MethodGet, stack.SessionPath(id)+"/summaries", nil
	case "branch":
		method, path, body = http.MethodGet, stack.SessionPath(branchOf(id, c.request))+"/turns?status=all", nil
	case "read":
		method, path, body = http.MethodGet, stack.SessionPath(id)+"/turns?status=all", nil
	case "erase":
		method, path = http.MethodDelete, stack.SessionPath(id)
	}
	var in any
	if body != nil {
		in = body
	}
	status, out, err := p.Call(ctx, method, path, in)
	for c.kind == "summarise" && status == http.StatusServiceUnavailable {
		status, out, err = p.Call(ctx, method, path, in) // it was voided while the call repeated it
	}
	if err != nil {
		return nil, err
	}
	if status >= http.StatusInternalServerError {
		return nil, fmt.Errorf("status %d: %v", status, out)
	}
	r := reply{status: status}
	r.code, _ = out["code"].(string)
	r.duplicate, _ = out["duplicate"].(bool)
	if c.kind == "reset" {
		r.duplicate = false // the model does not know which reset had an effect
	}
	if from, is := out["forked_from"].(map[string]any); is && from["turn_id"] != nil {
		r.through = requestOf(id, from["turn_id"].(string))
	}
	if c.kind == "read" || c.kind == "branch" {
		var turns []string
		for _, x := range out["turns"].([]any) {
			t := x.(map[string]any)
			turns = append(turns, t["request_id"].(string)+" "+t["status"].(string))
		}
		slices.Sort(turns)
		r.turns = strings.Join(turns, ", ")
	}
	if turns, is := out["turns"].(float64); is && c.kind == "summarise" {
		r.summaries = covers(c.request, int(turns))
	}
	if c.kind == "summaries" {
		var all []string
		for _, x := range out["summaries"].([]any) {
			m := x.(map[string]any)
			all = append(all, covers(m["summary_neutral"].(string), int(m["turns"].(float64))))
		}
		slices.Sort(all)
		r.summaries = strings.Join(all, ", ")
	}
	if c.kind == "look" {
		r.title, _ = out["title"].(string)
		r.identity, _ = out["identity_id"].(string)
	}
	return []reply{r}, nil
}

// requestOf returns the request of a turn.
func requestOf(id, turn string) string {
	for _, request := range []string{"r1", "r2", "c1", "c2"} {
		if events.TurnID(id, request).String() == turn {
			return request
		}
	}
	return turn
}

// performBatch records two whole turns with one call, and returns what it said of each.
func performBatch(ctx context.Context, p *stack.Process, id string, _ call) ([]reply, error) {
	var body []byte
	for _, request := range []string{"r1", "r2"} {
		line, err := json.Marshal(map[string]any{"session_id": id, "request_id": request,
			"question_neutral": "q " + request, "answer_neutral": "a " + request})
		if err != nil {
			return nil, err
		}
		body = append(append(body, line...), '\n')
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/v1/turns", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Content-Type", "application/x-ndjson")
	res, err := http.DefaultClient.Do(ask)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", res.StatusCode)
	}
	var out []reply
	for in := json.NewDecoder(res.Body); len(out) < 2; {
		var line struct {
			HTTPStatus int `json:"http_status"`
			Code       string
			Duplicate  bool
			Detail     string
		}
		if err := in.Decode(&line); err != nil {
			return nil, err
		}
		if line.HTTPStatus >= http.StatusInternalServerError {
			return nil, fmt.Errorf("status %d: %s", line.HTTPStatus, line.Detail)
		}
		out = append(out, reply{status: line.HTTPStatus, code: line.Code, duplicate: line.Duplicate})
	}
	return out, nil
}

func describe(history []porcupine.Operation) string {
	var out strings.Builder
	for _, o := range history {
		_, _ = fmt.Fprintf(&out, "\n%d [%d %d] %+v -> %+v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
	}
	return out.String()
}
