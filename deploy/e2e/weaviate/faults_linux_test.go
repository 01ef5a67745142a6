package weaviate_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections/index/weaviate"
)

// crew is three processes that feed an index, and a client that records and redacts turns.
type crew struct {
	t         *testing.T
	weaviate  *weaviatetest.Server
	processes []*stack.Process
	start     func() *stack.Process

	mu sync.Mutex
	// live are the turns that are not redacted, by their ids, each with its session.
	live map[string]string
	over chan struct{}
	done sync.WaitGroup
}

// sessionsOfCrew is how many sessions the client writes.
const sessionsOfCrew = 10

// While a client records and redacts turns, three processes feed the index, and one thing after the other fails: a
// process, the Weaviate, its disk. Nothing that was acknowledged is missing from the index in the end, and nothing else
// is in it.
func TestProcessesThatFeedTheIndexSurviveFaults(t *testing.T) {
	t.Parallel()
	away := 2 * time.Second
	if stack.Long() {
		away = time.Minute
	}
	c := newCrew(t)
	s := c.weaviate
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"a process is killed", func() {
			c.processes[2].Kill(t)
			c.processes[2] = c.start()
		}},
		{"Weaviate hangs", func() { s.Pause(); <-time.After(away); s.Resume() }},
		{"Weaviate is away", func() { s.Kill(); <-time.After(away); s.Restart() }},
		{"its disk is full", func() {
			free := stack.FillDisk(t, s.Dir())
			<-time.After(away)
			free()
			s.Restart() // it may have ended
		}},
		{"it is restored from a copy, and a process is killed", func() {
			s.Save()
			<-time.After(time.Second)
			s.Back()
			c.processes[1].Kill(t)
			c.processes[1] = c.start()
		}},
		{"it makes collections by itself, and is emptied", func() {
			s.MakesCollections()
			s.Empty()
		}},
	} {
		<-time.After(500 * time.Millisecond)
		fault.do()
		t.Log(fault.name, c.count())
	}
	close(c.over)
	c.done.Wait()
	c.agree()
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	dir, _ := stack.MountSmallDisk(t, 1024)
	c := &crew{t: t, weaviate: weaviatetest.StartIn(t, dir), live: map[string]string{}, over: make(chan struct{})}
	nats, e := stack.FreeAddress(t), embeddingstest.Start(t)
	env := environment(c.weaviate, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t))
	c.processes = append(c.processes, stack.Serve(t, append(stack.ServeNATS(nats), env...), "--roles", everyRole))
	c.start = func() *stack.Process {
		return stack.Serve(t, append(stack.JoinNATS(nats), env...), "--roles", "index")
	}
	for range 2 {
		c.processes = append(c.processes, c.start())
	}
	for i := range sessionsOfCrew {
		c.processes[0].LinkIdentity(t, crewSession(i), "ada")
	}
	for w := range 2 {
		c.done.Go(func() { c.write(w) })
	}
	return c
}

func crewSession(i int) string { return fmt.Sprint("s", i%sessionsOfCrew) }

// write records turns, and redacts each third one a little later.
func (c *crew) write(writer int) {
	p := c.processes[0]
	ctx := context.WithoutCancel(c.t.Context())
	call := func(path string, in any) string {
		for !c.t.Failed() {
			status, out, err := p.Call(ctx, http.MethodPost, path, in)
			if err == nil && status < http.StatusMultipleChoices {
				id, _ := out["turn_id"].(string)
				return id
			}
		}
		return ""
	}
	var mine []string
	for i := 0; ; i++ {
		select {
		case <-c.over:
			return
		case <-time.After(5 * time.Millisecond):
		}
		session := crewSession(i)
		turns := stack.SessionPath(session) + "/turns"
		id := call(turns, body{"request_id": fmt.Sprint(writer, "-", i), "question_neutral": question(i)})
		call(turns+"/"+id+"/finalize", body{"answer_neutral": fmt.Sprint("under stone ", i)})
		c.mu.Lock()
		c.live[id] = session
		c.mu.Unlock()
		if mine = append(mine, id); i%3 == 2 {
			gone := mine[i-2]
			c.mu.Lock()
			path := stack.SessionPath(c.live[gone]) + "/turns/" + gone + "/redact"
			delete(c.live, gone)
			c.mu.Unlock()
			call(path, nil)
		}
	}
}

func (c *crew) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

// agree compares what Weaviate holds, what searches find, and what verify says, with what was acknowledged.
func (c *crew) agree() {
	t, p, client := c.t, c.processes[0], c.weaviate.Client()
	t.Helper()
	hang.Until(t, func() bool { return !behind(t, p) })
	want := map[string]bool{}
	for id := range c.live {
		want[id] = true
	}
	// The index finds out by itself what its store has lost, and sweeps every 15 s.
	hang.Until(t, func() bool {
		held := c.held(client)
		for id := range want {
			if !held[id] {
				return false
			}
		}
		return len(held) == len(want)
	}, "%d turns are in the index, and %d in the log", len(c.held(client)), len(want))
	for i := range sessionsOfCrew {
		turns, _ := search(t, p, body{
			"query": "key", "mode": "meaning", "session_id": crewSession(i), "limit": 100,
		})
		require.NotEmpty(t, turns)
		for _, id := range turns {
			require.Equal(t, crewSession(i), c.live[id])
		}
	}
	code, out, errs := p.Run(t, "projections", "verify", "index")
	require.Equal(t, stack.ExitDone, code, out+errs)
}

// held returns the turns of the one collection that Weaviate has; nil if it has several.
func (c *crew) held(w *weaviate.Weaviate) map[string]bool {
	all, err := w.List(c.t.Context())
	if err != nil || len(all) != 1 {
		return nil
	}
	out := map[string]bool{}
	for after := uuid.Nil; ; {
		page, err := w.Page(c.t.Context(), all[0].Name, after, 1000)
		if err != nil {
			return nil
		}
		for _, o := range page {
			if after = o.ID; o.Session != "" {
				out[o.ID.String()] = true
			}
		}
		if len(page) < 1000 {
			return out
		}
	}
}
