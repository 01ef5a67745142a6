package systemtest_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// storage names the folders of a deployment's stores.
type storage struct {
	nats, redis, postgres string
	redisURL, postgresURL string
}

func newStorage(t *testing.T) (*storage, []string) {
	t.Helper()
	pg, redis := pg.Start(t), redistest.Start(t)
	d := &storage{
		nats: filepath.Join(stack.DataDir(t), "d"), postgres: filepath.Dir(pg.LogFile()),
		redis:    filepath.Dir(strings.TrimPrefix(redis.URL(), "unix://")),
		redisURL: redis.URL(), postgresURL: pg.URL(),
	}
	return d, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
}

func (d *storage) sql(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.postgresURL)
	require.NoError(t, err)
	return conn
}

// flush writes to disk what the stores hold in memory, and cleans up as their operators do.
func (d *storage) flush(t *testing.T) {
	t.Helper()
	conn := d.sql(t)
	// As docs/erasure.md asks of the operator.
	for _, statement := range []string{"vacuum (full, analyze) turnledger.questions, turnledger.answers, " +
		"turnledger.sessions, turnledger.event_ledger",
		"checkpoint"} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
	c, err := rueidis.NewClient(rueidis.MustParseURL(d.redisURL))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Do(t.Context(), c.B().Save().Build()).Error())
}

// storesHolding names the stores whose files hold each of the texts. PostgreSQL's WAL is left out: it holds what was
// written until it is recycled.
func (d *storage) storesHolding(texts ...string) map[string][]string {
	out := map[string][]string{}
	for name, dir := range map[string]string{"nats": d.nats, "redis": d.redis, "postgres": d.postgres} {
		for text := range natstest.HoldingEach(texts, []string{dir}, "pg_wal") {
			out[text] = append(out[text], name)
		}
	}
	return out
}
