package deployment_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// The roles of a process.
const (
	roleAPI     = "api"
	roleContext = "context"
	roleRecent  = "recent"
	roleAudit   = "audit"
	roleEraser  = "eraser"
	roleChat    = "chat"
)

// deployment has processes of one role each; the log, Redis and PostgreSQL are outside of all of them.
type deployment struct {
	t      *testing.T
	env    []string
	binary string // of the processes that are started from now on
	log    *logWatch

	// calls is read-locked by each call of a user, until its last try has ended.
	calls sync.RWMutex

	mu        sync.RWMutex
	processes map[string][]*stack.Process
	started   []*stack.Process // also those that have ended
}

// newDeployment starts so many processes of each role, and waits until all are ready. env names the
// stores of the views.
func newDeployment(t *testing.T, count map[string]int, env ...string) *deployment {
	t.Helper()
	return newDeploymentOf(t, stack.Binary(t), count, env...)
}

// newDeploymentOf starts a deployment whose processes run a binary of another version.
func newDeploymentOf(t *testing.T, binary string, count map[string]int, env ...string) *deployment {
	t.Helper()
	nats := stack.StartNATS(t, natsserver.Options{})
	f := &deployment{t: t, binary: binary, env: append([]string{"TURNLEDGER_NATS_URL=" + nats.ClientURL(),
		"TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_PARTITIONS=4", "TURNLEDGER_ERASE_RATE=1000"}, env...),
		processes: map[string][]*stack.Process{}, log: watchLog(t, nats.ClientURL(), 4)}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for r, ps := range f.processes {
			for _, p := range ps {
				t.Logf("%s: %s", r, tail(p.Log.String(), 3000))
			}
		}
		for _, p := range f.started {
			if bad := troubles(p.Log.String()); bad != "" {
				t.Logf("%q warned: %s", p.Cmd.Args[1:], tail(bad, 3000))
			}
		}
	})
	for r, n := range count {
		for range n {
			f.processes[r] = append(f.processes[r], f.launch(r))
		}
	}
	for _, p := range f.all() {
		p.WaitReady(t)
	}
	return f
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// troubles returns the lines of a log that warn.
func troubles(log string) (bad string) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "level=INFO") && !strings.Contains(line, "level=DEBUG") {
			bad += line
		}
	}
	return bad
}

func (f *deployment) launch(r string) *stack.Process {
	p := stack.LaunchProgram(f.t, f.binary, stack.FreeAddress(f.t), f.env, "serve", "--roles", r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = append(f.started, p)
	return p
}

// roles in an order that is the same for the same seed.
func (f *deployment) roles() (out []string) {
	for r := range f.processes {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

func (f *deployment) all() (out []*stack.Process) {
	for _, r := range f.roles() {
		out = append(out, f.ofRole(r)...)
	}
	return out
}

// ofRole returns the processes of a role as their callers know them: a process that is away is among
// them until another has taken its place.
func (f *deployment) ofRole(r string) []*stack.Process {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.processes[r])
}

// replace starts another process in the place of the i-th of a role, which has ended.
func (f *deployment) replace(r string, i int) {
	f.t.Helper()
	p := f.launch(r)
	p.WaitReady(f.t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes[r][i] = p
}

// restartEachProcess stops every process of every role, one after the other, and starts another in its place: first
// those that feed views and erase, as docs/operations.md has it for an upgrade.
func (f *deployment) restartEachProcess() {
	f.t.Helper()
	order := []string{roleEraser, roleAudit, roleRecent, roleContext, roleChat, roleAPI}
	for _, r := range f.roles() {
		require.Contains(f.t, order, r)
	}
	for _, r := range order {
		for i, p := range f.ofRole(r) {
			p.Stop(f.t)
			f.replace(r, i)
			// A call that one process turned away must not meet the end of the next (minReadySeconds of a Kubernetes
			// deployment does this).
			f.calls.Lock()
			f.calls.Unlock() //nolint:staticcheck // it waits for the calls under way
		}
	}
}

// killAtRandom kills a process of any role (kill -9) and starts another a moment later,
// until the time is over; at least so many.
func (f *deployment) killAtRandom(rng *rand.Rand, length time.Duration, least int) (kills int) {
	f.t.Helper()
	roles := f.roles()
	for began := time.Now(); kills < least || time.Since(began) < length; kills++ {
		r := roles[(kills+rng.IntN(2))%len(roles)]
		i := rng.IntN(len(f.ofRole(r)))
		f.ofRole(r)[i].Kill(f.t)
		f.wait(time.Duration(rng.IntN(500)) * time.Millisecond)
		f.replace(r, i)
		f.wait(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
	return kills
}

// wait lets time pass under load.
func (f *deployment) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.t.Context().Done():
	}
}
