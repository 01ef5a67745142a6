package audit_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/projections/audit"
)

// Another process that makes the tables is waited for as long as it takes, and a server that takes no connection any
// more is not.
func TestTablesThatTakeLongAreWaitedFor(t *testing.T) {
	t.Parallel()
	url := pg.URL(t)
	to := newGate(t, url)
	other := must.Get(pgx.Connect(t.Context(), url))(t)
	tx := must.Get(other.Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), "select pg_advisory_xact_lock(hashtextextended('turnledger.audit', 0))"))(t)
	prepare := func() (prepared chan error) {
		a := must.Get(audit.Look(t.Context(), audit.Config{URL: to.url}))(t)
		t.Cleanup(a.Close)
		a.AskEach(100 * time.Millisecond)
		prepared = make(chan error, 1)
		go func() { prepared <- a.Prepare(t.Context()) }()
		return prepared
	}

	waits := prepare()
	hang.Until(t, func() bool { return to.let.Load() >= 6 })
	require.Empty(t, waits, "it was asked, and answers")
	to.silent.Store(true)
	require.ErrorIs(t, <-waits, audit.ErrUnavailable)

	to.silent.Store(false)
	waits = prepare()
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-waits)
}

// What Prepare asks beside a migration is bounded, however long a migration may take.
func TestTablesThatAreLockedAreTriedAgainLater(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 10)
	other := must.Get(pgx.Connect(t.Context(), a.url))(t)
	tx := must.Get(other.Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), "lock table turnledger.generation in access exclusive mode"))(t)
	require.ErrorIs(t, a.Prepare(t.Context()), audit.ErrUnavailable)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, a.Prepare(t.Context()))
}

// gate is a network before PostgreSQL that can hold back connections that are made from now on.
type gate struct {
	url    string
	let    atomic.Int32
	silent atomic.Bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	cfg := must.Get(pgx.ParseConfig(to))(t)
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	g := &gate{url: fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", cfg.User, l.Addr(), cfg.Database)}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = in.Close() })
			if g.silent.Load() {
				continue
			}
			out, err := net.Dial("unix", filepath.Join(cfg.Host, fmt.Sprint(".s.PGSQL.", cfg.Port)))
			if err != nil {
				t.Error(err)
				return
			}
			g.let.Add(1)
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	})
	return g
}
