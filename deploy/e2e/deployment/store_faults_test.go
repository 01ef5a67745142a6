package deployment_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

// linkedStores are a Redis and a PostgreSQL, and the links to them.
type linkedStores struct {
	t             *testing.T
	redis         *redistest.Server
	pg            *localpg.Server
	toRedis, toPG *link
}

// dialRedis opens a connection to Redis for commands that are one line.
func (s *linkedStores) dialRedis() (ask func(line string)) {
	s.t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(s.redis.URL(), "unix://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	answers := bufio.NewReader(conn)
	return func(line string) {
		s.t.Helper()
		_, err = fmt.Fprintf(conn, "%s\r\n", line)
		require.NoError(s.t, err)
		answer, err := answers.ReadString('\n')
		require.NoError(s.t, err)
		require.NotEqual(s.t, "-", answer[:1], "%s: %s", line, answer)
	}
}

// exec runs a statement in PostgreSQL, again where a deadlock ended it: to drop a schema takes the locks
// of its tables in another order than its writers take them. Nor may the audit of a slow machine have made
// the schema yet.
func (s *linkedStores) exec(sql string) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.pg.URL())
	require.NoError(s.t, err)
	defer func() { _ = conn.Close(s.t.Context()) }()
	const deadlock, noSchema = "40P01", "3F000"
	for began := time.Now(); time.Since(began) < 3*time.Minute; pause.For(s.t.Context(), 10*time.Millisecond) {
		var pg *pgconn.PgError
		_, err = conn.Exec(s.t.Context(), sql)
		if !errors.As(err, &pg) || pg.Code != deadlock && pg.Code != noSchema {
			break
		}
	}
	require.NoError(s.t, err)
}

// faults returns what is done to the stores, one after the other, each for a time under load.
func (s *linkedStores) faults(pass func(time.Duration), away, slow time.Duration) []struct {
	name string
	do   func()
} {
	latency := `{"name":"slow","type":"latency","attributes":{"latency":400,"jitter":300}}`
	return []struct {
		name string
		do   func()
	}{
		{"Redis is stopped, and comes back with what it held",
			func() { s.redis.Stop(); pass(away); s.redis.Restart(redistest.Kept) }},
		{"Redis is stopped, and comes back empty",
			func() { s.redis.Stop(); pass(away); s.redis.Restart(redistest.Empty) }},
		{"Redis is emptied under way", func() { s.dialRedis()("FLUSHALL"); pass(slow) }},
		{"PostgreSQL is stopped", func() {
			require.NoError(s.t, s.pg.Stop(s.t.Context()))
			pass(away)
			require.NoError(s.t, s.pg.Restart(s.t.Context()))
		}},
		{"PostgreSQL is emptied under way", func() { s.exec("drop schema turnledger cascade"); pass(slow) }},
		{"the links are cut", func() {
			a, b := s.toRedis.cut(), s.toPG.cut()
			pass(slow)
			a()
			b()
		}},
		{"the links are slow", func() {
			a, b := s.toRedis.degrade(latency), s.toPG.degrade(latency)
			pass(slow)
			a()
			b()
		}},
		{"nothing comes through", func() {
			const silent = `{"name":"silent","type":"timeout","attributes":{"timeout":0}}`
			a, b := s.toRedis.degrade(silent), s.toPG.degrade(silent)
			pass(slow)
			a()
			b()
		}},
		{"all connections of both are taken", func() {
			ask := s.dialRedis()
			ask("CONFIG SET maxclients 1")
			ask("CLIENT KILL TYPE normal")
			free := s.takeConnections()
			pass(slow)
			free()
			ask("CONFIG SET maxclients 10000")
		}},
	}
}

// takeConnections ends all other connections to PostgreSQL, and takes as many as there may be.
func (s *linkedStores) takeConnections() (free func()) {
	s.t.Helper()
	var taken []*pgx.Conn
	s.exec("select pg_terminate_backend(pid) from pg_stat_activity " +
		"where pid <> pg_backend_pid() and backend_type = 'client backend'")
	for {
		conn, err := pgx.Connect(s.t.Context(), s.pg.URL())
		if err != nil {
			require.ErrorContains(s.t, err, "53300", "too many")
			break
		}
		taken = append(taken, conn)
	}
	return func() {
		for _, c := range taken {
			_ = c.Close(s.t.Context())
		}
	}
}

// Redis and PostgreSQL are stopped, emptied, cut off, slow, and without a connection to
// spare, under load. No request fails meanwhile, and the views equal a fresh fold at the end.
func TestWritesAndReadsGoOnWhileStoresFail(t *testing.T) {
	t.Parallel()
	s := &linkedStores{t: t, redis: redistest.Start(t), pg: pg.Start(t)}
	s.toRedis, s.toPG = newLink(t, strings.TrimPrefix(s.redis.URL(), "unix://")), newLink(t, socketPath(t, s.pg.URL()))
	f := newDeployment(t, map[string]int{roleAPI: 1, roleContext: 1, roleRecent: 1, roleAudit: 1, roleEraser: 1},
		"TURNLEDGER_REDIS_URL=redis://"+s.toRedis.address(),
		"TURNLEDGER_POSTGRES_URL=postgres://turnledger@"+s.toPG.address()+
			"/turnledger?sslmode=disable&pool_max_conns=2")
	away, slow := time.Second, time.Second
	if stack.Long() {
		away, slow = time.Minute, 20*time.Second
	}
	c := startUsers(f, stack.Seed(t), 3, 0)
	for _, fault := range s.faults(f.wait, away, slow) {
		began := time.Now()
		fault.do()
		f.wait(slow / 4)
		t.Logf("%s: %s", fault.name, time.Since(began).Round(time.Millisecond))
	}
	c.finish()
	c.check()
}
