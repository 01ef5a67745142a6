package pg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(Runner(m)) }

func TestURLGivesEachTestItsOwnEmptyDatabase(t *testing.T) {
	t.Parallel()
	for n := range 8 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), URL(t))
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "CREATE TABLE mine (n int)")
			require.NoError(t, err, "the table of another test would be in the way")
			// conn is left open: the drop takes it along.
		})
	}
}

func TestURLDropsTheDatabaseWithItsTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) { url = URL(t) })
	_, err := pgx.Connect(t.Context(), url)
	require.ErrorContains(t, err, "does not exist")
}

func TestStartGivesAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	srv := Start(t)
	require.NotContains(t, URL(t), srv.URL())
	require.NoError(t, srv.Stop(t.Context()))
	_, err := pgx.Connect(t.Context(), srv.URL())
	require.Error(t, err)
	require.NoError(t, srv.Restart(t.Context()))
	conn, err := pgx.Connect(t.Context(), srv.URL())
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func TestMissingPostgresFailsTheTest(t *testing.T) {
	t.Parallel()
	c := cluster{binDir: t.TempDir()}
	rec := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.database(rec)
	}()
	<-done
	require.Contains(t, rec.fatal, "install")
	require.NoError(t, c.stop())
}

// recorder keeps what a test would have died of.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatal(args ...any)        { r.fatal = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.TB.Context() }

func TestSweepRemovesOnlyWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	old := time.Now().Add(-2 * abandonedAfter)
	folder := func(name string, when time.Time) string {
		dir := filepath.Join(temp, dirPrefix+name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chtimes(dir, when, when))
		return dir
	}
	abandoned, young, held := folder("abandoned", old), folder("young", time.Now()), folder("held", old)
	lock := flock.New(filepath.Join(held, "lock"))
	_, err := lock.TryLock()
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(held, old, old)) // making the lock has touched it
	sweep(temp)
	require.NoDirExists(t, abandoned)
	require.DirExists(t, young)
	require.DirExists(t, held)
	require.NoError(t, lock.Unlock())
}
