package jetlog_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
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

// fill appends so much that the next block is begun.
func fill(t *testing.T, log *jetlog.Log, name string) (last uint64) {
	t.Helper()
	for i := range 12 {
		last = logtest.Add(t, log, "filler", fmt.Sprint(name, "-", i), strings.Repeat("x", 900_000)).Seq
	}
	return last
}

// brokenDisk is a server on a folder, whose blocks can be taken away.
type brokenDisk struct {
	*testing.T
	dir string
	ns  *server.Server
	nc  *nats.Conn
}

func newBrokenDisk(t *testing.T) (*brokenDisk, *jetlog.Log) {
	t.Helper()
	d := &brokenDisk{T: t, dir: t.TempDir()}
	return d, d.open()
}

func (d *brokenDisk) open() *jetlog.Log {
	d.Helper()
	d.ns = plainServer(d.T, server.Options{ServerName: "disk", JetStream: true, StoreDir: d.dir, MaxPayload: 8 << 20})
	d.nc = connectTo(d.T, d.ns)
	return openOn(d.T, d.nc, jetlog.Config{})
}

// without stops the server and opens its log anew. A read of one block fails then, as one of a broken disk does, until
// the returned function puts the block back.
func (d *brokenDisk) without(number int) (log *jetlog.Log, mend func()) {
	d.Helper()
	d.nc.Close()
	d.ns.Shutdown()
	d.ns.WaitForShutdown()
	log = d.open()
	block := filepath.Join(d.dir, "jetstream", "$G", "streams", "TURNS-0", "msgs", fmt.Sprint(number, ".blk"))
	require.NoError(d, os.Rename(block, block+".away"))
	require.NoError(d, os.Mkdir(block, 0o700))
	return log, func() {
		require.NoError(d, os.Remove(block))
		require.NoError(d, os.Rename(block+".away", block))
	}
}

// A server whose disk does not give a block answers as if there was no event in it. That is not "no history".
func TestABlockThatCannotBeReadIsNotAnEmptySession(t *testing.T) {
	t.Parallel()
	disk, log := newBrokenDisk(t)
	for i := range 3 {
		logtest.Add(t, log, "s", fmt.Sprint("r", i), "x")
	}
	logtest.Append(t, log, &events.IdentityErased{IdentityID: "alice", ReceiptID: "r"})
	fill(t, log, "r") // so that the first block is read from the disk again
	log, mend := disk.without(1)
	for _, after := range []uint64{0, 1} {
		must.Fail(readAfter(t, log, "s", after))(t, jetlog.ErrUnavailable, "after %d", after)
	}
	must.Fail(log.Last(t.Context(), "s"))(t, jetlog.ErrUnavailable, "the archive would be believed otherwise")
	_, _, err := log.IdentityErasure(t.Context(), "alice", events.Position{Seq: 16})
	require.ErrorIs(t, err, jetlog.ErrUnavailable, "an erased identity is not read as one that was not erased")
	require.Empty(t, must.Get(readAfter(t, log, "unknown", 0))(t))
	mend()
	require.Len(t, must.Get(readAfter(t, log, "s", 0))(t), 3)
}

func readAfter(t *testing.T, log *jetlog.Log, session string, after uint64) (out []events.Recorded, err error) {
	t.Helper()
	for e, err := range log.Session(t.Context(), session, after, math.MaxUint64) {
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// An event that the disk does not give is no erased event, and a stretch of the log that can't be read is no empty one:
// a reader would pass over it, and say that it has seen all.
func TestABlockThatCannotBeReadIsNotErased(t *testing.T) {
	t.Parallel()
	disk, log := newBrokenDisk(t)
	begun := time.Now()
	var last uint64
	for i := range 2 { // each fills a block of its own
		logtest.Add(t, log, "s", fmt.Sprint("r", i), "x")
		last = fill(t, log, fmt.Sprint("r", i))
	}
	must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: 3}))(t)
	log, _ = disk.without(1)
	require.ErrorIs(t, must.Err(log.At(t.Context(), events.Position{Seq: 2})), jetlog.ErrUnavailable)
	require.ErrorIs(t, must.Err(log.After(t.Context(), 0, 0)), jetlog.ErrUnavailable)
	must.Fail(log.Still(t.Context(), 0, 0, 3))(t, jetlog.ErrUnavailable)
	_, err := log.SeqAt(t.Context(), 0, begun)
	require.ErrorIs(t, err, jetlog.ErrUnavailable, "a sweep would begin behind what it can't read")
	for seq, there := range map[uint64]bool{3: false, last: true, last + 1: false} { // the index knows what was erased
		_, found := must.Two(log.At(t.Context(), events.Position{Seq: seq}))(t)
		require.Equal(t, there, found, seq)
	}
	_, found := must.Two(log.After(t.Context(), 0, last))(t)
	require.False(t, found)
	require.True(t, must.Get(log.Still(t.Context(), 0, last-1, last-1))(t))
}

// JetStream is begun anew in place, as after a full disk, under readers and writers that don't pause. A reader is given
// the whole session or an error, and what was acknowledged stays.
func TestJetStreamBegunAnewUnderLoadGivesTheWholeSessionOrAnError(t *testing.T) {
	t.Parallel()
	rounds := 10
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 200
	}
	server := natstest.StartBegunAnew(t)
	log := openOn(t, server.Conn, jetlog.Config{Deadline: 500 * time.Millisecond})
	const sessions = 10
	var acknowledged [sessions]atomic.Int64
	on, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for i := range sessions {
		id := fmt.Sprint("s", i)
		all.Go(func() {
			for n := 0; on.Err() == nil; n++ {
				facts := []events.Fact{logtest.Fact(id, fmt.Sprint("r", n))}
				if _, err := log.Append(t.Context(), jetlog.Append{Facts: facts}); err == nil {
					acknowledged[i].Add(1)
				}
			}
		})
		all.Go(func() {
			for on.Err() == nil {
				least := acknowledged[i].Load()
				if got, err := readAfter(t, log, id, 0); err == nil && int64(len(got)) < least {
					t.Errorf("%s has %d events, and %d were acknowledged", id, len(got), least)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 14))
	for range rounds {
		<-time.After(time.Duration(rng.IntN(30)) * time.Millisecond)
		server.Begin(t, time.Duration(rng.IntN(5))*time.Millisecond)
	}
	for i := range sessions {
		hang.Until(t, func() bool { return acknowledged[i].Load() > 0 }, "something of each session is acknowledged")
	}
	stop()
	all.Wait()
}

// A session that is spread over several blocks is not shorter where one of them can't be read.
func TestABlockThatCannotBeReadIsNotAShorterSession(t *testing.T) {
	t.Parallel()
	disk, log := newBrokenDisk(t)
	for i := range 4 {
		for j := range 3 {
			logtest.Add(t, log, "s", fmt.Sprint("r", i, "-", j), "x")
		}
		fill(t, log, fmt.Sprint("r", i))
	}
	for broken := 1; broken <= 4; broken++ {
		log, mend := disk.without(broken)
		got, err := readAfter(t, log, "s", 0)
		if err == nil {
			require.Len(t, got, 12, broken)
		} else {
			require.ErrorIs(t, err, jetlog.ErrUnavailable, broken)
		}
		mend()
	}
}

// A restore that ends before its end leaves no log that anybody opens: neither with a part of the copies, nor with all
// of them and what was erased since.
func TestARestoreThatWasBrokenOffIsNotOpened(t *testing.T) {
	t.Parallel()
	from := natstest.Log(t, 1)
	logtest.Add(t, from, "s", "r", "x")
	copies := copyOf(t, from)
	s := natstest.Server(t)
	nc := natstest.Connect(t, s)
	empty := openOn(t, nc, jetlog.Config{GateDir: s.GateDir(), Deadline: 500 * time.Millisecond})
	require.NoError(t, operate.On(empty).Vacate(t.Context()))
	refused := func() {
		_, err := empty.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("new", "r")}})
		require.ErrorIs(t, err, jetlog.ErrUnavailable, "a process that had the empty log open writes to no copy")
		_, err = jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		require.ErrorIs(t, err, jetlog.ErrStream)
		require.ErrorContains(t, err, "empty the data directory and restore again")
	}
	require.NoError(t, operate.On(empty).Restore(t.Context(), reader(copies), func(context.Context) error {
		refused()
		return nil
	}))
	refused()
	log := openOn(t, nc, jetlog.Config{GateDir: s.GateDir(), Restoring: true})
	require.Len(t, logtest.Read(t, log, "s"), 1)
	logtest.Add(t, log, "s", "r2", "x")
	require.Equal(t, events.SessionSubject("s"), logtest.Read(t, log, "s")[1].Subject)
	js, copied := natstest.JetStream(t, nc), natstest.Stream(t, nc, events.StreamName(0)).CachedInfo().Config
	unmarked := copied
	unmarked.Subjects, unmarked.SubjectTransform = events.StreamSubjects(0, 1), nil
	unmarked.Metadata = maps.Clone(copied.Metadata)
	delete(unmarked.Metadata, "turnledger.restoring")
	_, err := js.UpdateStream(t.Context(), unmarked) // as a copy is for a moment after it was read
	require.NoError(t, err)
	must.Fail(jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true}))(t, jetlog.ErrStream)
	must.Get(js.UpdateStream(t.Context(), copied))(t)
	require.NoError(t, operate.On(log).Restored(t.Context()))
	require.Len(t, logtest.Read(t, natstest.LogOn(t, s, 1), "s"), 2)
}
