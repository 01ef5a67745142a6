package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// drifts are what others may have changed of a stream, and turnledger streams apply takes back.
var drifts = []func(*jetstream.StreamConfig){
	func(c *jetstream.StreamConfig) { c.AllowDirect = false },
	func(c *jetstream.StreamConfig) { c.Subjects = []string{"elsewhere"} },
	func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression },
	func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 },
	func(c *jetstream.StreamConfig) { c.AllowRollup, c.Duplicates = true, time.Second },
}

// The streams are changed, and changed back with turnledger streams apply, under readers and writers who don't pause,
// and each step that is logged takes its own time, drawn from a seed. Each reader is told all that was acknowledged, or
// 503.
func TestStreamsThatChangeUnderLoadAreSeenWholeOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, 4, func(t *testing.T, seed uint64) {
		t.Parallel()
		address := stack.FreeAddress(t)
		s := serveSlowly(t, seed, "--data-dir", stack.DataDir(t), "--nats-listen", address, "--sync", "always")
		recordSessions(t, s.Process)
		nc, err := nats.Connect("nats://" + address)
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		w := &witness{t: t, seed: seed, before: 4}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		rng := rand.New(rand.NewPCG(seed, 14))
		s.log.slow.Store(true)
		for _, i := range rng.Perm(len(drifts)) {
			drift(t, nc, drifts[i])
			moment(rng, 50*time.Millisecond)
			applyStreams(t, s.Process)
			moment(rng, 50*time.Millisecond)
		}
		s.log.slow.Store(false)
		w.goOn()
		w.check(s.URL, stack.Exchanges(2))
	})
}

// applyStreams runs turnledger streams apply, and again where slow servers, which may have no leader meanwhile, did not
// answer in time.
func applyStreams(t *testing.T, p *stack.Process, args ...string) {
	for began := time.Now(); ; {
		code, _, errs := p.Run(t, append([]string{"streams", "apply"}, args...)...)
		if code == exitDone {
			return
		}
		require.Contains(t, errs, "log_unavailable")
		require.Less(t, time.Since(began), time.Minute, errs)
	}
}

// drift changes the stream of the only partition.
func drift(t *testing.T, nc *nats.Conn, change func(*jetstream.StreamConfig)) {
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), events.StreamName(0))
	require.NoError(t, err)
	cfg := stream.CachedInfo().Config
	change(&cfg)
	_, err = js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
}

// slowLines has a NATS server write its log to a slow one.
type slowLines struct{ *slowLog }

func (l slowLines) printLine(format string, v ...any) { _, _ = fmt.Fprintf(l, format+"\n", v...) }

func (l slowLines) Noticef(format string, v ...any) { l.printLine(format, v...) }
func (l slowLines) Warnf(format string, v ...any)   { l.printLine(format, v...) }
func (l slowLines) Fatalf(format string, v ...any)  { l.printLine(format, v...) }
func (l slowLines) Errorf(format string, v ...any)  { l.printLine(format, v...) }
func (l slowLines) Debugf(format string, v ...any)  { l.printLine(format, v...) }
func (l slowLines) Tracef(format string, v ...any)  { l.printLine(format, v...) }

// The streams of a cluster get replicas, and lose them again, under readers and writers of two servers who don't pause:
// one of the servers is told, and the other is not.
func TestReplicasThatChangeUnderLoadAreSeenAsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	var logs []*slowLog
	for i, n := range c.Servers {
		logs = append(logs, newSlowLog(uint64(i)))
		n.SetLoggerV2(slowLines{logs[i]}, true, false, false)
	}
	var record sync.Once
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 14))
		nats := []string{"--nats-url", strings.Join(c.URLs(), ",")}
		asked, other := serveSlowly(t, seed, nats...), serveSlowly(t, seed+1000, nats...)
		record.Do(func() { recordSessions(t, asked.Process) })
		w := &witness{t: t, seed: seed, before: 4, ids: fmt.Sprint("seed", seed)}
		w.ask(func() bool { return true }, asked.URL, other.URL)
		w.goOn()
		slow := func(is bool) {
			for _, l := range append(logs, asked.log, other.log) {
				l.slow.Store(is)
			}
		}
		slow(true)
		defer slow(false)
		for _, n := range []string{"3", "1"} {
			moment(rng, 100*time.Millisecond)
			applyStreams(t, asked.Process, "--replicas", n)
		}
		slow(false)
		w.goOn()
		w.check(other.URL, stack.Exchanges(2))
	})
}

// An outside NATS is started anew on its data under readers and writers who don't pause.
func TestANATSThatStartsAnewUnderLoadIsSeenAsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		t.Parallel()
		rng := rand.New(rand.NewPCG(seed, 14))
		address, dir, log := stack.FreeAddress(t), t.TempDir(), newSlowLog(seed)
		stop := natsAt(t, address, dir, log)
		t.Cleanup(func() { stop() })
		s := serveSlowly(t, seed, "--nats-url", "nats://"+address)
		recordSessions(t, s.Process)
		w := &witness{t: t, seed: seed, before: 4}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		s.log.slow.Store(true)
		log.slow.Store(true)
		for range 2 {
			moment(rng, 50*time.Millisecond)
			stop()
			moment(rng, 100*time.Millisecond)
			stop = natsAt(t, address, dir, log)
			w.goOn()
		}
		log.slow.Store(false)
		s.log.slow.Store(false)
		w.check(s.URL, stack.Exchanges(2))
	})
}

func natsAt(t *testing.T, address, dir string, log *slowLog) (stop func()) {
	host, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	n, err := server.NewServer(&server.Options{
		ServerName: "outside", Host: host, Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		SyncAlways: true, MaxPayload: 8 << 20,
	})
	require.NoError(t, err)
	n.SetLoggerV2(slowLines{log}, true, false, false)
	n.Start()
	return func() {
		n.Shutdown()
		n.WaitForShutdown()
	}
}

// A server is stopped and started again on its data under readers and writers who don't pause.
func TestAServerThatStartsAnewUnderLoadShowsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		t.Parallel()
		rng := rand.New(rand.NewPCG(seed, 14))
		s := serveSlowly(t, seed, "--data-dir", stack.DataDir(t))
		recordSessions(t, s.Process)
		w := &witness{t: t, seed: seed, before: 4, restarts: true}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		s.log.slow.Store(true)
		for range 2 {
			moment(rng, 100*time.Millisecond)
			s.stop()
			s.start()
			w.goOn()
		}
		s.log.slow.Store(false)
		w.check(s.URL, stack.Exchanges(2))
	})
}
