package jetlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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
		head := must.Get(log.Head(t.Context(), k))(t)
		for seq := range head.Seq {
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
