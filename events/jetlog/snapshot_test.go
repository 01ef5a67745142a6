package jetlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
)

// restore takes a log out of the way, and copies in.
func restore(t *testing.T, empty *jetlog.Log, copies [][]byte) {
	t.Helper()
	require.NoError(t, operate.On(empty).Vacate(t.Context()))
	require.NoError(t, operate.On(empty).Restore(t.Context(), reader(copies), whole))
	require.NoError(t, operate.On(empty).Restored(t.Context()))
	require.NoError(t, operate.On(empty).Restored(t.Context()), "a second time changes nothing")
}

// copyOf takes copies of all partitions.
func copyOf(t *testing.T, log *jetlog.Log) [][]byte {
	t.Helper()
	out := make([][]byte, log.Partitions())
	for k := range out {
		var b bytes.Buffer
		head := logtest.Head(t, log, k)
		require.NoError(t, operate.On(log).Snapshot(t.Context(), k, func(m operate.Moment) (io.Writer, error) {
			require.GreaterOrEqual(t, m.Last, head)
			return &b, nil
		}))
		out[k] = b.Bytes()
	}
	return out
}

func reader(copies [][]byte) func(int) (io.Reader, error) {
	return func(k int) (io.Reader, error) { return bytes.NewReader(copies[k]), nil }
}

// everything returns the positions, ids and times of all events.
func everything(t *testing.T, log *jetlog.Log) (out []string) {
	t.Helper()
	for k := range log.Partitions() {
		for seq := range must.Get(log.Head(t.Context(), k))(t).Seq {
			e, found := must.Two(log.At(t.Context(), events.Position{Partition: k, Seq: seq + 1}))(t)
			if found {
				out = append(out, fmt.Sprint(e.Position, e.ID, e.Time, string(e.Body)))
			}
		}
	}
	return out
}

// A copy that was taken while the log was written to is a log again, on one server and
// on a cluster, with the same positions and times, and gaps where events were erased.
func TestCopyIsTheSameLog(t *testing.T) {
	t.Parallel()
	from := natstest.Log(t, 2)
	for i := range 300 {
		at := logtest.Add(t, from, fmt.Sprint("s", i%7), fmt.Sprint(i), string(bytes.Repeat([]byte("text "), 2000)))
		if i%50 == 7 {
			must.Get(overwrite.On(from).Erase(t.Context(), at))(t)
		}
	}
	want := everything(t, from)
	l := startLoad(t, from, 2)
	l.goesOn(t, 10)
	copies := copyOf(t, from)
	l.goesOn(t, 10)
	l.stop()
	l.all.Wait()

	server, cluster := natstest.Server(t), natstest.StartCluster(t)
	for name, open := range map[string]func() *jetlog.Log{
		"server":  func() *jetlog.Log { return natstest.LogOn(t, server, 2) },
		"cluster": func() *jetlog.Log { return cluster.Log(t, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			empty := open()
			must.Get(empty.Notes(t.Context()))(t)
			restore(t, empty, copies)
			log := open()
			for k := range 2 {
				require.NoError(t, overwrite.On(log).Settle(t.Context(), k))
				require.False(t, log.Created(k).Equal(from.Created(k)),
					"every projection notices that it is another stream")
			}
			got := everything(t, log)
			require.GreaterOrEqual(t, len(got), len(want))
			require.Subset(t, got, want)
			require.Subset(t, everything(t, from), got)
			at := logtest.Add(t, log, "new", "r", "x")
			require.Len(t, logtest.Read(t, log, "new"), 1)
			require.ErrorIs(t, operate.On(log).Vacate(t.Context()), jetlog.ErrNotEmpty)
			require.Len(t, logtest.Read(t, log, "new"), 1)
			require.Equal(t, at.Seq+1, logtest.Add(t, log, "new", "r2", "x").Seq, "it is as it was")
		})
	}
}

// copiedLog returns a log of 20 events with the copies of its two partitions.
func copiedLog(t *testing.T) (log *jetlog.Log, copies [][]byte) {
	t.Helper()
	log = natstest.Log(t, 2)
	for i := range 20 {
		logtest.Add(t, log, fmt.Sprint("s", i), "r", "text")
	}
	return log, copyOf(t, log)
}

// What can't be taken in whole is not taken in at all, and can be tried again.
func TestHalfACopyIsNoLog(t *testing.T) {
	t.Parallel()
	from, copies := copiedLog(t)
	s := natstest.Server(t)
	cut := errors.New("cut")
	for name, bad := range map[string]func() (io.Reader, error){
		"short": func() (io.Reader, error) { return bytes.NewReader(copies[1][:len(copies[1])/2]), nil },
		"broken": func() (io.Reader, error) {
			return io.MultiReader(bytes.NewReader(copies[1][:100]), iotest.ErrReader(cut)), nil
		},
		"flipped": func() (io.Reader, error) {
			b := bytes.Clone(copies[1])
			b[len(b)/2] ^= 1
			return bytes.NewReader(b), nil
		},
		"missing": func() (io.Reader, error) { return nil, cut },
	} {
		empty := natstest.LogOn(t, s, 2)
		require.NoError(t, operate.On(empty).Vacate(t.Context()), name)
		require.Error(t, operate.On(empty).Restore(t.Context(), func(k int) (io.Reader, error) {
			if k == 1 {
				return bad()
			}
			return bytes.NewReader(copies[k]), nil
		}, whole), name)
		require.Empty(t, everything(t, natstest.LogOn(t, s, 2)), name)
	}
	restore(t, natstest.LogOn(t, s, 2), copies)
	require.Equal(t, everything(t, from), everything(t, natstest.LogOn(t, s, 2)))
}

// A server that is still removing the files of a deleted stream keeps those of the next stream that is deleted under
// this name. Such files of a restore that failed are no log either.
func TestFilesThatAFailedRestoreLeavesAreNoLog(t *testing.T) {
	t.Parallel()
	from, copies := copiedLog(t)
	s := natstest.Server(t)
	empty := natstest.LogOn(t, s, 2)
	require.NoError(t, operate.On(empty).Vacate(t.Context()))
	removing := filepath.Join(s.GateDir(), "jetstream", "$G", "streams", ".TURNS-0")
	hang.Until(t, func() bool {
		_, err := os.Stat(removing)
		return errors.Is(err, fs.ErrNotExist)
	}, "the server's own")
	require.NoError(t, os.MkdirAll(filepath.Join(removing, "msgs"), 0o700))
	cut := errors.New("cut")
	require.ErrorIs(t, operate.On(empty).Restore(t.Context(), func(k int) (io.Reader, error) {
		if k == 1 {
			time.AfterFunc(300*time.Millisecond, func() { _ = os.RemoveAll(removing) })
			return nil, cut
		}
		return bytes.NewReader(copies[k]), nil
	}, whole), cut)
	restore(t, natstest.LogOn(t, s, 2), copies)
	require.Equal(t, everything(t, from), everything(t, natstest.LogOn(t, s, 2)))
}

// A log that was restored without an event, and could then not be taken out of the way, is the one that it
// was, and is taken out of the way when it can be.
func TestAnEmptyRestoredLogStaysItself(t *testing.T) {
	t.Parallel()
	empty := copyOf(t, natstest.Log(t, 2))
	s := natstest.Server(t)
	restore(t, natstest.LogOn(t, s, 2), empty)
	log := natstest.LogOn(t, s, 2)
	js := natstest.JetStream(t, natstest.Connect(t, s))
	before := must.Get(js.Stream(t.Context(), "TURNS-0"))(t)
	must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "inTheWay",
		Subjects: []string{"vacated.TURNS-1"}}))(t)

	err := operate.On(log).Vacate(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, jetlog.ErrStream)
	after := must.Get(js.Stream(t.Context(), "TURNS-0"))(t)
	require.Equal(t, before.CachedInfo().Config.Subjects, after.CachedInfo().Config.Subjects)
	again := natstest.LogOn(t, s, 2)
	for k := range 2 {
		must.Get(log.Head(t.Context(), k))(t)
		require.Equal(t, log.Created(k), again.Created(k))
	}
	require.NoError(t, js.DeleteStream(t.Context(), "inTheWay"))
	require.NoError(t, operate.On(log).Vacate(t.Context()))
}

func whole(context.Context) error { return nil }

// Another process writes to a replicated log in the moment in which a restore takes it away. The servers of the cluster
// are some way apart, so that the leader has taken events in which the stream's state does not show yet. Either the
// restore is refused and all that was acknowledged is in the log, or nothing was acknowledged.
func TestNothingIsAcknowledgedIntoALogThatIsTakenAway(t *testing.T) {
	t.Parallel()
	c := natstest.StartFragileCluster(t)
	nc := c.Connect(t)
	const apart = 15 * time.Millisecond
	tries, wait := 8, 5*apart
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
		if _, err := begin.NextMsg(hang.Limit); !assert.NoError(t, err) {
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
	must.Get(nc.Request("$JS.API.STREAM.DELETE."+name, nil, hang.Limit))(t)
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
	require.EqualValues(t, 1, must.Get(js.Stream(t.Context(), events.StreamName(0)))(t).CachedInfo().State.Msgs)
}

// TestAStreamPutBackThatHasGrownSinceIsNoticed puts the disk of a server back as it was some events ago, and lets
// the stream grow longer than it had been before those hear of it who had followed it: a tail, which would go on
// behind what it never saw, and one who only asks for the head, and would take a view of the former events for one
// of these.
func TestAStreamPutBackThatHasGrownSinceIsNoticed(t *testing.T) {
	t.Parallel()
	d := natstest.NewDisk(t)
	write := func(what string, n int) func(*nats.Conn, *jetlog.Log) {
		return func(_ *nats.Conn, log *jetlog.Log) {
			for i := range n {
				logtest.Add(t, log, "s", fmt.Sprint(what, i), "x")
			}
		}
	}
	d.Apart(write("kept", 3))
	d.Copy()
	var follows, asks, idle *jetlog.Log
	var tails []*jetlog.Tail
	d.Serve(func(nc *nats.Conn, log *jetlog.Log) {
		write("lost", 3)(nc, log)
		follows, asks, idle = d.Outside(), d.Outside(), d.Outside()
		tails = []*jetlog.Tail{openTail(t, follows, 0, jetlog.TailOptions{}),
			openTail(t, d.Outside(), 0, jetlog.TailOptions{HeadersOnly: true})}
		for _, tail := range tails {
			followed(t, tail, 6)
		}
		must.Get(asks.Head(t.Context(), 0))(t)
	})
	d.PutBack()
	d.Apart(write("new", 5))
	d.Serve(func(*nats.Conn, *jetlog.Log) {
		for _, tail := range tails {
			must.Fail(tail.Next(deadline(t, hang.Limit)))(t, jetlog.ErrStream)
		}
		for name, log := range map[string]*jetlog.Log{"the tail's": follows, "asked before": asks,
			"never asked": idle} {
			hang.Until(t, func() bool {
				_, err := log.Head(t.Context(), 0) // which looks once a second
				return errors.Is(err, jetlog.ErrStream)
			}, name)
		}
	})
}

// TestAReadOfAStreamPutBackIsRefused is the same for who reads before anybody looks at the stream: a session that goes
// on otherwise, one that the stream lacks now, what is left behind a position, or a tail that is behind. The events
// that were lost may be large, and the stream may be shorter now.
func TestAReadOfAStreamPutBackIsRefused(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ size, since int }{
		"small": {1, 5}, "large": {100 << 10, 5}, "shorter now": {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := natstest.NewDisk(t)
			d.Apart(func(_ *nats.Conn, log *jetlog.Log) { logtest.Add(t, log, "s", "kept", "x") })
			d.Copy()
			var follows, asks *jetlog.Log
			d.Serve(func(_ *nats.Conn, log *jetlog.Log) {
				follows = d.Outside()
				for _, session := range []string{"s", "gone"} {
					logtest.Add(t, log, session, "lost", strings.Repeat("x", of.size))
				}
				followed(t, openTail(t, follows, 0, jetlog.TailOptions{}), 3)
				asks = d.Outside() // it has seen the newest event alone
			})
			d.PutBack()
			d.Apart(func(_ *nats.Conn, log *jetlog.Log) {
				for i := range of.since {
					logtest.Add(t, log, "s", fmt.Sprint("new", i), "x")
				}
			})
			d.Serve(func(*nats.Conn, *jetlog.Log) {
				for _, log := range []*jetlog.Log{follows, asks} {
					refusesToRead(t, log)
				}
			})
		})
	}
}

// refusesToRead expects each way to read a log to fail with ErrStream. Its connection may still be about to come back.
func refusesToRead(t *testing.T, log *jetlog.Log) {
	t.Helper()
	session := func(id string) func() error {
		return func() (err error) {
			for _, err = range log.Session(t.Context(), id, 0, math.MaxUint64) {
			}
			return err
		}
	}
	for what, read := range map[string]func() error{
		"a session that goes on": session("s"), "a session that is gone": session("gone"),
		"what is left": func() error {
			_, err := log.Still(t.Context(), 0, 100, 200)
			return err
		},
		"a tail": func() error {
			tail, err := log.Tail(t.Context(), 0, 1, jetlog.TailOptions{})
			if err == nil {
				tail.Close()
			}
			return err
		},
	} {
		err := read()
		for began := time.Now(); err != nil && !errors.Is(err, jetlog.ErrStream); err = read() {
			require.Less(t, time.Since(began), hang.Limit, "%s: %v", what, err)
		}
		require.ErrorIs(t, err, jetlog.ErrStream, what)
	}
}
