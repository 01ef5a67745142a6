//go:build linux

package cutfs_test

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
)

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(data)
}

func file(t testing.TB, img *cutfs.Image, name string) string {
	t.Helper()
	data, err := img.ReadFile(name)
	require.NoError(t, err)
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

func keys(seen map[string]int) []string {
	var all []string
	for k := range seen {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func TestSyncedFileSurvivesEveryCut(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "durable")
	require.Equal(t, []string{"durable"}, keys(d.outcomes(func(img *cutfs.Image) string {
		return file(t, img,
			"f")
	})))
}

func TestWhatIsSyncedIsSureWithoutACut(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "durable")
	f := d.open("f", os.O_APPEND)
	for range 50 {
		_, err := f.WriteString(", and more")
		require.NoError(t, err)
		d.write("g", "nothing")
		left := d.Synced()
		require.Equal(t, "f", listing(left))
		require.Equal(t, "durable", file(t, left, "f"))
	}
	d.sync("f")
	require.Equal(t, "durable"+strings.Repeat(", and more", 50), file(t, d.Synced(), "f"))
}

func TestSyncReachesWhatOtherDescriptorsWrote(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "")
	f := d.open("f", 0)
	_, err := f.WriteString("durable")
	require.NoError(t, err)
	d.sync("f")
	_, err = f.WriteAt([]byte("DUR"), 0)
	require.NoError(t, err)
	require.NoError(t, unix.Fdatasync(int(d.open("f", 0).Fd())))
	require.Equal(t, []string{"DURable"}, keys(d.outcomes(func(img *cutfs.Image) string {
		return file(t, img,
			"f")
	})))
}

func TestSynchronousDescriptorNeedsNoSync(t *testing.T) {
	t.Parallel()
	for _, flag := range []int{unix.O_SYNC, unix.O_DSYNC} {
		d := mount(t, cutfs.Options{})
		f := d.open("f", flag)
		d.sync(".")
		_, err := f.WriteString("durable")
		require.NoError(t, err)
		require.Equal(t, []string{"durable"}, keys(d.outcomes(func(img *cutfs.Image) string {
			return file(t, img,
				"f")
		})))
	}
}

func TestUnsyncedWritesAreKeptOrLostEachByItself(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "....")
	f := d.open("f", 0)
	for i, b := range []byte("ab") {
		_, err := f.WriteAt([]byte{b}, int64(i))
		require.NoError(t, err)
	}
	seen := d.outcomes(func(img *cutfs.Image) string { return file(t, img, "f") })
	require.Equal(t, []string{"....", ".b..", "a...", "ab.."}, keys(seen))
}

func TestUnsyncedTruncateIsKeptOrLost(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "abcd")
	require.NoError(t, os.Truncate(d.path("f"), 1))
	_, err := d.open("f", os.O_APPEND).WriteString("z")
	require.NoError(t, err)
	seen := d.outcomes(func(img *cutfs.Image) string { return file(t, img, "f") })
	require.Equal(t, []string{"a", "abcd", "az", "azcd"}, keys(seen))
}

func TestLastUnsyncedWriteMayBeTorn(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "head")
	data := strings.Repeat("x", 2000)
	_, err := d.open("f", os.O_APPEND).WriteString(data)
	require.NoError(t, err)
	whole := "head" + data
	seen := map[string]bool{}
	for seed := range int64(300) {
		img := d.Cut(seed)
		got := file(t, img, "f")
		require.True(t, strings.HasPrefix(got, "head"), "seed %d", seed)
		require.LessOrEqual(t, len(got), len(whole), "seed %d", seed)
		switch {
		case got == "head":
			seen["lost"] = true
		case got == whole:
			seen["whole"] = true
		case !strings.HasPrefix(whole, got):
			require.Len(t, got, len(whole), "seed %d", seed)
			seen["holes"] = true
		case len(got)%512 == 0:
			seen["sector"] = true
		default:
			seen["byte"] = true
		}
		if got != "head" && got != whole {
			require.Equal(t, 1, img.Stats().WritesTorn, "seed %d", seed)
		}
	}
	require.Len(t, seen, 5, "%v", seen)
}

func TestNewNameNeedsDirectorySync(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.write("f", "durable")
	d.sync("f")
	require.Equal(t, []string{"", "f"}, keys(d.outcomes(listing)))

	d = mount(t, cutfs.Options{FsyncFileMakesNewNameDurable: true})
	d.mkdir("dir")
	d.write("dir/f", "durable")
	d.sync("dir/f")
	require.Equal(t, []string{"dir/ dir/f"}, keys(d.outcomes(listing)))
}

func TestALinkSurvivesAsItIsOrNotAtAll(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	require.NoError(t, os.Symlink("somewhere/else", d.path("link")))
	seen := d.outcomes(func(img *cutfs.Image) string {
		to, err := img.ReadFile("link")
		if err != nil {
			return "none"
		}
		return string(to)
	})
	require.Equal(t, []string{"none", "somewhere/else"}, keys(seen))
	d = mount(t, cutfs.Options{})
	require.NoError(t, os.Symlink("somewhere/else", d.path("link")))
	d.sync(".")
	again := remount(t, d.Cut(1))
	to, err := os.Readlink(again.path("link"))
	require.NoError(t, err)
	require.Equal(t, "somewhere/else", to)
}

func TestRenameIsAtomicAndNeedsDirectorySync(t *testing.T) {
	t.Parallel()
	contents := func(img *cutfs.Image) string {
		return listing(img) + "=" + file(t, img, "f")
	}
	d := mount(t, cutfs.Options{})
	d.save("f", "old")
	d.save("tmp", "new")
	d.rename("tmp", "f")
	require.Equal(t, []string{"f tmp=old", "f=new"}, keys(d.outcomes(contents)))

	d = mount(t, cutfs.Options{})
	d.save("f", "old")
	d.save("tmp", "new")
	d.rename("tmp", "f")
	d.sync(".")
	require.Equal(t, []string{"f=new"}, keys(d.outcomes(contents)))
}

func TestRenameMayComeBeforeTheData(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "old")
	d.write("tmp", "n")
	d.rename("tmp", "f")
	d.sync(".")
	contents := func(img *cutfs.Image) string { return file(t, img, "f") }
	require.Equal(t, []string{"", "n"}, keys(d.outcomes(contents)))

	d = mount(t, cutfs.Options{ReplacingRenameSyncsData: true})
	d.save("f", "old")
	d.write("tmp", "n")
	d.rename("tmp", "f")
	require.Equal(t, []string{"n", "old"}, keys(d.outcomes(contents)))
}

func TestOperationsOnOneNameKeepTheirOrder(t *testing.T) {
	t.Parallel()
	t.Run("create, rename, rename", func(t *testing.T) {
		t.Parallel()
		d := mount(t, cutfs.Options{})
		d.write("a", "x")
		d.rename("a", "b")
		d.rename("b", "c")
		require.Equal(t, []string{"", "a", "b", "c"}, keys(d.outcomes(listing)))
	})
	t.Run("unlink, create again", func(t *testing.T) {
		t.Parallel()
		d := mount(t, cutfs.Options{})
		d.save("a", "old")
		d.remove("a")
		d.write("a", "new")
		d.sync("a")
		seen := d.outcomes(func(img *cutfs.Image) string {
			data, err := img.ReadFile("a")
			if err != nil {
				return "gone"
			}
			return string(data)
		})
		require.Equal(t, []string{"gone", "new", "old"}, keys(seen))
	})
}

func TestMoveNeverLosesADurableFile(t *testing.T) {
	t.Parallel()
	t.Run("into a new directory", func(t *testing.T) {
		t.Parallel()
		d := mount(t, cutfs.Options{})
		d.save("f", "x")
		d.mkdir("dir")
		d.rename("f", "dir/f")
		require.Equal(t, []string{"dir/ dir/f", "dir/ f", "f"}, keys(d.outcomes(listing)))
	})
	t.Run("out of a directory that is removed", func(t *testing.T) {
		t.Parallel()
		d := mount(t, cutfs.Options{})
		d.mkdir("dir")
		d.save("dir/f", "x")
		d.sync(".")
		d.rename("dir/f", "f")
		d.remove("dir")
		require.Equal(t, []string{"dir/ dir/f", "dir/ f", "f"}, keys(d.outcomes(listing)))
	})
	t.Run("directories moved around each other", func(t *testing.T) {
		t.Parallel()
		d := mount(t, cutfs.Options{})
		d.mkdir("a")
		d.mkdir("b")
		d.save("a/f", "x")
		d.sync(".")
		d.rename("a", "b/a")
		d.rename("b/a", "c")
		d.rename("b", "c/b")
		require.Equal(t, []string{"a/ a/f b/", "b/ b/a/ b/a/f", "b/ c/ c/f", "c/ c/b/ c/f"}, keys(d.outcomes(listing)))
	})
	t.Run("as the server purges", func(t *testing.T) {
		t.Parallel()
		d := mount(t, cutfs.Options{})
		d.mkdir("msgs")
		d.save("msgs/1.blk", "last")
		d.sync(".")
		d.mkdir("new")
		d.rename("msgs/1.blk", "new/1.blk")
		d.rename("msgs", "old")
		d.rename("new", "msgs")
		d.remove("old")
		for _, left := range keys(d.outcomes(listing)) {
			require.Contains(t, left, "1.blk")
		}
	})
}

func TestOrderedMetadataIsAPrefix(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{OrderedMetadata: true})
	d.mkdir("dir")
	d.write("dir/a", "")
	d.write("b", "")
	d.sync("dir")
	d.write("c", "")
	d.write("d", "")
	require.Equal(t, []string{"b c d dir/ dir/a", "b c dir/ dir/a", "b dir/ dir/a", "dir/ dir/a"},
		keys(d.outcomes(listing)))
}
