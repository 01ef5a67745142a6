package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/turnledger/turnledger/events"
)

// The server stages each atomic batch in a file store of its own, in the stream's folder "batches", and syncs it
// several times (nats-server 2.15, newBatchStore). On a disk these fsyncs are most of what a batch costs. What is
// staged needs no disk: the server asks for it only after a kill, to end a batch that it had begun to commit, and a
// tmpfs outlives a kill. So "batches" becomes a link to a folder in memory. After a power cut the folder is gone, and a
// batch that nobody was answered may stand in part, as it may with the folder on disk, since the server drops what it
// has staged before the log's gate syncs the stream (docs/decisions.md#batches-are-staged-in-memory).
const (
	sharedMemory = "/dev/shm"
	tmpfs        = 0x01021994
	// stagingRoom is how much of the memory must be free for each stream of the log: an append of several events has
	// at most 8 MB.
	stagingRoom   = 16 << 20
	stagingPrefix = "turnledger-"
)

// staging is the folder in memory of one store directory. The file note holds the folder's name as long as it may hold
// something, so that the start after a kill finds it.
type staging struct {
	mu     sync.Mutex
	dir    string // the store directory
	memory string // the tmpfs
	folder string // "" for none
}

func (g *staging) note() string { return filepath.Join(g.dir, "turnledger.staging") }

// links returns where the streams of the log stage their batches.
func (g *staging) links() []string {
	name := strings.TrimSuffix(events.StreamName(0), "0") + "*"
	pattern := filepath.Join(escapeGlob(g.dir), "jetstream", "*", "streams", name)
	streams, _ := filepath.Glob(pattern) // fails for a bad pattern only
	for i, stream := range streams {
		streams[i] = filepath.Join(stream, "batches")
	}
	return streams
}

// adopt is called before the server starts. It finds the folder of a server that was killed, so that the server ends
// the batches that it had begun to commit. It removes links that lead anywhere else: after the machine was started
// again, anybody may have made a folder of that name.
func (g *staging) adopt() (err error) {
	name, no := os.ReadFile(g.note())
	if no == nil && g.isOurs(string(name)) {
		g.folder = string(name)
	}
	for _, link := range g.links() {
		if _, no := os.Readlink(link); no == nil && !g.leads(link) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// unlink removes the links to the folder.
func (g *staging) unlink() (err error) {
	for _, link := range g.links() {
		if g.leads(link) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// leads reports whether a link leads to the folder.
func (g *staging) leads(link string) bool {
	to, err := os.Readlink(link)
	return err == nil && to == g.folder
}

// isOurs reports whether a folder was made by this user, and nobody else may enter it.
func (g *staging) isOurs(folder string) bool {
	info, err := os.Lstat(folder) //nolint:gosec // the note is a file of the store directory
	if err != nil || filepath.Dir(folder) != g.memory || !strings.HasPrefix(filepath.Base(folder), stagingPrefix) {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode() == fs.ModeDir|0o700 && int(st.Uid) == os.Geteuid()
}

// hasRoom reports whether the memory is a tmpfs with so many bytes free.
func (g *staging) hasRoom(bytes uint64) bool {
	var st syscall.Statfs_t
	if syscall.Statfs(g.memory, &st) != nil {
		return false
	}
	kind := int64(st.Type)                                      //nolint:unconvert // another width elsewhere
	return kind == tmpfs && st.Bavail*uint64(st.Bsize) >= bytes //nolint:gosec,unconvert // as in room
}

// clear removes what a killed server left in the folder. No link may lead there.
func (g *staging) clear() error {
	if g.folder == "" {
		return nil
	}
	left, err := os.ReadDir(g.folder)
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(g.folder, e.Name())))
	}
	return err
}

// stage makes links of the streams that have none. Where the memory has no room it takes the links away, and then what
// is left in the folder: the server makes a folder on the disk again.
func (g *staging) stage() error {
	links := g.links()
	needed := uint64(len(links)) * stagingRoom
	if g.folder != "" {
		needed /= 2 // batches that are under way take a part
	}
	if len(links) == 0 || !g.hasRoom(needed) {
		if slices.ContainsFunc(links, g.leads) {
			return g.unlink()
		}
		return g.clear()
	}
	if err := g.makeFolder(); err != nil {
		return err
	}
	var err error
	for _, link := range links {
		if g.leads(link) {
			continue
		}
		// Remove takes a link, or a folder without a batch; with one the next call tries again. The server makes a
		// folder if it comes in between.
		if no := os.Remove(link); no != nil && !errors.Is(no, fs.ErrNotExist) {
			continue
		}
		if no := os.Symlink(g.folder, link); !errors.Is(no, fs.ErrExist) {
			err = errors.Join(err, no)
		}
	}
	return err
}

// makeFolder makes the folder, if it is not there any more: logind, for one, removes a user's files in shared memory
// when the user logs out.
func (g *staging) makeFolder() (err error) {
	if g.folder != "" && g.isOurs(g.folder) {
		return nil
	}
	if g.folder, err = os.MkdirTemp(g.memory, stagingPrefix); err != nil {
		g.folder = ""
		return err
	}
	return os.WriteFile(g.note(), []byte(g.folder), 0o600)
}

// remove is called when the server has stopped. A folder that holds a batch stays for the next start.
func (g *staging) remove() error {
	if g.folder == "" || os.Remove(g.folder) != nil {
		return nil
	}
	err := errors.Join(g.unlink(), os.Remove(g.note()))
	g.folder = ""
	return err
}

// StageInMemory makes the server stage atomic batches to the streams of the log in memory, where a tmpfs has room. Run
// calls it once a second; a caller that has just made the streams need not wait for that. With Always the server stages
// on the disk, so that no batch is ever left in part.
func (s *Server) StageInMemory() {
	if s.cfg.Sync == Always {
		return
	}
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	if err := s.staging.stage(); err != nil {
		s.log.log.Debug("batches are staged on the disk", "err", err)
	}
}

// restage is called when the server has read its streams, and so has dropped the links to what it had staged.
func (s *Server) restage() error {
	s.staging.mu.Lock()
	err := s.staging.clear()
	if err == nil && s.cfg.Sync == Always {
		err = s.staging.remove()
	}
	s.staging.mu.Unlock()
	if err != nil {
		return fmt.Errorf("remove what a killed server had staged: %w", err)
	}
	s.StageInMemory()
	return nil
}
