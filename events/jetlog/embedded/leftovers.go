package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"

	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

// clearLeftovers removes the half-written files that a killed server left beside a block: "N.blk.tmp" of an erasure and
// "N.new" of a compaction. They are copies of whole blocks, and nothing ever reads them (nats-server 2.15): a text that
// is erased later would live on in them for ever (docs/decisions.md#leftovers-of-a-killed-server-are-removed-at-start).
// The directory must be locked, and its server not started yet.
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

// sealStreams repairs the folders of streams that were being created, changed or deleted when the server was killed.
// The server writes a stream's description, and then a checksum over it. If the checksum is missing or outdated, the
// server does not open the stream, and its events are lost to readers (nats-server 2.15, fileStore.writeStreamMeta). A
// stream whose deletion has begun has no description any more; sealStreams then deletes only the mark of a restore,
// since other folders may hold events.
func sealStreams(dir string) error {
	folders, err := filepath.Glob(filepath.Join(escapeGlob(dir), "jetstream", "*", "streams", "[^.]*"))
	for _, folder := range folders {
		if bad := sealStream(folder); bad != nil {
			err = errors.Join(err, fmt.Errorf("mend the stream of a killed server: %w", bad))
		}
	}
	return err
}

func sealStream(folder string) error {
	name := filepath.Base(folder)
	meta, err := os.ReadFile(filepath.Join(folder, "meta.inf")) //nolint:gosec // a file of the store directory
	var is struct{ Name string }
	switch {
	case errors.Is(err, fs.ErrNotExist) && name == layout.RestoringStream:
		return os.RemoveAll(folder)
	case errors.Is(err, fs.ErrNotExist) || json.Unmarshal(meta, &is) != nil || is.Name != name:
		return nil // the server reports it
	case err != nil:
		return err
	}
	key := sha256.Sum256([]byte(name))
	digest, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return err
	}
	_, _ = digest.Write(meta)
	sum := []byte(hex.EncodeToString(digest.Sum(nil)))
	path := filepath.Join(folder, "meta.sum")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, sum) { //nolint:gosec // as above
		return nil
	}
	return os.WriteFile(path, sum, 0o600)
}

var globSigns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func escapeGlob(path string) string { return globSigns.Replace(path) }
