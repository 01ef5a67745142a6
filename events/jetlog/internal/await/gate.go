package await

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

// Gate makes sequences of one stream durable with fsyncs that all waiting callers share
// (docs/design.md#the-durability-gate). By the time that a PubAck, a delivery or a read shows an event, the server has
// written it to its block file. On Linux an fsync through any descriptor flushes the inode. A nil gate is open: the
// server itself syncs.
//
// Why one sync covers all callers that waited when it began: blocks are numbered in ascending order, and only the
// newest grows. Everything written since the last sync lies in the block that was the newest then, or in later ones,
// and all of these are synced. A block that an erasure rewrote meanwhile has a new inode, which the server syncs before
// it renames the block into place. So each block is opened anew by its name, and the folder is synced when a name in it
// changed. (The server's compaction of an old block renames before it syncs, and nothing can wait for that sync. File
// systems that write a file's data before its rename, such as ext4 and btrfs, make it safe.)
//
// A failed fsync is final: nobody knows what it lost, so the gate never acknowledges again.
type Gate struct {
	dir     string
	durable Watermark
	wanted  atomic.Uint64
	// lock is held by the waiter that syncs for all.
	lock chan struct{}

	// Guarded by lock: the newest synced block and its inode, the folder as it was last listed, and the error of a
	// failed fsync.
	block  uint64
	inode  uint64
	names  folder
	failed error
	// Fsync makes a file or folder durable. Only a function that runs in Alone may change it.
	Fsync func(*os.File) error
}

// folder is a folder's time of change. It is settled if it was older than the clock's grain when it was read, so that
// any later change has another time.
type folder struct {
	changed time.Time
	settled bool
}

const (
	blockSuffix = ".blk"
	clockGrain  = 100 * time.Millisecond
)

// errFsync: an fsync failed.
var errFsync = fmt.Errorf("%w: fsync failed; restart Turnledger when the disk is well", failure.ErrNoWrites)

// OpenGate opens the gate of a stream whose files are under stream ("…/streams/NAME"), and syncs all of them.
func OpenGate(stream string) (*Gate, error) {
	g := &Gate{dir: filepath.Join(stream, "msgs"), lock: make(chan struct{}, 1), Fsync: (*os.File).Sync}
	if info, err := os.Stat(g.dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: no folder %s", failure.ErrLayout, g.dir)
	}
	if err := g.syncStream(stream); err != nil {
		return nil, err
	}
	return g, nil
}

// Shown is a sequence that the server has shown: with a PubAck, with an event that it gave, or as the stream's head. A
// gate waits for nothing else. Were it to wait for a number of a client or of a checkpoint, one beyond the head would
// raise its mark past events that are not written yet, and these would be acknowledged before their fsync.
type Shown struct{ seq uint64 }

// Mark returns a sequence as one that the server has shown. The caller has it from an answer of the server, never from
// a request.
func Mark(seq uint64) Shown { return Shown{seq} }

// Wait returns when every event up to a sequence is durable.
func (g *Gate) Wait(ctx context.Context, shown Shown) error {
	seq := shown.seq
	if g == nil || g.durable.At() >= seq {
		return nil
	}
	for {
		old := g.wanted.Load()
		if old >= seq || g.wanted.CompareAndSwap(old, seq) {
			break
		}
	}
	x := g.durable.reach(seq)
	defer g.durable.drop(x)
	for {
		select {
		case <-x.done:
			return nil
		case g.lock <- struct{}{}:
			err := g.lead(seq)
			<-g.lock
			if err != nil {
				return failure.Unavailable("", err)
			}
		case <-ctx.Done():
			return failure.Unavailable("", ctx.Err())
		}
	}
}

// lead syncs for all callers that are waiting now.
func (g *Gate) lead(seq uint64) error {
	if g.durable.At() >= seq {
		return nil
	}
	if g.failed != nil {
		return g.failed
	}
	target := g.wanted.Load()
	if err := g.sync(); err != nil {
		if errors.Is(err, errFsync) {
			g.failed = err
		}
		return err
	}
	g.durable.Advance(target)
	return nil
}

// sync makes every block from the last synced one to the newest durable. Mostly that is one file.
func (g *Gate) sync() error {
	info, err := os.Stat(g.dir)
	if err != nil {
		return err
	}
	if !g.names.settled || !info.ModTime().Equal(g.names.changed) {
		return g.syncNew(info.ModTime())
	}
	inode, err := g.syncFile(g.path(g.block))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return g.syncNew(info.ModTime())
	case err != nil:
		return err
	}
	// A file system may not keep the folder's time.
	if _, err := os.Stat(g.path(g.block + 1)); err == nil || inode != g.inode {
		return g.syncNew(info.ModTime())
	}
	return nil
}

func (g *Gate) path(block uint64) string {
	return filepath.Join(g.dir, strconv.FormatUint(block, 10)+blockSuffix)
}

// syncNew lists the blocks again, since names in the folder have changed since it was listed: blocks were added,
// rewritten or purged. changed is the folder's time before this listing.
func (g *Gate) syncNew(changed time.Time) error {
	settled := time.Since(changed) > clockGrain
	for range 3 {
		block, inode, err := g.syncBlocks()
		if err != nil {
			return err
		}
		if block == 0 {
			continue // the server is replacing the only block
		}
		if _, err := g.syncFile(g.dir); err != nil {
			return err
		}
		g.block, g.inode, g.names = block, inode, folder{changed, settled}
		return nil
	}
	return fmt.Errorf("%w: no block in %s", failure.ErrLayout, g.dir)
}

// syncBlocks syncs the last synced block and all later ones, and returns the newest with its inode, or 0 if there is no
// block.
func (g *Gate) syncBlocks() (block, inode uint64, err error) {
	blocks, err := g.list()
	if err != nil {
		return 0, 0, err
	}
	from := g.block
	if len(blocks) > 0 && blocks[len(blocks)-1] < from {
		from = 0 // the stream was made anew
	}
	for _, n := range blocks {
		if n < from {
			continue
		}
		ino, err := g.syncFile(g.path(n))
		switch {
		case errors.Is(err, fs.ErrNotExist): // purged meanwhile
		case err != nil:
			return 0, 0, err
		default:
			block, inode = n, ino
		}
	}
	return block, inode, nil
}

// list returns the numbers of the existing blocks, in ascending order.
func (g *Gate) list() ([]uint64, error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		name, isBlock := strings.CutSuffix(e.Name(), blockSuffix)
		if n, err := strconv.ParseUint(name, 10, 64); isBlock && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// syncStream syncs all of a stream and the folders above it, up to the store directory:
// jetstream/<account>/streams/<name>.
func (g *Gate) syncStream(stream string) error {
	for _, dir := range []string{g.dir, stream} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if _, err := g.syncFile(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for dir, up := stream, 0; up <= 4; dir, up = filepath.Dir(dir), up+1 {
		if _, err := g.syncFile(dir); err != nil {
			return err
		}
	}
	blocks, err := g.list()
	if err == nil && len(blocks) > 0 {
		g.block = blocks[len(blocks)-1]
	}
	return err
}

// syncFile fsyncs a file or folder and returns its inode.
func (g *Gate) syncFile(path string) (uint64, error) {
	f, err := os.Open(path) //nolint:gosec // a file of the store directory
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := g.Fsync(f); err != nil {
		return 0, fmt.Errorf("%w: %w", errFsync, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino, nil
	}
	return 0, nil
}

// SettleRewritten returns when the blocks that the server has rewritten are on disk. The server syncs a block before it
// puts the block in the place of the old one. So SettleRewritten syncs only the names in the folder, and the newest
// blocks, which say which events are gone.
func (g *Gate) SettleRewritten(ctx context.Context) error {
	return g.settle(ctx, func() error {
		info, err := os.Stat(g.dir)
		if err != nil {
			return err
		}
		return g.syncNew(info.ModTime())
	})
}

// SettleAll returns when every block of the stream is on disk, about 0.1 ms each.
func (g *Gate) SettleAll(ctx context.Context) error {
	return g.settle(ctx, func() error {
		newest := g.block
		err := g.syncStream(filepath.Dir(g.dir))
		// syncNew must still start from the same block.
		g.block = newest
		return err
	})
}

// settle runs sync while the gate syncs nothing else. After a failed fsync it returns that error.
func (g *Gate) settle(ctx context.Context, sync func() error) error {
	if g == nil {
		return nil
	}
	err := g.Alone(ctx, func() error {
		if g.failed != nil {
			return g.failed
		}
		return sync()
	})
	if err != nil {
		return failure.Unavailable("", err)
	}
	return nil
}

// Alone runs work while the gate syncs nothing.
func (g *Gate) Alone(ctx context.Context, work func() error) error {
	select {
	case g.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.lock }()
	return work()
}
