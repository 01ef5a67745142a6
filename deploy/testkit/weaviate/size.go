package weaviate

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// Disk returns the bytes of all files of the server.
func (s *Server) Disk() (bytes int64) {
	s.t.Helper()
	require.NoError(s.t, filepath.WalkDir(s.Dir(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a file may go meanwhile
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	}))
	return bytes
}

// Memory returns the bytes of memory of the server that no file holds, its heap above all; 0 where the system does not
// say.
func (s *Server) Memory() int64 {
	pid := s.process.Pid
	// In a network of its own the server is a child of the process that passes connections on.
	found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range found {
		text, _ := os.ReadFile(name)
		if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			pid = child
		}
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "RssAnon:"); is {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
