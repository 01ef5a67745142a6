//go:build linux

package cutfs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
)

// reference knows what a cut may leave, worked out without any of the model's machinery: for each
// name the files that may stand under it, for each file the bytes that are certain.
type reference struct {
	present map[string]int          // name → file, as processes see it
	may     map[string]map[int]bool // name → files (0: none) that may stand there after a cut
	files   map[int]*certain
	next    int
}

// certain is what must be found of one file, if it is found.
type certain struct {
	bytes          []int // -1: not certain
	size           int   // as processes see it
	minLen, maxLen int
	anchored       bool // was durable under some name, and never removed or replaced since
}

const slots = 4 // names per directory

func newReference() *reference {
	return &reference{present: map[string]int{}, may: map[string]map[int]bool{}, files: map[int]*certain{}}
}

func (r *reference) point(name string, file int) {
	if r.may[name] == nil {
		r.may[name] = map[int]bool{0: true}
	}
	r.may[name][file] = true
	if file == 0 {
		delete(r.present, name)
	} else {
		r.present[name] = file
	}
}

func (r *reference) create(name string) {
	r.next++
	r.files[r.next] = &certain{}
	r.point(name, r.next)
}

func (r *reference) drop(name string) {
	if f := r.present[name]; f != 0 {
		r.files[f].anchored = false
	}
	r.point(name, 0)
}

func (r *reference) rename(from, to string) {
	f := r.present[from]
	r.drop(to)
	r.point(from, 0)
	r.point(to, f)
}

func (r *reference) write(name string, off int, data []byte) {
	f := r.files[r.present[name]]
	for len(f.bytes) < off+len(data) {
		f.bytes = append(f.bytes, -1)
	}
	for i := range data {
		f.bytes[off+i] = -1
	}
	f.size = max(f.size, off+len(data))
	f.maxLen = max(f.maxLen, f.size)
}

func (r *reference) truncate(name string, size int) {
	f := r.files[r.present[name]]
	for i := min(size, f.size); i < len(f.bytes); i++ {
		f.bytes[i] = -1
	}
	for len(f.bytes) < size {
		f.bytes = append(f.bytes, -1)
	}
	f.size, f.minLen, f.maxLen = size, min(f.minLen, size), max(f.maxLen, size)
}

func (r *reference) syncFile(name string, content []byte) {
	f := r.files[r.present[name]]
	f.bytes = f.bytes[:0]
	for _, b := range content {
		f.bytes = append(f.bytes, int(b))
	}
	f.size, f.minLen, f.maxLen = len(content), len(content), len(content)
}

func (r *reference) syncDir(dir string) {
	for name := range r.may {
		if path.Dir(name) == dir {
			r.may[name] = map[int]bool{r.present[name]: true}
		}
	}
	for name, f := range r.present {
		if path.Dir(name) == dir {
			r.files[f].anchored = true
		}
	}
}

// check fails if the image breaks a promise.
func (r *reference) check(img *cutfs.Image, ids map[string]int) error {
	found := map[int]string{}
	for name := range r.may {
		data, err := img.ReadFile(name)
		f := ids[identity(data)]
		if err == nil && f == 0 {
			return fmt.Errorf("%s has lost its head", name)
		}
		if !r.may[name][f] {
			return fmt.Errorf("%s is file %d, may be %v", name, f, slices.Sorted(maps.Keys(r.may[name])))
		}
		if f == 0 {
			continue
		}
		if other, twice := found[f]; twice {
			return fmt.Errorf("file %d is at %s and %s", f, other, name)
		}
		found[f] = name
		if err := r.files[f].check(data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for id, f := range r.files {
		if f.anchored && found[id] == "" {
			return fmt.Errorf("durable file %d is nowhere", id)
		}
	}
	return nil
}

func (f *certain) check(data []byte) error {
	if len(data) < f.minLen || len(data) > f.maxLen {
		return fmt.Errorf("%d bytes, want %d to %d", len(data), f.minLen, f.maxLen)
	}
	for i, b := range data {
		if want := f.bytes[i]; want >= 0 && int(b) != want {
			return fmt.Errorf("byte %d is %d, want %d", i, b, want)
		}
	}
	return nil
}

const identityLen = 8

// identity is the head of each file, synced before anything else happens to it and never overwritten.
func identity(data []byte) string { return string(data[:min(identityLen, len(data))]) }

func TestNothingSyncedIsEverLost(t *testing.T) {
	t.Parallel()
	for _, opts := range []cutfs.Options{{}, {FsyncFileMakesNewNameDurable: true}} {
		for seed := range uint64(25) {
			t.Run(fmt.Sprintf("%+v/seed=%d", opts, seed), func(t *testing.T) {
				t.Parallel()
				run := newRandomRun(t, opts, seed)
				for range 150 {
					run.step()
				}
				for cut := range int64(40) {
					require.NoError(t, run.ref.check(run.disk.Cut(cut), run.ids), "seed %d cut %d", seed, cut)
				}
			})
		}
	}
}

// randomRun does the same random operations on a disk and on the reference.
type randomRun struct {
	t    *testing.T
	rng  *rand.Rand
	disk *disk
	ref  *reference
	ids  map[string]int
}

func newRandomRun(t *testing.T, opts cutfs.Options, seed uint64) *randomRun {
	run := &randomRun{t: t, rng: rand.New(rand.NewPCG(seed, 1)), disk: mount(t, opts), ref: newReference(),
		ids: map[string]int{}}
	run.disk.mkdir("p")
	run.disk.mkdir("q")
	run.disk.sync(".")
	return run
}

func (r *randomRun) step() {
	name := r.name()
	if r.ref.present[name] == 0 {
		r.create(name)
		return
	}
	switch r.rng.IntN(12) {
	case 0:
		r.disk.remove(name)
		r.ref.drop(name)
	case 1, 2:
		if to := r.name(); to != name {
			r.disk.rename(name, to)
			r.ref.rename(name, to)
		}
	case 3:
		size := identityLen + r.rng.IntN(2000)
		require.NoError(r.t, os.Truncate(r.disk.path(name), int64(size)))
		r.ref.truncate(name, size)
	case 4, 5:
		r.disk.sync(name)
		r.ref.syncFile(name, []byte(read(r.t, r.disk.path(name))))
	case 6:
		r.disk.sync(path.Dir(name))
		r.ref.syncDir(path.Dir(name))
	default:
		r.write(name)
	}
}

func (r *randomRun) name() string {
	return fmt.Sprintf("%c/%d", "pq"[r.rng.IntN(2)], r.rng.IntN(slots))
}

func (r *randomRun) create(name string) {
	r.ref.create(name)
	id := fmt.Sprintf("%08d", r.ref.next)
	r.ids[id] = r.ref.next
	r.disk.write(name, id)
	r.disk.sync(name)
	r.ref.syncFile(name, []byte(id))
}

func (r *randomRun) write(name string) {
	data := make([]byte, 1+r.rng.IntN(1500))
	for i := range data {
		data[i] = byte(r.rng.IntN(256))
	}
	off := identityLen + r.rng.IntN(1000)
	f := r.disk.open(name, 0)
	r.disk.put(f, string(data), off)
	require.NoError(r.t, f.Close())
	r.ref.write(name, off, data)
}
