package jetlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// gate makes sequences of one stream durable with fsyncs that all who wait share
// (DESIGN §3). The server has written an event to its block file by the time that
// its PubAck, a delivery or a read shows it; on Linux an fsync through any
// descriptor flushes the inode. A nil gate is open: the server itself syncs.
//
// An fsync that fails is final: what it lost can't be told, so the gate never
// acknowledges again.
type gate struct {
	dir     string
	durable Watermark
	wanted  atomic.Uint64
	// turn is held by the one waiter that syncs for all.
	turn chan struct{}

	// Under turn: the newest block that was synced, its inode, and the error that
	// ended all.
	block  uint64
	inode  uint64
	failed error
}

const blockSuffix = ".blk"

// openGate opens the gate of a stream whose files are under dir ("…/streams/NAME"),
// and syncs all that is there.
func openGate(dir string) (*gate, error) {
	g := &gate{dir: filepath.Join(dir, "msgs"), turn: make(chan struct{}, 1)}
	if info, err := os.Stat(g.dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: no folder %s", ErrLayout, g.dir)
	}
	if err := g.syncAll(dir); err != nil {
		return nil, err
	}
	return g, nil
}

// wait returns when every event up to seq, which the server must have shown, is
// durable.
func (g *gate) wait(ctx context.Context, seq uint64) error {
	if g == nil || g.durable.At() >= seq {
		return nil
	}
	for {
		old := g.wanted.Load()
		if old >= seq || g.wanted.CompareAndSwap(old, seq) {
			break
		}
	}
	for g.durable.At() < seq {
		select {
		case g.turn <- struct{}{}:
			err := g.lead(seq)
			<-g.turn
			if err != nil {
				return fmt.Errorf("%w: %w", ErrUnavailable, err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lead syncs for all who have said what they want until now.
func (g *gate) lead(seq uint64) error {
	if g.durable.At() >= seq {
		return nil
	}
	if g.failed != nil {
		return g.failed
	}
	target := g.wanted.Load()
	if err := g.sync(); err != nil {
		g.failed = err
		return err
	}
	g.durable.Advance(target)
	return nil
}

// sync makes every block from the last synced one to the newest durable. Blocks
// are opened anew by path, since a rewrite replaces the inode; a block that is new
// or was replaced needs its folder synced too.
func (g *gate) sync() error {
	block, inode, replaced := g.block, uint64(0), false
	for n := g.block; ; n++ {
		ino, err := syncFile(filepath.Join(g.dir, strconv.FormatUint(n, 10)+blockSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			if n == g.block {
				// Purged or erased away: start over from what is there.
				return g.syncAll("")
			}
			break
		}
		if err != nil {
			return err
		}
		if n != g.block || ino != g.inode {
			replaced = true
		}
		block, inode = n, ino
	}
	g.block, g.inode = block, inode
	if !replaced {
		return nil
	}
	_, err := syncFile(g.dir)
	return err
}

// syncAll syncs every file of the stream's messages, and where the stream's own
// folder is given that too, with those above it. It is for the start, and for what
// is rare: purge, erasure.
func (g *gate) syncAll(stream string) error {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	g.block, g.inode = 1, 0
	for _, e := range entries {
		ino, err := syncFile(filepath.Join(g.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		name, isBlock := strings.CutSuffix(e.Name(), blockSuffix)
		if n, err := strconv.ParseUint(name, 10, 64); isBlock && err == nil && n >= g.block {
			g.block, g.inode = n, ino
		}
	}
	if _, err := syncFile(g.dir); err != nil {
		return err
	}
	if stream == "" {
		return nil
	}
	return syncParents(stream)
}

// syncParents syncs a stream's folder with its files, and the folders above it up
// to the store directory: jetstream/<account>/streams/<name>.
func syncParents(stream string) error {
	entries, err := os.ReadDir(stream)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := syncFile(filepath.Join(stream, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for dir, up := stream, 0; up <= 4; dir, up = filepath.Dir(dir), up+1 {
		if _, err := syncFile(dir); err != nil {
			return err
		}
	}
	return nil
}

// syncFile fsyncs a file or folder and gives its inode.
func syncFile(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("fsync: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino, nil
	}
	return 0, nil
}
