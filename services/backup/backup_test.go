package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/backup"
)

// source is a log whose first copies are cut off, cut of them.
type source struct {
	copies [][]byte
	cut    int
}

func (s *source) Partitions(context.Context) (int, error) { return len(s.copies), nil }

func (s *source) Snapshot(_ context.Context, k int) (backup.Copy, error) {
	b := s.copies[k]
	if k == 1 && s.cut > 0 {
		s.cut--
		b = b[:len(b)/2]
	}
	return backup.Copy{
		File: backup.File{Events: 1, RawBytes: 10}, ItemKey: "k", Body: io.NopCloser(bytes.NewReader(b)),
	}, nil
}

var parked = []projections.DeadLetter{{
	Projection: "audit", Position: events.Position{Partition: 1, Seq: 7}, EventID: "e", Reason: "a test", Attempts: 2,
	ParkedAt: time.Unix(7, 0).UTC(),
	Dropped:  &projections.Drop{Reason: "a known lie", By: "ada", At: time.Unix(9, 0).UTC()},
}}

func (*source) DeadLetters(context.Context) ([]projections.DeadLetter, error) { return parked, nil }

func copies(n int) (out [][]byte) {
	for i := range n {
		var b bytes.Buffer
		w := s2.NewWriter(&b)
		_, _ = w.Write(bytes.Repeat([]byte{byte(i), 'x', 'y'}, 100_000))
		_ = w.Close()
		out = append(out, b.Bytes())
	}
	return out
}

func none(string, int64, int64) {}

func TestACopyThatIsCutOffIsTakenAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "b")
	m, err := backup.Take(t.Context(), &source{copies(2), 2}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.NoError(t, err)
	require.EqualValues(t, 300_000, m.Files[1].RawBytes)
	whole, err := backup.Check(t.Context(), backup.Folder{Dir: dir}, none)
	require.NoError(t, err)
	defer whole.Close()
	info, err := os.Stat(filepath.Join(dir, "TURNS-0.snapshot"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "a backup holds texts")

	_, err = backup.Take(t.Context(), &source{copies(2), 0}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.ErrorIs(t, err, backup.ErrExists)
}

func TestWhatIsBrokenOffIsNoBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := backup.Take(t.Context(), &source{copies(2), 3}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.ErrorContains(t, err, "copy partition 1")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "the first copy alone: %v", left)
	_, err = backup.Check(t.Context(), backup.Folder{Dir: dir}, none)
	require.ErrorIs(t, err, backup.ErrDamaged)
	_, err = backup.Take(t.Context(), &source{copies(2), 0}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.NoError(t, err, "the same again begins anew")
}

// What is packed comes out as it was; a byte that changed on its way is found before the
// copy ends.
func TestPackedIsHeldAgainstItsSums(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := copies(2)
	_, err := backup.Take(t.Context(), &source{of, 0}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.NoError(t, err)
	erasures, err := backup.ReadErasures(strings.NewReader(`{"type":"turnledger.turn.started.v1","data":{}}` + "\n\n" + `{"type":"turnledger.session.erased.v1","data":{"session_id":"s","erased_by":"ops"}}`))
	require.NoError(t, err)
	require.Len(t, erasures, 1)
	_, err = backup.ReadErasures(strings.NewReader("not JSON"))
	require.ErrorContains(t, err, "line 1")
	whole, err := backup.Check(t.Context(), backup.Folder{Dir: dir}, none)
	require.NoError(t, err)
	defer whole.Close()
	var packed bytes.Buffer
	require.NoError(t, whole.Pack(&packed, erasures))

	got, err := backup.Unpack(bytes.NewReader(packed.Bytes()))
	require.NoError(t, err)
	require.Equal(t, "ops", got.Erasures[0].Data.ErasedBy)
	require.Equal(t, parked, got.DeadLetters)
	_, err = got.Next(1)
	require.Error(t, err, "in their order")
	for k := range of {
		r, err := got.Next(k)
		require.NoError(t, err)
		raw, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, of[k], raw)
	}

	flipped := bytes.Clone(packed.Bytes())
	flipped[bytes.Index(flipped, of[1])+len(of[1])/2] ^= 1
	got, err = backup.Unpack(bytes.NewReader(flipped))
	require.NoError(t, err)
	r, err := got.Next(0)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	r, err = got.Next(1)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.True(t, errors.Is(err, backup.ErrDamaged), err)
	require.ErrorContains(t, err, "TURNS-1.snapshot")
}
