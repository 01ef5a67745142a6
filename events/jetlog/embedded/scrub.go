package embedded

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/minio/highwayhash"
)

// The server says that an event is gone (a tombstone at the log's end) before it overwrites it. A server that is killed
// in between forgets the event and leaves its bytes, and nobody can ask for these bytes to be overwritten any more. So
// this package overwrites the events of all tombstones after an unclean stop, before it starts the server. It writes
// erased records in the form in which the server writes them (nats-server 2.15, filestore.go: eraseMsg and
// rebuildStateFromBufLocked).
const (
	recordHeader = 22 // length, sequence, time, length of the subject
	recordSum    = 8
	headersBit   = 1 << 31
	erasedBit    = 1 << 63
	tombstoneBit = 1 << 62
	longest      = 32 << 20
)

// ErrNodeRuns says that a process has files of a store directory open.
var ErrNodeRuns = errors.New("a server that runs has files of the store directory open")

// Scrubbed counts what Scrub has done: the blocks that it read, and the events that it overwrote.
type Scrubbed struct{ Blocks, Events int }

// Scrub does for the store directory of an outside node what Start does for that of the embedded server: it removes
// what a killed server left, and overwrites the events whose tombstones are there. It holds the directory's lock from
// then on, until the lock is closed: by the caller, and by the node that the caller hands it to.
func Scrub(dir string) (_ Scrubbed, lock *os.File, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return Scrubbed{}, nil, fmt.Errorf("the store directory %s is not there", dir)
	}
	lock, err = os.OpenFile(lockName(dir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Scrubbed{}, nil, fmt.Errorf("lock the store directory: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%w: %s; stop it first", ErrLocked, dir)
	case err == nil:
		err = unused(dir)
	}
	var done Scrubbed
	if err == nil {
		if err = clearLeftovers(dir); err == nil {
			done, err = scrub(dir)
		}
	}
	if err != nil {
		return done, nil, errors.Join(err, lock.Close())
	}
	return done, lock, nil
}

// unused returns ErrNodeRuns if a process has files of a directory's streams open. It sees the processes of this user
// and this container only, and a server that nobody writes to closes its files.
func unused(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(filepath.Join(dir, "jetstream"))
	}
	if err != nil {
		return err
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*") // none where there is no such file system
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir+string(filepath.Separator)) {
			return fmt.Errorf("%w: process %s, %s; stop it first", ErrNodeRuns, strings.Split(fd, "/")[2], to)
		}
	}
	return nil
}

// scrub overwrites, in the blocks of all streams, the events whose tombstones are there.
func scrub(dir string) (done Scrubbed, err error) {
	streams, err := filepath.Glob(filepath.Join(escapeGlob(dir), "jetstream", "*", "streams", "*", "msgs"))
	for _, msgs := range streams {
		err = errors.Join(err, done.stream(msgs))
	}
	if err != nil {
		return done, fmt.Errorf("overwrite what a killed server had begun to erase: %w", err)
	}
	return done, nil
}

// place is where a record stands in a stream's blocks.
type place struct{ block, offset int }

func (p place) before(o place) bool {
	return p.block < o.block || p.block == o.block && p.offset < o.offset
}

// stream scrubs a stream, from its newest block back: a tombstone concerns only a record before it. (After a power
// failure the same sequence may have been given to a new event.)
func (s *Scrubbed) stream(msgs string) error {
	blocks, err := blocksOf(msgs)
	tombstones := map[uint64]place{} // the last of each event
	for _, n := range slices.Backward(blocks) {
		if err == nil {
			err = s.block(msgs, n, tombstones)
		}
	}
	return err
}

// blocksOf returns the numbers of a stream's blocks, in ascending order.
func blocksOf(msgs string) ([]int, error) {
	names, err := filepath.Glob(filepath.Join(escapeGlob(msgs), "*.blk"))
	var out []int
	for _, name := range names {
		if n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".blk")); err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, err
}

func blockName(msgs string, n int) string { return filepath.Join(msgs, strconv.Itoa(n)+".blk") }

// block adds the tombstones of a block to those of later blocks, and overwrites the events of the block that they name.
func (s *Scrubbed) block(msgs string, n int, tombstones map[uint64]place) error {
	block, err := os.ReadFile(blockName(msgs, n))
	if err != nil {
		return err
	}
	s.Blocks++
	for offset, r := range records(block) {
		if seq := sequence(r); seq&tombstoneBit != 0 {
			if last, known := tombstones[seq&^tombstoneBit]; !known || last.block == n {
				tombstones[seq&^tombstoneBit] = place{n, offset}
			}
		}
	}
	stream := filepath.Base(filepath.Dir(msgs))
	key := sha256.Sum256([]byte(stream + "-" + strconv.Itoa(n)))
	changed := false
	for offset, r := range records(block) {
		seq := sequence(r)
		if by, gone := tombstones[seq]; gone && (place{n, offset}).before(by) && len(r) >= recordHeader+recordSum {
			overwrite(r, seq, key[:])
			changed = true
			s.Events++
		}
	}
	if !changed {
		return nil
	}
	return replace(blockName(msgs, n), block)
}

// records iterates over the offsets and records of a block, up to the first that can't be read.
func records(block []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for at := 0; len(block)-at >= recordHeader; {
			n := int(binary.LittleEndian.Uint32(block[at:]) &^ headersBit)
			if n < recordHeader || n > len(block)-at || n > longest || !yield(at, block[at:at+n]) {
				return
			}
			at += n
		}
	}
}

func sequence(record []byte) uint64 { return binary.LittleEndian.Uint64(record[4:]) }

func overwrite(r []byte, seq uint64, key []byte) {
	le := binary.LittleEndian
	le.PutUint32(r, uint32(len(r))) //nolint:gosec // at most 32 MB
	le.PutUint64(r[4:], seq|erasedBit)
	le.PutUint64(r[12:], 0)
	le.PutUint16(r[20:], 0)
	data, sum := r[recordHeader:len(r)-recordSum], r[len(r)-recordSum:]
	_, _ = rand.Read(data) // never fails
	digest, err := highwayhash.NewDigest64(key)
	if err != nil {
		panic(err) // the key is 32 bytes
	}
	_, _ = digest.Write(r[4:20])
	_, _ = digest.Write(data)
	copy(sum, digest.Sum(nil))
}

// replace replaces a block by another in one step.
func replace(name string, block []byte) error {
	tmp := name + ".tmp"
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // a file of the store
	if err != nil {
		return err
	}
	_, err = f.Write(block)
	if was, ok := info.Sys().(*syscall.Stat_t); ok { // an operator may do this as root
		err = errors.Join(err, f.Chmod(info.Mode()), f.Chown(int(was.Uid), int(was.Gid)))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, name)
}

// running returns the path of the file that marks a store whose server was not stopped.
func running(dir string) string { return filepath.Join(dir, "turnledger.running") }

// mend repairs a store whose server was killed, and marks the store as running.
func mend(dir string) error {
	if _, err := os.Stat(running(dir)); err == nil {
		err := errors.Join(clearLeftovers(dir), sealStreams(dir))
		_, failed := scrub(dir)
		if err := errors.Join(err, failed); err != nil {
			return err
		}
	}
	return os.WriteFile(running(dir), nil, 0o600)
}
