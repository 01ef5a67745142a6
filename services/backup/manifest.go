package backup

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/projections"
)

// Names of the files of a backup besides the copies.
const (
	manifestName = "manifest.json"
	erasuresName = "erasures.jsonl"
)

// format is the format of manifests that this version reads and writes.
const format = 1

// Manifest says what a backup holds. TakenAt is only information for people.
type Manifest struct {
	Format     int       `json:"format"`
	Version    string    `json:"turnledger"`
	TakenAt    time.Time `json:"taken_at"`
	Partitions int       `json:"partitions"`
	Files      []File    `json:"files"`
	// DeadLetters of the views: the log does not record what operators decided about them.
	DeadLetters []projections.DeadLetter `json:"dead_letters,omitempty"`
	// ItemKey is the key of the ids of items and of the keys of calls. Without it, ids that clients hold name nothing.
	ItemKey string `json:"item_key"`
}

// File is the copy of a partition. Bytes and SHA256 describe the packed file; RawBytes is its unpacked size. First,
// Last and Events describe the partition when it was copied.
type File struct {
	Name      string `json:"name"`
	Partition int    `json:"partition"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"`
	RawBytes  int64  `json:"raw_bytes"`
	First     uint64 `json:"first_sequence"`
	Last      uint64 `json:"last_sequence"`
	Events    uint64 `json:"events"`
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// Events returns the number of events in all partitions.
func (m *Manifest) Events() (n uint64) {
	for _, f := range m.Files {
		n += f.Events
	}
	return n
}

// ErrDamaged says that a backup differs from its manifest, or has no readable manifest. The error names the file.
var ErrDamaged = errors.New("the backup is damaged or not whole: take another")

// ErrExists says that the place for a new backup holds a backup already.
var ErrExists = errors.New("there is a backup already: name another place")

func damaged(name, why string) error { return fmt.Errorf("%s %s: %w", name, why, ErrDamaged) }

// fileName returns the file name of a partition's copy.
func fileName(partition int) string { return "TURNS-" + strconv.Itoa(partition) + ".snapshot" }

// check fails if a manifest is incomplete or of another format.
func (m *Manifest) check() error {
	if m.Format != format {
		return fmt.Errorf("%s has format %d, and this version reads %d: "+
			"restore it with the version that took it (%s): %w", manifestName, m.Format, format, m.Version, ErrDamaged)
	}
	if m.Partitions < 1 || len(m.Files) != m.Partitions {
		return damaged(manifestName, "does not name a file for each partition")
	}
	if m.ItemKey == "" {
		return damaged(manifestName, "has no key of items")
	}
	for k, f := range m.Files {
		if f.Partition != k || f.Name != fileName(k) || f.Bytes <= 0 || len(f.SHA256) != 64 {
			return damaged(manifestName, fmt.Sprintf("does not tell of partition %d as it should", k))
		}
	}
	return nil
}
