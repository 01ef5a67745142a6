//go:build linux

package cutfs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
	"github.com/turnledger/turnledger/deploy/testkit/must"
)

func read(t testing.TB, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

// outcomes cuts with many seeds and counts what describe says of each image.
func (d *disk) outcomes(describe func(*cutfs.Image) string) map[string]int {
	seen := map[string]int{}
	for seed := range int64(300) {
		seen[describe(d.Cut(seed))]++
	}
	return seen
}

// listing describes an image by its names.
func listing(img *cutfs.Image) string { return strings.Join(img.Paths(), " ") }

// holds describes an image by the content of a file.
func holds(name string) func(*cutfs.Image) string {
	return func(img *cutfs.Image) string {
		data, err := img.ReadFile(name)
		if err != nil {
			return "none"
		}
		return string(data)
	}
}

func keys(seen map[string]int) []string { return slices.Sorted(maps.Keys(seen)) }

// What may be left after a cut is all of this, and nothing else.
func TestWhatACutMayLeave(t *testing.T) {
	t.Parallel()
	f, named := holds("f"), cutfs.Options{FsyncFileMakesNewNameDurable: true}
	namesAndF := func(img *cutfs.Image) string { return listing(img) + "=" + f(img) }
	for name, c := range map[string]struct {
		opts     cutfs.Options
		do       func(*disk)
		describe func(*cutfs.Image) string
		want     []string
	}{
		"a synced file": {do: func(d *disk) { d.save("f", "durable") }, describe: f, want: []string{"durable"}},
		"what other descriptors wrote is synced": {do: func(d *disk) {
			d.save("f", "")
			w := d.open("f", 0)
			d.put(w, "durable", 0)
			d.sync("f")
			d.put(w, "DUR", 0)
			require.NoError(d.t, unix.Fdatasync(int(d.open("f", 0).Fd())))
		}, describe: f, want: []string{"DURable"}},
		"a descriptor with O_SYNC needs no sync": {do: func(d *disk) {
			w := d.open("f", unix.O_SYNC)
			d.sync(".")
			d.put(w, "durable", 0)
		}, describe: f, want: []string{"durable"}},
		"nor one with O_DSYNC": {do: func(d *disk) {
			w := d.open("f", unix.O_DSYNC)
			d.sync(".")
			d.put(w, "durable", 0)
		}, describe: f, want: []string{"durable"}},
		"each write by itself": {do: func(d *disk) {
			d.save("f", "....")
			w := d.open("f", 0)
			d.put(w, "a", 0)
			d.put(w, "b", 1)
		}, describe: f, want: []string{"....", ".b..", "a...", "ab.."}},
		"a truncation or not": {do: func(d *disk) {
			d.save("f", "abcd")
			require.NoError(d.t, os.Truncate(d.path("f"), 1))
			must.Get(d.open("f", os.O_APPEND).WriteString("z"))(d.t)
		}, describe: f, want: []string{"a", "abcd", "az", "azcd"}},
		"a new name or not": {do: func(d *disk) { d.write("f", "durable"); d.sync("f") }, describe: listing,
			want: []string{"", "f"}},
		"new names are synced with the file": {opts: named, do: func(d *disk) {
			d.mkdir("dir")
			d.write("dir/f", "durable")
			d.sync("dir/f")
		}, describe: listing, want: []string{"dir/ dir/f"}},
		"a link as it is or not at all": {do: func(d *disk) {
			require.NoError(d.t, os.Symlink("somewhere/else", d.path("f")))
		}, describe: f, want: []string{"none", "somewhere/else"}},
		"a rename as a whole or not": {do: replace, describe: namesAndF, want: []string{"f tmp=old", "f=new"}},
		"a synced rename": {do: func(d *disk) { replace(d); d.sync(".") }, describe: namesAndF,
			want: []string{"f=new"}},
		"a rename before the data": {do: func(d *disk) { replaceUnsynced(d); d.sync(".") }, describe: f,
			want: []string{"", "n"}},
		"a rename that syncs the data": {opts: cutfs.Options{ReplacingRenameSyncsData: true}, do: replaceUnsynced,
			describe: f, want: []string{"n", "old"}},
		"renames in their order": {do: func(d *disk) {
			d.write("a", "x")
			d.rename("a", "b")
			d.rename("b", "c")
		}, describe: listing, want: []string{"", "a", "b", "c"}},
		"a removal before a new file": {do: func(d *disk) {
			d.save("f", "old")
			d.remove("f")
			d.write("f", "new")
			d.sync("f")
		}, describe: f, want: []string{"new", "none", "old"}},
		"a move into a new directory": {do: func(d *disk) {
			d.save("f", "x")
			d.mkdir("dir")
			d.rename("f", "dir/f")
		}, describe: listing, want: []string{"dir/ dir/f", "dir/ f", "f"}},
		"a move out of a directory that is removed": {do: func(d *disk) {
			d.mkdir("dir")
			d.save("dir/f", "x")
			d.sync(".")
			d.rename("dir/f", "f")
			d.remove("dir")
		}, describe: listing, want: []string{"dir/ dir/f", "dir/ f", "f"}},
		"directories moved around each other": {do: func(d *disk) {
			d.mkdir("a")
			d.mkdir("b")
			d.save("a/f", "x")
			d.sync(".")
			d.rename("a", "b/a")
			d.rename("b/a", "c")
			d.rename("b", "c/b")
		}, describe: listing, want: []string{"a/ a/f b/", "b/ b/a/ b/a/f", "b/ c/ c/f", "c/ c/b/ c/f"}},
		"a file, as the server purges": {do: func(d *disk) {
			d.mkdir("msgs")
			d.save("msgs/1.blk", "last")
			d.sync(".")
			d.mkdir("new")
			d.rename("msgs/1.blk", "new/1.blk")
			d.rename("msgs", "old")
			d.rename("new", "msgs")
			d.remove("old")
		}, describe: func(img *cutfs.Image) string {
			return map[bool]string{true: "there", false: "lost"}[strings.Contains(listing(img), "1.blk")]
		}, want: []string{"there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mount(t, c.opts)
			c.do(d)
			require.Equal(t, c.want, keys(d.outcomes(c.describe)))
		})
	}
}

// replace renames a synced file over another one.
func replace(d *disk) {
	d.save("f", "old")
	d.save("tmp", "new")
	d.rename("tmp", "f")
}

// replaceUnsynced is replace with a file that is not synced.
func replaceUnsynced(d *disk) {
	d.save("f", "old")
	d.write("tmp", "n")
	d.rename("tmp", "f")
}

func TestWhatIsSyncedIsSureWithoutACut(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "durable")
	f := d.open("f", os.O_APPEND)
	for range 50 {
		must.Get(f.WriteString(", and more"))(t)
		d.write("g", "nothing")
		require.Equal(t, "f", listing(d.Synced()))
		require.Equal(t, "durable", holds("f")(d.Synced()))
	}
	d.sync("f")
	require.Equal(t, "durable"+strings.Repeat(", and more", 50), holds("f")(d.Synced()))
}

func TestLastUnsyncedWriteMayBeTorn(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "head")
	data := strings.Repeat("x", 2000)
	must.Get(d.open("f", os.O_APPEND).WriteString(data))(t)
	whole := "head" + data
	require.Equal(t, []string{"byte", "holes", "lost", "sector", "whole"}, keys(d.outcomes(func(i *cutfs.Image) string {
		switch got := holds("f")(i); {
		case got == "head":
			return "lost"
		case got == whole:
			return "whole"
		case !strings.HasPrefix(got, "head"):
			return "no head"
		case len(got) == len(whole):
			return "holes"
		case !strings.HasPrefix(whole, got):
			return "another text"
		case len(got)%512 == 0:
			return "sector"
		}
		return "byte"
	})))
}

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
