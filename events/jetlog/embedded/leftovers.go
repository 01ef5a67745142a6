package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// clearLeftovers removes what a server that was killed had half written beside a block:
// "N.blk.tmp" of an erasure and "N.new" of a compaction. They are copies of whole blocks,
// nothing ever reads them (nats-server 2.15), and a text that is erased later would live
// on in them for ever (docs/decisions.md#leftovers-of-a-killed-server-are-removed-at-start). The directory is locked,
// and its server not started yet.
func clearLeftovers(dir string) error {
	for _, pattern := range []string{"*.blk.tmp", "*.new"} {
		names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "jetstream", "*", "streams", "*", "msgs", pattern))
		if err != nil {
			return fmt.Errorf("look for leftovers of a killed server: %w", err)
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a leftover of a killed server: %w", err)
			}
		}
	}
	return nil
}

var globSigns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func escapeGlob(path string) string { return globSigns.Replace(path) }
