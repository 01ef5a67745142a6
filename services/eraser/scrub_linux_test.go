package eraser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// blocksBelow returns the blocks of the log in some folders, with what they hold.
func blocksBelow(t *testing.T, dirs []string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, dir := range dirs {
		names := must.Get(filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "TURNS-0", "msgs", "*.blk")))(t)
		for _, name := range names {
			raw := must.Get(os.ReadFile(name))(t)
			out[name] = raw
		}
	}
	return out
}

// All servers of a log are killed while they overwrite. Each has written down that events are gone, and has not
// overwritten them: it answers "not found" from then on. The receipt stays open, says why and names the command. After
// a scrub, and once every server has been reported, it is complete, and no server's blocks hold a byte of the texts.
//
//conformance:h64
func TestAnErasureInWhichAllServersDiedIsProvedByAScrub(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := natstest.StartNodes(t, natstest.NodesOptions{Dirs: [3]string(dirs)})
	log := must.Get(jetlog.Open(t.Context(), nodes.Connect(t), jetlog.Config{Replicas: 3, Outside: true}))(t)
	w := newWorldOn(t, log, "")
	for i := range 20 { // or the servers would compact the block
		w.turn("kept", fmt.Sprint(i), "KEPT"+strings.Repeat(" more", 10_000))
	}
	for i := range 20 {
		w.turn("s", fmt.Sprint(i), "SECRET")
	}
	nodes.Agree(t)
	before := blocksBelow(t, dirs)
	w.erase(inOnePiece(log), eraser.Config{Rate: 20})
	receipt := must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{}))(t)
	hang.Until(t, func() bool { return len(w.types("s")) < 30 })
	killAll := func() {
		for i := range dirs {
			nodes.Kill(t, i)
		}
	}
	startAll := func() {
		for i := range dirs {
			nodes.Start(t, i)
		}
		nodes.Ready(t)
	}
	// forget has each server leave what it had forgotten, as if it had been about to overwrite it.
	forget := func() {
		for name, old := range before {
			now := must.Get(os.ReadFile(name))(t)
			copy(now, old)
			require.NoError(t, os.WriteFile(name, now, 0o600))
		}
		for _, dir := range dirs {
			require.NotEmpty(t, natstest.Holding(t, "SECRET", []string{dir}, raftLogs))
		}
	}
	// Servers that died before they had noted what they forgot find it again, and overwrite it.
	hang.Until(t, func() bool {
		killAll()
		forget()
		startAll()
		return len(natstest.Holding(t, "SECRET", dirs, raftLogs)) > 0 // which no server can overwrite any more
	})

	w.unproved(receipt, "turnledger scrub DIR --report")

	killAll()
	forget()
	for _, dir := range dirs {
		done, lock, err := embedded.Scrub(dir)
		require.NoError(t, err)
		require.Positive(t, done.Events)
		_, _, err = embedded.Scrub(dir)
		require.ErrorIs(t, err, embedded.ErrLocked, "while the node has the folder")
		require.NoError(t, lock.Close())
		require.Empty(t, natstest.Holding(t, "SECRET", []string{dir}, raftLogs))
	}
	startAll()
	for i := range dirs {
		w.scrubbed(nodes, i)
	}
	w.proved(receipt)
	require.Empty(t, natstest.Holding(t, "SECRET", dirs, raftLogs))
	require.NotEmpty(t, natstest.Holding(t, "KEPT", dirs, raftLogs))
}

// scrubbed notes that a node was started after a scrub.
func (w *world) scrubbed(nodes *natstest.Nodes, i int) {
	w.Helper()
	nc := nodes.Connect(w, i)
	hang.Until(w, func() bool {
		return overwrite.NoteScrubbed(w.Context(), w.notes, nc.ConnectedServerName(), nc.ConnectedServerId()) == nil
	})
}

// proved waits until a receipt is complete; servers that come and go may leave a question without an answer.
func (w *world) proved(receipt string) {
	w.Helper()
	require.Empty(w, w.told(receipt, services.Receipt.Complete).Places[0].Why)
}

// unproved waits until a receipt says why it is not complete.
func (w *world) unproved(receipt string, why ...string) {
	w.Helper()
	got := w.told(receipt, func(r services.Receipt) bool {
		unsaid := func(s string) bool { return !strings.Contains(r.Places[0].Why, s) }
		return r.Complete() || !slices.ContainsFunc(why, unsaid)
	})
	require.False(w, got.Complete())
}

// told waits for what a receipt is to say.
func (w *world) told(receipt string, says func(services.Receipt) bool) (got services.Receipt) {
	w.Helper()
	hang.Until(w, func() bool {
		var err error
		got, err = w.receipts().Receipt(w.Context(), receipt)
		return err == nil && says(got)
	}, "%s", receipt)
	return got
}

// Servers that were started anew before an erasure hold nothing up, whether or not by the verb. One that is started
// anew while an erasure is under way holds up just that one, until it is reported. A server that is away holds up the
// receipts, but not the overwriting.
func TestOnlyErasuresUnderWayWaitForAServerThatWasStartedAnew(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := natstest.StartNodes(t, natstest.NodesOptions{Dirs: [3]string(dirs)})
	log, err := jetlog.Open(t.Context(), nodes.Connect(t), jetlog.Config{Partitions: 2, Replicas: 3, Outside: true})
	require.NoError(t, err)
	w := newWorldOn(t, log, "")
	again := func(i int) {
		_ = nodes.Stop(t, i) // a server that is asked to stop says what it likes
		nodes.Start(t, i)
		nodes.Ready(t)
	}
	erase := func(session string) (receipt string) {
		receipt = must.Get(w.history.EraseSession(t.Context(), session, services.Erasure{}))(t)
		return receipt
	}
	gone := func(session string) { hang.Until(t, func() bool { return len(w.types(session)) <= 3 }) }
	for i := range 20 {
		w.turn("long", fmt.Sprint(i), "SECRET")
	}
	redacted := w.turn("kept", "r1", "SECRET")
	for _, session := range []string{"before", "after"} {
		w.turn(session, "r1", "SECRET")
	}
	const sessions = 12
	for i := range sessions {
		w.turn(fmt.Sprint("hers-", i), "r1", "SECRET")
		w.link(fmt.Sprint("hers-", i), "alice")
	}
	for i := range dirs {
		again(i)
	}
	w.erase(inOnePiece(log), eraser.Config{Rate: 20})
	w.proved(erase("before"))

	long := erase("long")
	hang.Until(t, func() bool { return len(w.types("long")) < 35 })
	again(1)
	gone("long")
	name := nodes.Connect(t, 1).ConnectedServerName()
	w.unproved(long, name+" was started anew", "turnledger scrub DIR --report")
	w.proved(erase("after"))
	w.proved(fmt.Sprint(log.Partition("kept"), ":", w.redact("kept", redacted).Redacted))
	w.unproved(long, name)
	w.scrubbed(nodes, 1)
	w.proved(long)

	_ = nodes.Stop(t, 2)
	hers := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
	for i := range sessions {
		gone(fmt.Sprint("hers-", i))
	}
	w.unproved(hers, "away, or behind")
	nodes.Start(t, 2)
	nodes.Ready(t)
	w.unproved(hers, "turnledger scrub DIR --report")
	w.scrubbed(nodes, 2)
	w.proved(hers)
}

// Servers that can't be asked who they are prove nothing, and the receipt names the permission.
func TestAReceiptNamesThePermissionThatIsMissing(t *testing.T) {
	t.Parallel()
	nodes := natstest.StartNodes(t, natstest.NodesOptions{Config: `no_auth_user: anybody
authorization { users: [
  { user: anybody, password: anybody }
  { user: few, password: few, permissions: { publish: { deny: "$SYS.>" } } }
] }
`})
	nc := must.Get(nats.Connect(nodes.URL(), nats.UserInfo("few", "few")))(t)
	t.Cleanup(nc.Close)
	log := must.Get(jetlog.Open(t.Context(), nc, jetlog.Config{Replicas: 3, Outside: true}))(t)
	w := newWorldOn(t, log, "")
	turn := w.turn("s", "r1", "SECRET")
	w.erase(inOnePiece(log), eraser.Config{})
	at := w.redact("s", turn).Position
	w.left("s", events.TypeTurnRedacted)
	w.unproved(at.String(), "$SYS.REQ.SERVER.PING.CONNZ", "may not publish")
}
