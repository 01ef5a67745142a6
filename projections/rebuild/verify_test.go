package rebuild_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

// verified returns the differences, "session what", and how many sessions were looked at.
func verified(t testing.TB, log *jetlog.Log, v view, sample int) (found []string, sessions int) {
	t.Helper()
	check := rebuild.NewVerification(log, v, rebuild.Config{Rules: rules, Feeding: runner.Feeding{MaxBatch: 64}})
	sessions = must.Get(check.Run(t.Context(), sample, func(d projections.Difference) error {
		require.NotEqual(t, d.View, d.Log)
		found = append(found, d.SessionID+" "+d.What)
		return nil
	}))(t)
	return found, sessions
}

func TestVerifyFindsNothingInAViewThatEqualsTheLog(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log, v, _ := fed(t, open, 2, 8, 9)
		found, sessions := verified(t, log, v, 0)
		require.Empty(t, found)
		require.Equal(t, 8, sessions)
		found, sessions = verified(t, log, v, 3)
		require.Empty(t, found)
		require.Equal(t, 3, sessions)
		// Beside a load, and of what a rebuild made.
		load, stop := context.WithCancel(t.Context())
		defer stop()
		var g errgroup.Group
		g.Go(func() error {
			for i := 9; load.Err() == nil; i++ {
				for n := range 8 {
					if err := appendTurn(t.Context(), log, n, i); err != nil {
						return err
					}
					pause(load, 5*time.Millisecond)
				}
			}
			return nil
		})
		for range 3 {
			require.NoError(t, rebuilt(t, log, v))
			found, _ := verified(t, log, v, 0)
			require.Empty(t, found)
			found, _ = verified(t, log, v, 4)
			require.Empty(t, found)
		}
		stop()
		require.NoError(t, g.Wait())
	})
}

// Each row of each table that is changed, taken out or put in is found.
func TestVerifyFindsTamperedRows(t *testing.T) {
	t.Parallel()
	url := pg.URL(t)
	log, v, _ := fed(t, func(t testing.TB, log *jetlog.Log) view { return auditOn(t, log, url) }, 1, 4, 9)
	must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.SessionDescribed{
		SessionID: "s2", RequestID: "d", Title: "Particles"}}}))(t)
	caughtUp(t, log, v)
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	for sql, want := range map[string][]string{
		`update turnledger.answers set answer_neutral = 'a lie' where turn_id = (
			select turn_id from turnledger.turns
			where session_id = 's1' and status = 'finalized' limit 1)`: {"s1 answers"},
		`update turnledger.questions set metadata = '{}' where turn_id = (
			select turn_id from turnledger.turns
			where session_id = 's2' and status = 'finalized' limit 1)`: {"s2 questions"},
		"delete from turnledger.sessions where session_id = 's3'": {"s3 session"},
		`insert into turnledger.session_links select linked_position, linked_at, partition, 'never', identity_id
			from turnledger.session_links where session_id = 's0'`: {"never link"},
		`delete from turnledger.event_ledger where seq = (
			select min(seq) from turnledger.event_ledger where session_id = 's1')`: {"s1 ledger"},
		"update turnledger.sessions set finalized = finalized + 1 where session_id = 's0'": {"s0 session"},
		`update turnledger.event_ledger set description_terms = description_terms[2:]
			where description_terms is not null`: {"s2 ledger"},
		"update turnledger.event_ledger set description_terms = null":                                                {"s2 ledger"},
		"update turnledger.event_ledger set description_terms = null; update turnledger.generation set search = 'x'": nil,
	} {
		must.Get(conn.Exec(t.Context(), sql))(t)
		found, _ := verified(t, log, v, 0)
		require.Equal(t, want, found, sql)
		require.NoError(t, rebuilt(t, log, v))
		found, _ = verified(t, log, v, 0)
		require.Empty(t, found, "a rebuild mends it")
	}
}

func TestVerifyFindsTamperedMembers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	log := natstest.Log(t, 1)
	fill(t, log, 4, 9)
	v := redisOn(server)(t, log)
	live(t, log, v)
	caughtUp(t, log, v)
	opt := must.Get(rueidis.ParseURL(server.URL()))(t)
	opt.DisableCache = true
	c := must.Get(rueidis.NewClient(opt))(t)
	t.Cleanup(c.Close)
	for _, tamper := range []struct{ lua, want string }{
		{`local k = B .. 't:s1' local m = redis.call('ZRANGE', k, 0, 0, 'WITHSCORES')
			redis.call('ZREM', k, m[1])
			redis.call('ZADD', k, m[2], (string.gsub(m[1], 'question', 'qUestion')))`, "s1 turns"},
		{`redis.call('ZREMRANGEBYRANK', B .. 't:s2', 0, 0)`, "s2 missing"},
		{`redis.call('DEL', B .. 'h:s3', B .. 't:s3')`, "s3 missing"},
		{`redis.call('COPY', B .. 'h:s0', B .. 'h:never') redis.call('COPY', B .. 't:s0', B .. 't:never')`, "never extra"},
		{`local h = redis.call('HGET', B .. 'h:s0', 'head') redis.call('HSET', B .. 'h:s0', 'head', (string.gsub(h, 'u0', 'uX')))`, "s0 head"},
	} {
		base := fmt.Sprintf("turnledger:{rebuild-1}:g%d:", number(t, v))
		done := c.Do(t.Context(), c.B().Eval().Script("local B = '"+base+"' "+tamper.lua).Numkeys(0).Build())
		require.True(t, done.Error() == nil || rueidis.IsRedisNil(done.Error()), "%v", done.Error())
		found, _ := verified(t, log, v, 0)
		require.Equal(t, []string{tamper.want}, found)
		require.NoError(t, rebuilt(t, log, v))
		found, _ = verified(t, log, v, 0)
		require.Empty(t, found, "a rebuild mends it")
	}
}

// forgetful loses a session and makes another up.
type forgetful struct{ viewtest.View }

func (f forgetful) Apply(ctx context.Context, b projections.Batch) error {
	for i := range b.Events {
		if e := &b.Events[i]; e.SessionID == "s1" {
			e.SessionID = "never"
		}
	}
	return f.View.Apply(ctx, b)
}

func TestVerifyFindsAMissingAndAnExtraSessionInMemory(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 3, 2)
	v := openMemory(t, log)
	stop := live(t, log, forgetful{v.View})
	caughtUp(t, log, v)
	found, _ := verified(t, log, v, 0)
	require.ElementsMatch(t, []string{"s1 missing", "never extra"}, found)
	stop()
	require.NoError(t, rebuilt(t, log, v))
	found, _ = verified(t, log, v, 0)
	require.Empty(t, found)
}
