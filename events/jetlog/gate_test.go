package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
)

// disk notes what was fsynced: of each inode how much, of each folder the names.
type disk struct {
	mu    sync.Mutex
	sizes map[uint64]int64
	names map[string]map[string]uint64
	syncs int
}

func newDisk() *disk { return &disk{sizes: map[uint64]int64{}, names: map[string]map[string]uint64{}} }

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func (d *disk) fsync(f *os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		d.sizes[inode(info)] = info.Size()
		return nil
	}
	names := map[string]uint64{}
	entries, err := os.ReadDir(f.Name())
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			names[e.Name()] = inode(info)
		}
	}
	d.names[f.Name()] = names
	return err
}

// durable holds that every block in a folder, as it is now, would survive a power
// cut whole. Nobody writes meanwhile.
func (d *disk) durable(t require.TestingT, dir string) (blocks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".blk") {
			continue
		}
		blocks++
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, inode(info), d.names[dir][e.Name()], "the folder was not synced since %s got its inode", e.Name())
		require.Equal(t, info.Size(), d.sizes[inode(info)], "%s was not synced to its end", e.Name())
	}
	return blocks
}

func (d *disk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// gated is a log on a server of its own, whose folder is known.
func gated(t testing.TB) (log *jetlog.Log, stream jetstream.Stream, msgs string) {
	t.Helper()
	s := natstest.Server(t)
	log = natstest.LogOn(t, s, 1)
	js, err := jetstream.New(natstest.Connect(t, s))
	require.NoError(t, err)
	stream, err = js.Stream(t.Context(), events.StreamName(0))
	require.NoError(t, err)
	return log, stream, filepath.Join(s.GateDir(), "jetstream", "$G", "streams", events.StreamName(0), "msgs")
}

func add(t testing.TB, log *jetlog.Log, session, request, text string) events.Position {
	t.Helper()
	ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{started(session, request, text)}})
	require.NoError(t, err)
	return ack.Position
}

func TestNothingIsShownBeforeItsFsync(t *testing.T) {
	t.Parallel()
	log, _, _ := gated(t)
	open, began := make(chan struct{}), make(chan struct{}, 100)
	log.SetFsync(0, func(*os.File) error { began <- struct{}{}; <-open; return nil })
	gatedTail, err := log.Tail(t.Context(), 0, 0, jetlog.TailOptions{})
	require.NoError(t, err)
	defer gatedTail.Close()
	ungated, err := log.Tail(t.Context(), 0, 0, jetlog.TailOptions{Ungated: true})
	require.NoError(t, err)
	defer ungated.Close()
	sub, err := log.NewSubscriber(jetlog.SubscriberConfig{Group: "g"})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close()) }()
	emitted, err := sub.Subscribe(t.Context(), events.StreamName(0))
	require.NoError(t, err)

	at := add(t, log, "s", "r1", "one")
	got, err := ungated.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1)
	var shown sync.WaitGroup
	var early atomic.Bool
	show := func(f func() error) {
		shown.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
			select {
			case <-open:
			default:
				early.Store(true)
			}
		})
	}
	show(func() error { return log.Durable(t.Context(), at) })
	show(func() error { _, err := log.Head(t.Context(), 0); return err })
	show(func() error { _, _, err := log.At(t.Context(), at); return err })
	show(func() error { _, err := gatedTail.Next(t.Context()); return err })
	show(func() error { (<-emitted).Ack(); return nil })
	show(func() error {
		for _, err := range log.Session(t.Context(), "s", 0, math.MaxUint64) {
			return err
		}
		return errors.New("no event")
	})
	// One of them syncs for all; who waits for it may go away.
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, log.Durable(ctx, at), jetlog.ErrUnavailable)
	require.False(t, early.Load(), "shown before the fsync")
	close(open)
	shown.Wait()
}

func TestTailKeepsWhatACallerDidNotWaitFor(t *testing.T) {
	t.Parallel()
	log, _, _ := gated(t)
	open := make(chan struct{})
	began := make(chan struct{}, 100)
	log.SetFsync(0, func(*os.File) error { began <- struct{}{}; <-open; return nil })
	tail, err := log.Tail(t.Context(), 0, 0, jetlog.TailOptions{})
	require.NoError(t, err)
	defer tail.Close()
	at := add(t, log, "s", "r1", "one")
	durable := make(chan error, 1)
	go func() { durable <- log.Durable(t.Context(), at) }()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = tail.Next(ctx)
	require.Error(t, err)
	close(open)
	got, err := tail.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.EqualValues(t, 1, got[0].Position.Seq)
	require.NoError(t, <-durable)
}

// TestFsyncsAreShared lets many writers come while the disk is at work for the first:
// what it does next serves all of them.
func TestFsyncsAreShared(t *testing.T) {
	t.Parallel()
	log, _, msgs := gated(t)
	d, open := newDisk(), make(chan struct{})
	log.SetFsync(0, func(f *os.File) error { <-open; return d.fsync(f) })
	const writers = 200
	var waiting, all sync.WaitGroup
	waiting.Add(writers)
	for w := range writers {
		all.Go(func() {
			ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{fact("s", fmt.Sprint(w))}})
			waiting.Done()
			if err == nil {
				err = log.Durable(t.Context(), ack.Position)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	close(open)
	all.Wait()
	d.durable(t, msgs)
	t.Logf("%d events, %d fsyncs", writers, d.count())
	require.Less(t, d.count(), writers/5)
}

func TestEveryBlockIsSynced(t *testing.T) {
	t.Parallel()
	log, _, msgs := gated(t)
	d := newDisk()
	log.SetFsync(0, d.fsync)
	text := strings.Repeat("x", 30_000)
	var at events.Position
	for i := range 600 { // 18 MB: three blocks
		at = add(t, log, "s", fmt.Sprint(i), text)
		if i%97 == 0 {
			require.NoError(t, log.Durable(t.Context(), at))
			d.durable(t, msgs)
		}
	}
	// From here, two blocks on: what waits once is synced whole.
	require.NoError(t, log.Durable(t.Context(), at))
	require.GreaterOrEqual(t, d.durable(t, msgs), 3)
}

func TestRewrittenBlockIsSyncedWithItsFolder(t *testing.T) {
	t.Parallel()
	log, stream, msgs := gated(t)
	d := newDisk()
	log.SetFsync(0, d.fsync)
	for i := range 5 {
		at := add(t, log, "s", fmt.Sprint(i), "text")
		require.NoError(t, log.Durable(t.Context(), at))
	}
	for i := range uint64(4) {
		require.NoError(t, stream.SecureDeleteMsg(t.Context(), i+1))
		at := add(t, log, "s", fmt.Sprint("after", i), "text")
		require.NoError(t, log.Durable(t.Context(), at))
		d.durable(t, msgs)
	}
	require.NoError(t, stream.Purge(t.Context()))
	at := add(t, log, "s", "last", "text")
	require.NoError(t, log.Durable(t.Context(), at))
	d.durable(t, msgs)
}

func TestFailedFsyncIsFinal(t *testing.T) {
	t.Parallel()
	log, _, _ := gated(t)
	before := add(t, log, "s", "r0", "zero")
	require.NoError(t, log.Durable(t.Context(), before))
	tail, err := log.Tail(t.Context(), 0, before.Seq, jetlog.TailOptions{})
	require.NoError(t, err)
	defer tail.Close()
	log.SetFsync(0, func(*os.File) error { return syscall.EIO })
	at := add(t, log, "s", "r1", "one")
	require.ErrorIs(t, log.Durable(t.Context(), at), syscall.EIO)
	log.SetFsync(0, (*os.File).Sync)
	// The kernel reports a lost write once. A second fsync that works proves nothing.
	for range 3 {
		err := log.Durable(t.Context(), at)
		require.ErrorIs(t, err, jetlog.ErrNoWrites)
		require.ErrorIs(t, err, syscall.EIO)
	}
	_, err = log.Head(t.Context(), 0)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	_, err = tail.Next(t.Context())
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.NoError(t, log.Durable(t.Context(), before), "what is durable stays so")
}

// gateFolder is a stream's folder made by hand.
func gateFolder(t *testing.T) (stream, msgs string) {
	stream = filepath.Join(t.TempDir(), "jetstream", "$G", "streams", "TURNS-0")
	msgs = filepath.Join(stream, "msgs")
	require.NoError(t, os.MkdirAll(msgs, 0o700))
	return stream, msgs
}

func write(t *testing.T, msgs string, block int, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(msgs, fmt.Sprint(block, ".blk")), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestGateFollowsTheBlocks(t *testing.T) {
	t.Parallel()
	steps := map[string]func(t *testing.T, msgs string){
		"appended to": func(t *testing.T, msgs string) { write(t, msgs, 3, "more") },
		"followed":    func(t *testing.T, msgs string) { write(t, msgs, 3, "more"); write(t, msgs, 4, "next") },
		"followed by several": func(t *testing.T, msgs string) {
			for n := 4; n < 9; n++ {
				write(t, msgs, n, "next")
			}
		},
		"followed after a gap": func(t *testing.T, msgs string) { write(t, msgs, 3, "more"); write(t, msgs, 7, "far") },
		"purged and followed": func(t *testing.T, msgs string) {
			require.NoError(t, os.Remove(filepath.Join(msgs, "3.blk")))
			write(t, msgs, 4, "next")
		},
		"rewritten": func(t *testing.T, msgs string) {
			tmp, name := filepath.Join(msgs, "3.blk.tmp"), filepath.Join(msgs, "3.blk")
			require.NoError(t, os.WriteFile(tmp, []byte("other"), 0o600))
			require.NoError(t, os.Rename(tmp, name))
		},
		"made anew": func(t *testing.T, msgs string) {
			require.NoError(t, os.RemoveAll(msgs))
			require.NoError(t, os.Mkdir(msgs, 0o700))
			write(t, msgs, 1, "first")
		},
	}
	for name, step := range steps {
		for _, settled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/settled=%t", name, settled), func(t *testing.T) {
				t.Parallel()
				stream, msgs := gateFolder(t)
				write(t, msgs, 3, "text")
				d := newDisk()
				g, err := jetlog.NewGate(stream, d.fsync)
				require.NoError(t, err)
				if settled {
					long := time.Now().Add(-time.Hour)
					require.NoError(t, os.Chtimes(msgs, long, long))
				}
				require.NoError(t, g.Wait(t.Context(), 1))
				d.durable(t, msgs)
				step(t, msgs)
				require.NoError(t, g.Wait(t.Context(), 2))
				d.durable(t, msgs)
			})
		}
	}
}

// TestASyncVouchesOnlyForWhatWasBeforeIt has an event written, and waited for, while the disk is at work
// for an earlier one: the next sync is its own.
func TestASyncVouchesOnlyForWhatWasBeforeIt(t *testing.T) {
	t.Parallel()
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled ", settled), func(t *testing.T) {
			t.Parallel()
			stream, msgs := gateFolder(t)
			write(t, msgs, 3, "one")
			d := newDisk()
			var g *jetlog.Gate
			second := make(chan error, 1)
			late := sync.OnceFunc(func() {
				write(t, msgs, 3, "two")
				go func() { second <- g.Wait(t.Context(), 2) }()
				for g.Wanted() < 2 && t.Context().Err() == nil {
					runtime.Gosched()
				}
			})
			g, err := jetlog.NewGate(stream, func(f *os.File) error {
				err := d.fsync(f)
				late()
				return err
			})
			require.NoError(t, err)
			if settled {
				long := time.Now().Add(-time.Hour)
				require.NoError(t, os.Chtimes(msgs, long, long))
			}
			require.NoError(t, g.Wait(t.Context(), 1))
			require.NoError(t, <-second)
			d.durable(t, msgs)
		})
	}
}

func TestGateNeedsTheLayoutItKnows(t *testing.T) {
	t.Parallel()
	stream, msgs := gateFolder(t)
	g, err := jetlog.NewGate(stream, (*os.File).Sync)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(msgs, "blocks"), 0o700))
	require.ErrorIs(t, g.Wait(t.Context(), 1), jetlog.ErrLayout, "events without a block file")
	write(t, msgs, 1, "text")
	require.NoError(t, g.Wait(t.Context(), 1), "what failed was not an fsync")
	_, err = jetlog.NewGate(filepath.Join(stream, "elsewhere"), (*os.File).Sync)
	require.ErrorIs(t, err, jetlog.ErrLayout)

	s := natstest.Server(t)
	_, err = jetlog.Open(t.Context(), natstest.Connect(t, s), jetlog.Config{GateDir: t.TempDir()})
	require.ErrorIs(t, err, jetlog.ErrLayout)
}
