package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
		result := porcupine.CheckOperationsTimeout(sessionModel(), history, hang.Limit)
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
	must.Contain(t, a.Done(t, "projections", "verify"), "recent: ", "audit: ")
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
		replies := must.Get(perform(t.Context(), clients[n], id, c))(t)
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

// call is an operation on a session; request and of are turns by their request ids. The request of a fork, and of a
// reading of the branch, is that of the fork. That of a summary is its own, and of is the last turn that it is to
// cover.
type call struct{ kind, request, of, identity, title string }

// reply is what the API said: the status, the code of a refusal, whether it was a duplicate, for a reading all turns
// with their states, for a look at the session its title and identity, for a fork the last turn that is shared, and for
// summaries how many turns each covers.
type reply struct {
	status          int
	code            string
	duplicate       bool
	turns           string
	title, identity string
	through         string
	summaries       string
}

// modelled is the state of a session in the model.
type modelled struct {
	known, erased bool
	identity      string
	title         string
	turns         map[string]modelTurn
	// hidden is the place of the last turn that a reset has hidden.
	hidden   int
	branches map[string]modelBranch
	// summaries are the turns that each summary covers, by its request.
	summaries map[string]string
}

// modelTurn is a version of a turn. All versions have the place of the first; answered is that the first was.
type modelTurn struct {
	status, replaces, by string
	place                int
	answered             bool
}

// modelBranch is a branch: the last turn that it shares, and all that it shares, by their first versions.
type modelBranch struct{ through, shares string }

func (m modelled) clone() modelled {
	m.turns, m.branches, m.summaries = maps.Clone(m.turns), maps.Clone(m.branches), maps.Clone(m.summaries)
	return m
}

// key returns the session's state as one line, by which states are compared.
func (m modelled) key() string {
	return fmt.Sprintf("%v %v %q %q %s %v %d %v %v", m.known, m.erased, m.identity, m.title, m.show(), m.turns,
		m.hidden, m.branches, m.summaries)
}

// show returns what a reading of all turns shows.
func (m modelled) show() string { return m.showThose(func(string) bool { return true }) }

// showBranch returns what a reading of all turns of a branch shows: the shared turns, as they are now.
func (m modelled) showBranch(request string) string {
	shares := strings.Fields(m.branches[request].shares)
	return m.showThose(func(first string) bool { return slices.Contains(shares, first) })
}

// showThose returns all versions of some turns, which are named by their first versions.
func (m modelled) showThose(those func(first string) bool) string {
	if m.erased {
		return ""
	}
	var out []string
	for id, t := range m.turns {
		if those(m.first(id)) {
			out = append(out, id+" "+t.status)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func refused(status int, code string) reply { return reply{status: status, code: code} }

// step returns the session after a call, and what the API must say.
func (m modelled) step(c call) (modelled, reply) {
	t, there := m.turns[c.request]
	switch {
	case c.kind == "read":
		return m, reply{status: http.StatusOK, turns: m.show()}
	case c.kind == "branch":
		return m, reply{status: http.StatusOK, turns: m.showBranch(c.request)}
	case c.kind == "summaries":
		return m, reply{status: http.StatusOK, summaries: m.standing()}
	case c.kind == "look" && m.erased:
		return m, reply{status: http.StatusOK, identity: m.identity} // whose it was stays known
	case c.kind == "look":
		return m, reply{status: http.StatusOK, title: m.title, identity: m.identity}
	case c.kind == "erase" && !m.known:
		return m, refused(http.StatusNotFound, "session_not_found")
	case c.kind == "erase":
		m.erased = true
		return m, reply{status: http.StatusAccepted}
	case m.erased:
		return m, refused(http.StatusGone, "session_erased")
	}
	m = m.clone()
	switch c.kind {
	case "link":
		if m.identity != "" && m.identity != c.identity {
			return m, refused(http.StatusConflict, "session_linked_elsewhere")
		}
		linked := m.identity == c.identity
		m.identity, m.known = c.identity, true
		return m, reply{status: http.StatusOK, duplicate: linked}
	case "start":
		if there {
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		m.turns[c.request], m.known = modelTurn{status: "pending", place: m.places() + 1}, true
		return m, reply{status: http.StatusCreated}
	case "whole":
		switch {
		case !there:
			m.turns[c.request], m.known = modelTurn{status: "finalized", place: m.places() + 1, answered: true}, true
			return m, reply{status: http.StatusCreated}
		case t.status != "pending":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		t.status, t.answered = "finalized", true
		m.turns[c.request] = t
	case "reset":
		m.hidden = m.places()
	case "fork":
		return m.fork(c)
	case "summarise":
		return m.summarise(c)
	case "describe":
		m.title, m.known = c.title, true
	case "finalize":
		switch {
		case !there:
			return m, refused(http.StatusNotFound, "turn_not_started")
		case t.status == "redacted":
			return m, refused(http.StatusConflict, "turn_redacted")
		case t.status != "pending":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		t.status, t.answered = "finalized", true
		m.turns[c.request] = t
	case "redact":
		switch {
		case !there:
			return m, refused(http.StatusNotFound, "turn_not_found")
		case t.status == "redacted":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		m.redact(c.request)
	case "correct":
		return m.correct(c)
	}
	return m, reply{status: http.StatusOK}
}

// places returns the place of the last turn.
func (m modelled) places() (last int) {
	for _, t := range m.turns {
		last = max(last, t.place)
	}
	return last
}

// first returns the first version of a turn.
func (m modelled) first(id string) string {
	for m.turns[id].replaces != "" {
		id = m.turns[id].replaces
	}
	return id
}

// fork makes the branch of a request, if there is none: it ends with the last finalized turn that prompts show.
func (m modelled) fork(c call) (modelled, reply) {
	if !m.known {
		return m, refused(http.StatusNotFound, "session_not_found")
	}
	b, forked := m.branches[c.request]
	if !forked {
		through := 0
		for id, t := range m.turns {
			if t.status == "finalized" && t.place > max(through, m.hidden) {
				through, b.through = t.place, id
			}
		}
		var shares []string
		for id, t := range m.turns {
			if t.answered && t.place <= through && t.replaces == "" {
				shares = append(shares, id)
			}
		}
		slices.Sort(shares)
		b.shares = strings.Join(shares, " ")
		m.branches[c.request] = b
	}
	return m, reply{status: http.StatusCreated, through: b.through}
}

// covered returns the turns that prompts show up to a place, in their order.
func (m modelled) covered(place int) string {
	shown := map[int]string{}
	for id, t := range m.turns {
		if t.place > m.hidden && t.place <= place && (t.status == "finalized" || t.status == "pending") {
			shown[t.place] = id
		}
	}
	var ids []string
	for _, at := range slices.Sorted(maps.Keys(shown)) {
		ids = append(ids, shown[at])
	}
	return strings.Join(ids, " ")
}

// stands reports whether the summary of a request stands: prompts show the turns that it covers, and none between.
func (m modelled) stands(request string) bool {
	ids := strings.Fields(m.summaries[request])
	return !m.erased && len(ids) > 0 && m.covered(m.turns[ids[len(ids)-1]].place) == m.summaries[request]
}

// standing returns the summaries that stand, each with the number of its turns.
func (m modelled) standing() string {
	var out []string
	for request, ids := range m.summaries {
		if m.stands(request) {
			out = append(out, covers(request, len(strings.Fields(ids))))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func covers(request string, turns int) string { return fmt.Sprintf("%s covers %d", request, turns) }

// summarise records a summary; a request whose summary is void makes no other.
func (m modelled) summarise(c call) (modelled, reply) {
	if m.stands(c.request) {
		said := covers(c.request, len(strings.Fields(m.summaries[c.request])))
		return m, reply{status: http.StatusOK, duplicate: true, summaries: said}
	}
	last, there := m.turns[c.of]
	switch {
	case !there:
		return m, refused(http.StatusNotFound, "turn_not_found")
	case last.status != "finalized":
		return m, refused(http.StatusConflict, "turn_"+last.status)
	case last.place <= m.hidden:
		return m, refused(http.StatusUnprocessableEntity, "invalid_argument")
	}
	ids := m.covered(last.place)
	for id := range strings.FieldsSeq(ids) {
		if m.turns[id].status == "pending" {
			return m, refused(http.StatusConflict, "turn_pending")
		}
	}
	if m.summaries[c.request] != "" {
		for _, t := range m.turns {
			if t.status == "redacted" && t.place > m.hidden && t.place <= last.place {
				return m, refused(http.StatusConflict, "turn_redacted")
			}
		}
		return m, refused(http.StatusConflict, "turn_replaced")
	}
	m.summaries[c.request] = ids
	return m, reply{status: http.StatusCreated, summaries: covers(c.request, len(strings.Fields(ids)))}
}

// redact takes all versions of a turn.
func (m modelled) redact(id string) {
	for id = m.first(id); id != ""; {
		t := m.turns[id]
		t.status = "redacted"
		m.turns[id] = t
		id = t.by
	}
}

func (m modelled) correct(c call) (modelled, reply) {
	if t, there := m.turns[c.request]; there {
		if t.replaces == c.of {
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		return m, refused(http.StatusConflict, "request_id_in_use")
	}
	old, there := m.turns[c.of]
	if !there {
		return m, refused(http.StatusNotFound, "turn_not_found")
	}
	if old.status != "finalized" {
		return m, refused(http.StatusConflict, "turn_"+old.status)
	}
	old.status, old.by = "replaced", c.request
	m.turns[c.of] = old
	m.turns[c.request] = modelTurn{status: "finalized", replaces: c.of, place: old.place, answered: true}
	return m, reply{status: http.StatusOK}
}

// sessionModel returns a session as porcupine checks it.
func sessionModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			return modelled{turns: map[string]modelTurn{}, branches: map[string]modelBranch{},
				summaries: map[string]string{}}
		},
		Step: func(state, input, output any) (bool, any) {
			next, want := state.(modelled).step(input.(call))
			return want == output.(reply), next
		},
		Equal:             func(a, b any) bool { return a.(modelled).key() == b.(modelled).key() },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
		DescribeState:     func(state any) string { return state.(modelled).key() },
	}
}
