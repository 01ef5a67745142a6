package jetlog_test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
)

// Another process writes to a replicated log in the moment in which a restore takes it away. The servers of the cluster
// are some way apart, so that the leader has taken events in which the stream's state does not show yet. Either the
// restore is refused and all that was acknowledged is in the log, or nothing was acknowledged.
func TestNothingIsAcknowledgedIntoALogThatIsTakenAway(t *testing.T) {
	t.Parallel()
	c := natstest.StartFragileCluster(t)
	nc := c.Connect(t)
	const apart = 15 * time.Millisecond
	tries, wait := 12, 5*apart
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		tries = 100
	}
	for try := range tries {
		c.Delay(0)
		restoring := c.LogOn(t, nc, 1)
		other := openOn(t, c.Connect(t), jetlog.Config{Replicas: 3, Deadline: time.Second})
		c.Delay(apart)
		begun := must.Get(nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.CREATED.TURNLEDGER-RESTORING"))(t)
		writes := acknowledgedAfter(t, other, begun, wait)
		err := operate.On(restoring).Vacate(t.Context())
		acknowledged := writes()
		t.Logf("try %d: %d acknowledged, %v", try, len(acknowledged), err)
		c.Delay(0)
		// The next writes begin nearer to the moment in which the log is taken away.
		if err == nil {
			wait -= apart / 2
			require.Empty(t, acknowledged, "the log with them is gone")
			deleteStream(t, nc, "TURNLEDGER-RESTORING")
			continue
		}
		wait += apart / 2
		require.ErrorIs(t, err, jetlog.ErrNotEmpty)
		kept := c.Log(t, 1)
		for _, session := range acknowledged {
			require.Len(t, logtest.Read(t, kept, session), 1)
		}
		deleteStream(t, nc, events.StreamName(0))
	}
}

// acknowledgedAfter begins a few writes, one after the other, when a message comes. The function that it returns waits
// for them, and returns the sessions whose writes were acknowledged.
func acknowledgedAfter(t *testing.T, log *jetlog.Log, begin *nats.Subscription, wait time.Duration) func() []string {
	const writes = 16
	var mu sync.Mutex
	var all sync.WaitGroup
	var out []string
	all.Go(func() {
		if _, err := begin.NextMsg(time.Minute); !assert.NoError(t, err) {
			return
		}
		<-time.After(wait)
		for i := range writes {
			<-time.After(time.Millisecond)
			all.Go(func() {
				session := fmt.Sprint("s", i)
				_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact(session, "r")}})
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					out = append(out, session)
				}
			})
		}
	})
	return func() []string {
		all.Wait()
		return out
	}
}

func deleteStream(t *testing.T, nc *nats.Conn, name string) {
	t.Helper()
	must.Get(nc.Request("$JS.API.STREAM.DELETE."+name, nil, 10*time.Second))(t)
}

// A process looks whether a backup is being restored, and is slow to look for the log. Meanwhile a restore begins, and
// takes the log away. The process opens no log of its own in its place.
func TestALogIsNotMadeInTheMiddleOfARestore(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	restoring := openOn(t, connectTo(t, w.server), jetlog.Config{})
	waits, mayGoOn := make(chan struct{}), make(chan struct{})
	wait := sync.OnceFunc(func() { close(waits); <-mayGoOn })
	w.do(func(b []byte) {
		if bytes.Contains(b, []byte("STREAM.INFO."+events.StreamName(0))) {
			wait()
		}
	}, nil)
	nc := connectTo(t, w)
	opened := make(chan error, 1)
	go func() {
		_, err := jetlog.Open(t.Context(), nc, jetlog.Config{})
		opened <- err
	}()
	<-waits
	require.NoError(t, operate.On(restoring).Vacate(t.Context()))
	close(mayGoOn)
	require.ErrorIs(t, <-opened, jetlog.ErrStream)
}

// A restore that fails deletes what it took in, and no stream that somebody else made in its place.
func TestAFailedRestoreDeletesNoStreamOfOthers(t *testing.T) {
	t.Parallel()
	from := natstest.Log(t, 1)
	logtest.Add(t, from, "s", "r", "text")
	s := natstest.Server(t)
	restoring := natstest.LogOn(t, s, 1)
	require.NoError(t, operate.On(restoring).Vacate(t.Context()))
	js := natstest.JetStream(t, natstest.Connect(t, s))
	elsewhere := jetstream.StreamConfig{Name: events.StreamName(0), Subjects: []string{"elsewhere"}}
	must.Get(js.CreateStream(t.Context(), elsewhere))(t)
	must.Get(js.Publish(t.Context(), "elsewhere", []byte("acknowledged")))(t)
	require.ErrorContains(t, operate.On(restoring).Restore(t.Context(), reader(copyOf(t, from)), whole), "in use")
	kept := must.Get(js.Stream(t.Context(), events.StreamName(0)))(t)
	require.EqualValues(t, 1, kept.CachedInfo().State.Msgs)
}
