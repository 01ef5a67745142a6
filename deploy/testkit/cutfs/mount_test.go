//go:build linux

package cutfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// disk is a mounted disk in a test.
type disk struct {
	*cutfs.FS
	t   testing.TB
	dir string
}

func mount(t testing.TB, opts cutfs.Options) *disk {
	t.Helper()
	dir := t.TempDir()
	m, err := cutfs.Mount(dir, opts)
	return mounted(t, dir, m, err)
}

func remount(t testing.TB, img *cutfs.Image) *disk {
	t.Helper()
	dir := t.TempDir()
	m, err := img.Mount(dir)
	return mounted(t, dir, m, err)
}

func mounted(t testing.TB, dir string, m *cutfs.FS, err error) *disk {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Unmount()) })
	return &disk{FS: m, t: t, dir: dir}
}

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *disk) open(name string, flags int) *os.File {
	d.t.Helper()
	f := must.Get(os.OpenFile(d.path(name), os.O_CREATE|os.O_RDWR|flags, 0o600))(d.t)
	d.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (d *disk) write(name, data string) {
	d.t.Helper()
	must.Get(d.open(name, os.O_TRUNC).WriteString(data))(d.t)
}

// put writes at an offset.
func (d *disk) put(f *os.File, data string, at int) {
	d.t.Helper()
	must.Get(f.WriteAt([]byte(data), int64(at)))(d.t)
}

// save writes a file and makes data and name durable.
func (d *disk) save(name, data string) {
	d.t.Helper()
	d.write(name, data)
	d.sync(name)
	d.sync(filepath.Dir(name))
}

// sync fsyncs a file or directory.
func (d *disk) sync(name string) {
	d.t.Helper()
	f := must.Get(os.Open(d.path(name)))(d.t)
	require.NoError(d.t, f.Sync())
	require.NoError(d.t, f.Close())
}

func (d *disk) mkdir(name string) {
	d.t.Helper()
	require.NoError(d.t, os.Mkdir(d.path(name), 0o700))
}

func (d *disk) rename(from, to string) {
	d.t.Helper()
	require.NoError(d.t, os.Rename(d.path(from), d.path(to)))
}

func (d *disk) remove(name string) {
	d.t.Helper()
	require.NoError(d.t, os.Remove(d.path(name)))
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Ino
}

func TestMountFailsLoudly(t *testing.T) {
	t.Parallel()
	must.Fail(cutfs.Mount(filepath.Join(t.TempDir(), "missing"), cutfs.Options{}))(t, os.ErrNotExist)
}

func TestSystemCalls(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	t.Run("writes are seen at once by every descriptor", func(t *testing.T) {
		f, other := d.open("seen", 0), d.open("seen", 0)
		d.put(f, "world", 6)
		d.put(other, "hello ", 0)
		require.Equal(t, "hello world", read(t, d.path("seen")))
		require.NoError(t, f.Truncate(5))
		require.Equal(t, "hello", read(t, d.path("seen")))
		require.EqualValues(t, 5, must.Get(other.Stat())(t).Size())
	})
	t.Run("append goes to the end", func(t *testing.T) {
		d.write("log", "a")
		f := d.open("log", os.O_APPEND)
		must.Get(d.open("log", os.O_APPEND).Write([]byte("b")))(t)
		must.Get(f.Write([]byte("c")))(t)
		require.Equal(t, "abc", read(t, d.path("log")))
	})
	t.Run("large files", func(t *testing.T) {
		big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // 3 MiB: more than one request
		require.NoError(t, os.WriteFile(d.path("big"), big, 0o600))
		require.True(t, bytes.Equal(big, []byte(read(t, d.path("big")))))
	})
	t.Run("many names", func(t *testing.T) {
		d.mkdir("many")
		for i := range 500 {
			d.write(fmt.Sprintf("many/%04d", i), "x")
		}
		require.Len(t, must.Get(os.ReadDir(d.path("many")))(t), 500)
		require.NoError(t, os.RemoveAll(d.path("many")))
		require.NoFileExists(t, d.path("many"))
	})
	t.Run("an inode number stays with its file", func(t *testing.T) {
		d.write("blk", "old")
		d.write("blk.tmp", "new")
		held := d.open("blk", 0)
		before, tmp := inode(t, d.path("blk")), inode(t, d.path("blk.tmp"))
		d.rename("blk.tmp", "blk")
		require.Equal(t, tmp, inode(t, d.path("blk")))
		require.NotEqual(t, before, tmp)
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(int(held.Fd()), &st))
		require.Equal(t, before, st.Ino, "the replaced file lives on while it is open")
		require.Equal(t, "old", string(must.Get(io.ReadAll(held))(t)))
	})
	t.Run("a change of names changes the directory's time", func(t *testing.T) {
		before := must.Get(os.Stat(d.dir))(t)
		hang.Until(t, func() bool {
			d.write("touch", "x")
			d.remove("touch")
			after, err := os.Stat(d.dir)
			return err == nil && after.ModTime().After(before.ModTime())
		})
	})
	t.Run("directory errors", func(t *testing.T) {
		d.mkdir("full")
		d.write("full/f", "x")
		require.ErrorIs(t, os.Mkdir(d.path("full"), 0o700), os.ErrExist)
		require.ErrorIs(t, syscall.Rmdir(d.path("full")), syscall.ENOTEMPTY)
		require.ErrorIs(t, syscall.Unlink(d.path("full")), syscall.EISDIR)
		require.ErrorIs(t, os.Rename(d.path("none"), d.path("full/f")), os.ErrNotExist)
		must.Fail(os.OpenFile(d.path("full/f"), os.O_CREATE|os.O_EXCL, 0o600))(t, os.ErrExist)
	})
	t.Run("symbolic links", func(t *testing.T) {
		aside := t.TempDir()
		require.NoError(t, os.Symlink(aside, d.path("link")))
		require.ErrorIs(t, os.Symlink(aside, d.path("link")), os.ErrExist)
		d.write("link/inside", "there")
		require.Equal(t, "there", read(t, filepath.Join(aside, "inside")))
		require.Equal(t, aside, must.Get(os.Readlink(d.path("link")))(t))
		require.NoError(t, os.RemoveAll(d.path("link")))
		require.FileExists(t, filepath.Join(aside, "inside"), "a link goes, not what it leads to")
	})
	t.Run("statfs", func(t *testing.T) {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(d.dir, &st))
		require.Greater(t, st.Bavail*uint64(st.Bsize), uint64(1<<30))
	})
	t.Run("flock", func(t *testing.T) {
		one, two := flock.New(d.path("lock")), flock.New(d.path("lock"))
		ok := must.Get(one.TryLock())(t)
		require.True(t, ok)
		ok = must.Get(two.TryLock())(t)
		require.False(t, ok)
		require.NoError(t, one.Unlock())
		ok = must.Get(two.TryLock())(t)
		require.True(t, ok)
		require.NoError(t, two.Unlock())
	})
}

func TestAfterTheCutNothingWorksAndNothingChanges(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.save("f", "kept")
	f := d.open("f", 0)
	img := d.Cut(1)
	must.Fail(f.WriteString("lost"))(t, syscall.EIO)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	must.Fail(f.ReadAt(make([]byte, 1), 0))(t, syscall.EIO)
	must.Fail(os.ReadFile(d.path("f")))(t, syscall.EIO)
	require.ErrorIs(t, os.Rename(d.path("f"), d.path("g")), syscall.EIO)
	require.ErrorIs(t, os.Mkdir(d.path("d"), 0o700), syscall.EIO)
	must.Fail(os.Stat(d.path("f")))(t, syscall.EIO)
	require.Equal(t, []string{"f"}, img.Paths())
	require.Equal(t, "kept", holds("f")(img))
	require.Equal(t, img.Paths(), d.Cut(2).Paths())
}

func TestProgramsMayOutliveTheCut(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{OutliveCut: true})
	d.mkdir("dir")
	d.sync(".")
	d.save("dir/f", "kept")
	d.write("dir/g", "maybe")
	d.CutAfter(1)
	d.rename("dir/f", "dir/h")
	<-d.Off()
	before := d.outcomes(listing)
	d.save("dir/g", "too late")
	d.save("late", "too late")
	d.sync("dir/h")
	d.remove("dir/h")
	require.Equal(t, before, d.outcomes(listing))
	require.Equal(t, []string{"dir/ dir/f", "dir/ dir/f dir/g", "dir/ dir/g dir/h", "dir/ dir/h"}, keys(before))
	require.Equal(t, "too late", read(t, d.path("late")))
	for content := range d.outcomes(holds("dir/g")) {
		require.True(t, content == "none" || strings.HasPrefix("maybe", content) || len(content) == len("maybe"),
			content)
		require.NotContains(t, content, "late")
	}
}

func TestSurvivorCanBeMountedAndCutAgain(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.mkdir("dir")
	d.sync(".")
	require.NoError(t, os.Symlink("somewhere/else", d.path("dir/link")))
	d.save("dir/f", "one")
	img := d.Cut(1)
	before := inode(t, remount(t, img).path("dir/f"))
	d = remount(t, img)
	require.Equal(t, "one", read(t, d.path("dir/f")))
	require.Equal(t, "somewhere/else", must.Get(os.Readlink(d.path("dir/link")))(t))
	require.Equal(t, before, inode(t, d.path("dir/f")))
	d.save("dir/g", "two")
	require.NotEqual(t, before, inode(t, d.path("dir/g")))
	img = d.Cut(2)
	require.Equal(t, []string{"dir/", "dir/f", "dir/g", "dir/link"}, img.Paths())
	require.Equal(t, "two", holds("dir/g")(img))
}

func TestCutAfterCountsChanges(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	f := d.open("f", 0)
	d.CutAfter(3)
	for i := range 3 {
		require.NoError(t, must.Err(f.Write([]byte{byte(i)})), "the last change before the cut still answers")
	}
	<-d.Off()
	must.Fail(f.Write([]byte{4}))(t, syscall.EIO)
}

func TestCutAtRename(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.mkdir("dir")
	d.CutAtRename(func(from, to string) bool { return from == "tmp" && to == "f" }, 2, 1)
	for range 2 {
		d.write("dir/tmp", "")
		d.rename("dir/tmp", "dir/other")
		d.write("tmp", "")
		d.rename("tmp", "dir/f")
	}
	select {
	case <-d.Off():
		require.Fail(t, "one more change was to come")
	default:
	}
	d.mkdir("more")
	<-d.Off()
}

func TestUnmountWorksWhileFilesAreOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := must.Get(cutfs.Mount(dir, cutfs.Options{}))(t)
	f := must.Get(os.Create(filepath.Join(dir, "f")))(t)
	defer func() { _ = f.Close() }()
	require.NoError(t, m.Unmount())
	require.Error(t, must.Err(f.WriteString("x")))
	require.Empty(t, must.Get(os.ReadDir(dir))(t))
}

func TestConcurrentUseWhileCutting(t *testing.T) {
	t.Parallel()
	d := mount(t, cutfs.Options{})
	d.CutAfter(400)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				err := os.WriteFile(d.path(fmt.Sprintf("%d-%d", w, i%3)), []byte("data"), 0o600)
				if errors.Is(err, syscall.EIO) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	<-d.Off()
	img := d.Cut(1)
	wg.Wait()
	require.Equal(t, img.Paths(), d.Cut(1).Paths(), "one state and one seed: one image")
}
