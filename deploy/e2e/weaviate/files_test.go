package weaviate_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// holdsBytes reports whether a file under a folder holds a text.
func holdsBytes(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a file may go meanwhile
		}
		raw, err := os.ReadFile(path)
		found = found || err == nil && bytes.Contains(raw, []byte(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// codesOnDisk waits until Weaviate's files hold so many vectors rounded to a bit a number, and returns these: they are
// the values of buckets of their own. The rotation before the rounding is the same in each collection.
func codesOnDisk(t *testing.T, s *weaviatetest.Server, want int) (codes map[string]string) {
	t.Helper()
	const length = 8 + embeddingstest.Dimensions/8 // two numbers of 4 bytes, and the bits
	// An entry has a byte that tells whether it deletes, the length of the value and the value, those of the key.
	begin := binary.LittleEndian.AppendUint64([]byte{0}, length)
	end := binary.LittleEndian.AppendUint32(nil, 8)
	hang.Until(t, func() bool {
		codes = map[string]string{}
		names, err := filepath.Glob(filepath.Join(s.Dir(), "*", "*", "lsm", "vectors_compressed_*", "*"))
		require.NoError(t, err)
		for _, name := range names {
			raw, _ := os.ReadFile(name) // it may go meanwhile
			for at := bytes.Index(raw, begin); at >= 0; at = bytes.Index(raw, begin) {
				raw = raw[at+len(begin):]
				if len(raw) >= length && bytes.HasPrefix(raw[length:], end) {
					codes[fmt.Sprintf("%x", raw[:length])] = string(raw[:length])
				}
			}
		}
		return len(codes) == want
	}, "%d codes", len(codes))
	return codes
}

func floatsOfMeaning(t *testing.T, v []float32) []byte {
	t.Helper()
	raw, err := binary.Append(nil, binary.LittleEndian, v)
	require.NoError(t, err)
	return raw
}
