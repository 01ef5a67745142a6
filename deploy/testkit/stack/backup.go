package stack

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Backup is a backup of the sessions s0, s1, … of two turns each, and of the session "gone", which was erased after the
// backup.
type Backup struct {
	Dir      string
	Erasures string // the file of the later erasures
}

// BackupSessions is the number of sessions s0, s1, … of a Backup.
const BackupSessions = 5

// TakeBackup records sessions at a server of its own, which is started with args, and backs them up.
func TakeBackup(t testing.TB, args ...string) Backup {
	t.Helper()
	p := Serve(t, nil, args...)
	for i := range BackupSessions {
		p.RecordExchange(t, fmt.Sprint("s", i), 0)
		p.RecordExchange(t, fmt.Sprint("s", i), 1)
	}
	p.RecordExchange(t, "gone", 0)
	for i := range 4 { // so that a copy has several parts
		p.RecordTurn(t, "long", fmt.Sprint("r", i), "question", unpackable(100_000))
	}
	b := Backup{filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "erasures.jsonl")}
	for _, args := range [][]string{
		{"backup", b.Dir}, {"erase", "gone", "--wait"},
		{"replay", "--type", "turnledger.session.erased.v1", "-o", b.Erasures},
	} {
		code, _, errs := p.Run(t, args...)
		require.Equal(t, ExitDone, code, errs)
	}
	return b
}

// unpackable returns a text that compression shortens by a quarter at most.
func unpackable(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()
}
