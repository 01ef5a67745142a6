//go:build linux

package cutfs_test

import (
	"maps"
	"os"
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
	data := must.Get(os.ReadFile(path))(t)
	return string(data)
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
