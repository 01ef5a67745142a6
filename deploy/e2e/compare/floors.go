package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections/audit/localpg"
)

// floor is the common part of the three floors. They have no views, so nothing lags.
type floor struct{ pid int }

func (f floor) processor() time.Duration              { return processor(f.pid) }
func (f floor) memory(context.Context) (int64, int64) { return 0, peak(f.pid) }
func (floor) lag(context.Context) float64             { return 0 }
func (floor) settle(context.Context) error            { return nil }

// doing is a client that consists of one function.
type doing func(ctx context.Context, session string) (int, error)

func (d doing) do(ctx context.Context, session string) (int, error) { return d(ctx, session) }
func (doing) close()                                                {}

// turnsOf returns a client that records one turn.
func turnsOf(record func(ctx context.Context, session string) error) client {
	return doing(func(ctx context.Context, session string) (int, error) { return 1, record(ctx, session) })
}

// importBy records conversations of one turn from 64 connections.
func importBy(ctx context.Context, n int, record func(context.Context, string) error) (time.Duration, error) {
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range 64 {
		g.Go(func() error {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := record(ctx, "import-"+strconv.FormatInt(i, 10)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

// postgres inserts into bare tables: a row for each half of a turn, each in its own commit with PostgreSQL's default
// durability, over a pool of 20 connections, with an index over (session, id descending).
type postgres struct {
	floor
	server *localpg.Server
	pool   *pgxpool.Pool
}

func (*postgres) name() string { return "bare pgx" }

func (p *postgres) start(ctx context.Context, dir string) (err error) {
	p.server, err = localpg.Start(ctx, localpg.Config{
		DataDir: filepath.Join(dir, "pg"), Settings: []string{"shared_buffers=512MB"},
	})
	if err != nil {
		return err
	}
	p.pid, err = postmaster(filepath.Join(dir, "pg", "cluster"))
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(p.server.URL())
	if err != nil {
		return err
	}
	cfg.MaxConns = 20
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	_, err = p.pool.Exec(ctx, `CREATE TABLE messages (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		session text NOT NULL, role text NOT NULL, content text NOT NULL, created timestamptz NOT NULL DEFAULT now());
		CREATE INDEX ON messages (session, id DESC)`)
	return err
}

func postmaster(cluster string) (int, error) {
	text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	return pid, err
}

func (p *postgres) stop() error {
	p.pool.Close()
	return p.server.Stop(context.Background())
}

const insert = "INSERT INTO messages (session, role, content) VALUES ($1, $2, $3)"

func (p *postgres) record(ctx context.Context, session string) error {
	if _, err := p.pool.Exec(ctx, insert, session, "user", question()); err != nil {
		return err
	}
	_, err := p.pool.Exec(ctx, insert, session, "assistant", answer())
	return err
}

func (p *postgres) client(_ context.Context, w workload) (client, bool) {
	switch w {
	case twoCalls, long:
		return turnsOf(p.record), true
	case oneCall, batches:
		return nil, false
	case reads:
		return turnsOf(p.read), true
	}
	return nil, false
}

func (p *postgres) read(ctx context.Context, session string) error {
	rows, err := p.pool.Query(ctx, "SELECT role, content FROM messages WHERE session = $1 ORDER BY id DESC LIMIT $2",
		session, readWindow)
	if err != nil {
		return err
	}
	type message struct{ Role, Content string }
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	if err == nil && len(got) != readWindow {
		err = fmt.Errorf("%d messages, want %d", len(got), readWindow)
	}
	return err
}

func (p *postgres) fill(ctx context.Context, session string, turns int) error {
	_, err := p.pool.Exec(ctx, `INSERT INTO messages (session, role, content)
		SELECT $1, r, CASE r WHEN 'user' THEN $3 ELSE $4 END
		FROM generate_series(1, $2) n, unnest(ARRAY['user','assistant']) r`, session, turns, question(), answer())
	return err
}

func (p *postgres) imported(ctx context.Context, n int) (time.Duration, error) {
	return importBy(ctx, n, p.record)
}

// redis appends to a bare list, with an append-only file that is synced each second, and reads the last 12 entries.
type redis struct {
	floor
	process *process
	conn    rueidis.Client
}

func (*redis) name() string { return "bare Redis list" }

func (r *redis) start(ctx context.Context, dir string) (err error) {
	socket := filepath.Join(dir, "redis.sock")
	r.process, err = begin(dir, nil, "redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
	if err != nil {
		return err
	}
	r.pid = r.process.cmd.Process.Pid
	return ready(ctx, func() error {
		r.conn, err = rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{socket}, DisableCache: true, DisableAutoPipelining: true,
			DialCtxFn: unixDialer,
		})
		return err
	})
}

func (r *redis) stop() error {
	r.conn.Close()
	return r.process.stop()
}

func (r *redis) record(ctx context.Context, session string) error {
	for _, half := range []string{question(), answer()} {
		if err := r.conn.Do(ctx, r.conn.B().Rpush().Key(session).Element(half).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}

func (r *redis) client(_ context.Context, w workload) (client, bool) {
	switch w {
	case twoCalls, long:
		return turnsOf(r.record), true
	case oneCall, batches:
		return nil, false
	case reads:
		return turnsOf(func(ctx context.Context, session string) error {
			cmd := r.conn.B().Lrange().Key(session).Start(-readWindow).Stop(-1).Build()
			got, err := r.conn.Do(ctx, cmd).AsStrSlice()
			if err == nil && len(got) != readWindow {
				err = fmt.Errorf("%d messages, want %d", len(got), readWindow)
			}
			return err
		}), true
	}
	return nil, false
}

func (r *redis) fill(ctx context.Context, session string, turns int) error {
	for range turns {
		if err := r.record(ctx, session); err != nil {
			return err
		}
	}
	return nil
}

func (r *redis) imported(ctx context.Context, n int) (time.Duration, error) {
	return importBy(ctx, n, r.record)
}

// bareNATS publishes two messages a turn into a stream of a NATS server that syncs each write.
type bareNATS struct {
	floor
	process *process
	url     string
	conn    *nats.Conn
	js      jetstream.JetStream
}

func (*bareNATS) name() string { return "bare publishes" }

func (b *bareNATS) start(ctx context.Context, dir string) (err error) {
	if b.url, err = b.serve(ctx, dir); err != nil {
		return err
	}
	if b.conn, err = nats.Connect(b.url); err != nil {
		return err
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		return err
	}
	_, err = b.js.CreateStream(ctx, jetstream.StreamConfig{Name: "FLOOR", Subjects: []string{"floor.>"}})
	return err
}

// serve starts the NATS server, for which it runs this program again, and returns its address.
func (b *bareNATS) serve(ctx context.Context, dir string) (url string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if b.process, err = begin(dir, nil, self, "-nats", dir); err != nil {
		return "", err
	}
	b.pid = b.process.cmd.Process.Pid
	err = ready(ctx, func() error {
		text, err := os.ReadFile(filepath.Join(dir, "url"))
		if url = string(text); err == nil && url == "" {
			err = errors.New("no address yet")
		}
		return err
	})
	return url, err
}

func (b *bareNATS) stop() error {
	if b.conn != nil {
		b.conn.Close()
	}
	return b.process.stop()
}

func (b *bareNATS) record(ctx context.Context, session string) error {
	for _, half := range []string{question(), answer()} {
		if _, err := b.js.Publish(ctx, "floor."+session, []byte(half)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bareNATS) client(_ context.Context, w workload) (client, bool) {
	return turnsOf(b.record), w == twoCalls
}

func (*bareNATS) fill(context.Context, string, int) error { return nil }

func (b *bareNATS) imported(ctx context.Context, n int) (time.Duration, error) {
	return importBy(ctx, n, b.record)
}

func natsServer(ctx context.Context, dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, MaxPayload: 8 << 20,
		JetStream: true, StoreDir: filepath.Join(dir, "js"), SyncAlways: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("the server did not get ready")
	}
	if err := os.WriteFile(filepath.Join(dir, "url"), []byte(s.ClientURL()), 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
