//go:build linux

package deployment_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// turnLoad is what users do while a cluster breaks. Writers record turns, and ask again until each half
// is acknowledged. Readers compare every answer with what was acknowledged, and what was shown, before
// they asked. The load ends with its test.
type turnLoad struct {
	seed    uint64
	servers []*stack.Process
	client  *http.Client
	pace    *rate.Limiter // of turns

	stop    chan struct{}
	all     sync.WaitGroup
	turns   atomic.Int64
	reads   atomic.Int64
	refused atomic.Int64 // reads that were answered with 503
	probes  int

	mu       sync.Mutex
	sessions []*writtenSession
}

// writtenSession is a session of one writer. Its halves are question 0, answer 0, question 1, and so on.
type writtenSession struct {
	id string

	mu sync.Mutex
	// How many halves were acknowledged, and the most that a reading has shown.
	acknowledged, shown int
	position            string // of the last half that was acknowledged
}

const (
	// partitions of the log.
	partitions = 8
	// sessionTurns is how many turns a session gets before its writer begins another.
	sessionTurns = 30
)

// startLoad begins the load: turns a second that are asked for, by so many writers.
func startLoad(t *testing.T, seed uint64, perSecond float64, writers int, servers ...*stack.Process) *turnLoad {
	t.Helper()
	s := &turnLoad{
		seed: seed, servers: servers, pace: rate.NewLimiter(rate.Limit(perSecond), writers), stop: make(chan struct{}),
		client: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 4 * writers}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	for _, p := range servers {
		p.Client = s.client
	}
	for w := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		s.all.Go(func() { s.reportError(t, s.write(t.Context(), w, rng)) })
	}
	for r := range 2 {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+r)))
		s.all.Go(func() { s.reportError(t, s.read(t.Context(), rng)) })
	}
	return s
}

// reportError fails the test, unless that is over.
func (*turnLoad) reportError(t *testing.T, err error) {
	if t.Context().Err() == nil {
		assert.NoError(t, err)
	}
}

// stopping reports whether the load has been asked to end.
func (s *turnLoad) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

func (s *turnLoad) write(ctx context.Context, writer int, rng *rand.Rand) error {
	for n := 0; ; n++ {
		x := &writtenSession{id: fmt.Sprintf("session-%d-%d", writer, n)}
		s.mu.Lock()
		s.sessions = append(s.sessions, x)
		s.mu.Unlock()
		for turn := range sessionTurns {
			if s.stopping() || s.pace.Wait(ctx) != nil {
				return nil
			}
			for half := 2 * turn; half < 2*turn+2; half++ {
				position, err := s.record(ctx, x.id, half, rng)
				if err != nil {
					return err
				}
				x.mu.Lock()
				x.acknowledged, x.position = half+1, position
				x.mu.Unlock()
			}
			s.turns.Add(1)
		}
	}
}

// record writes a half, first at any server, and where it is not taken at the next, until it is. Every
// second session is linked to an identity.
func (s *turnLoad) record(ctx context.Context, id string, half int, rng *rand.Rand) (position string, err error) {
	path, body := halfRequest(id, half)
	if half == 0 && rng.IntN(2) == 0 {
		body["identity_id"] = "of " + id
	}
	at := rng.IntN(len(s.servers))
	for ; ctx.Err() == nil; at++ {
		p := s.servers[at%len(s.servers)]
		status, out, err := call(ctx, p, path, body)
		switch {
		case err == nil && (status == http.StatusOK || status == http.StatusCreated):
			if out["turn_id"] != events.TurnID(id, fmt.Sprint("r", half/2)).String() {
				return "", fmt.Errorf("seed %d: %s: half %d is turn %v", s.seed, id, half, out["turn_id"])
			}
			return out["position"].(string), nil
		case err == nil && status != http.StatusServiceUnavailable:
			return "", fmt.Errorf("seed %d: %s: half %d is answered with %d %v", s.seed, id, half, status, out["code"])
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return "", ctx.Err()
}

// halfRequest returns the request that records a half.
func halfRequest(id string, half int) (path string, body map[string]any) {
	request := fmt.Sprint("r", half/2)
	if half%2 == 0 {
		return stack.SessionPath(id) + "/turns",
			map[string]any{"request_id": request, "question_neutral": halfText(half)}
	}
	return stack.SessionPath(id) + "/turns/" + events.TurnID(id, request).String() + "/finalize",
		map[string]any{"answer_neutral": halfText(half)}
}

func halfText(half int) string {
	return fmt.Sprintf("%s %d", []string{"question", "answer"}[half%2], half/2)
}

// call posts a body, or gets where there is none.
func call(ctx context.Context, p *stack.Process, path string, body map[string]any) (int, map[string]any, error) {
	if body == nil {
		return p.Call(ctx, http.MethodGet, path, nil)
	}
	return p.Call(ctx, http.MethodPost, path, body)
}

// read reads sessions at any server, some twenty times a second.
func (s *turnLoad) read(ctx context.Context, rng *rand.Rand) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !s.stopping() {
		select {
		case <-tick.C:
		case <-s.stop:
		}
		x := s.anySession(rng)
		if x == nil {
			continue
		}
		p := s.servers[rng.IntN(len(s.servers))]
		if _, err := s.readSession(ctx, p, x, rng.IntN(4)); err != nil {
			return err
		}
	}
	return nil
}

// anySession returns one of the newest sessions.
func (s *turnLoad) anySession(rng *rand.Rand) *writtenSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 {
		return nil
	}
	return s.sessions[len(s.sessions)-1-rng.IntN(min(100, len(s.sessions)))]
}

// readSession reads a session in one of four ways and checks that it has not gone back. It reports
// whether the reading was answered; 503 is right at any time.
func (s *turnLoad) readSession(ctx context.Context, p *stack.Process, x *writtenSession, way int) (answered bool,
	err error) {
	x.mu.Lock()
	least, position := max(x.acknowledged, x.shown), x.position
	x.mu.Unlock()
	path, body := stack.SessionPath(x.id)+"/turns?status=all&limit=10000", map[string]any(nil)
	if way%2 == 1 {
		path, body = stack.SessionPath(x.id)+"/context?",
			map[string]any{"message": "now", "include_pending": true, "max_messages": 100_000}
	}
	if way >= 2 && position != "" {
		path += "&min_position=" + position
	}
	status, out, err := call(ctx, p, path, body)
	s.reads.Add(1)
	if err != nil || status == http.StatusServiceUnavailable {
		s.refused.Add(1)
		return false, nil // no answer is none that is wrong
	}
	if status != http.StatusOK {
		return false, fmt.Errorf("seed %d: %s is answered with %d %v", s.seed, path, status, out["code"])
	}
	shown, err := halves(x.id, out)
	switch {
	case err != nil:
		return true, fmt.Errorf("seed %d: %w", s.seed, err)
	case shown < least:
		return true, fmt.Errorf("seed %d: STALE: %s of %s shows %d halves, and %d were acknowledged or shown before",
			s.seed, path, p.URL, shown, least)
	}
	x.mu.Lock()
	x.shown = max(x.shown, shown)
	x.mu.Unlock()
	return true, nil
}

// halves counts what a list of turns or a context shows. It checks that this is the session from its
// beginning, each half once and in its place.
func halves(id string, out map[string]any) (n int, err error) {
	if messages, ok := out["messages"].([]any); ok {
		for i, m := range messages[:len(messages)-1] {
			if m.(map[string]any)["content"] != halfText(i) {
				return 0, fmt.Errorf("%s: message %d is %v", id, i, m)
			}
		}
		return len(messages) - 1, nil
	}
	turns := out["turns"].([]any)
	for i, x := range turns {
		turn := x.(map[string]any)
		final := turn["status"] == "finalized"
		if turn["turn_id"] != events.TurnID(id, fmt.Sprint("r", i)).String() ||
			turn["question_neutral"] != halfText(2*i) ||
			final && turn["answer_neutral"] != halfText(2*i+1) || !final && i < len(turns)-1 {
			return 0, fmt.Errorf("%s: turn %d is %v", id, i, turn)
		}
		n += 2
		if !final {
			n--
		}
	}
	return n, nil
}
