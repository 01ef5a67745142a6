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
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

// However a log gets into a view (live, with failures before and after the commit that bring events again, rebuilt,
// over many partitions), the snapshots are the same and verify finds nothing.
func TestEveryWayGivesTheSameView(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		rapid.Check(t, func(rt *rapid.T) {
			one, four := natstest.Log(t, 1), natstest.Log(t, 4)
			drawLog(rt, one, four)

			plain := open(t, one)
			feed(t, one, plain)
			want := snapshots(t, one, plain, true)

			shaken := open(t, one)
			shaky := viewtest.NewShaky(shaken.View, rapid.Uint64().Draw(rt, "failures"))
			feed(t, one, view{viewtest.View{View: shaky, Rebuildable: shaky}, shaken.read})
			require.Equal(rt, want, snapshots(t, one, shaken, true), "broken off and delivered again")
			require.NoError(rt, rebuilt(t, one, shaken))
			require.Equal(rt, want, snapshots(t, one, shaken, true), "rebuilt")

			spread := open(t, four)
			feed(t, four, spread)
			want = snapshots(t, one, plain, false)
			require.Equal(rt, want, snapshots(t, four, spread, false), "four partitions")
			require.NoError(rt, rebuilt(t, four, spread))
			require.Equal(rt, want, snapshots(t, four, spread, false), "four partitions, rebuilt")
			for log, v := range map[*jetlog.Log]view{one: shaken, four: spread} {
				found, _ := verified(t, log, v, 0)
				require.Empty(rt, found)
			}
		})
	})
}

// feed brings all of a log into a view and stops.
func feed(t testing.TB, log *jetlog.Log, v view) {
	stop := live(t, log, v)
	caughtUp(t, log, v)
	stop()
}

// drawLog appends the same random facts to logs; some contradict what stands there.
func drawLog(rt *rapid.T, logs ...*jetlog.Log) {
	last := make([]map[string]events.Position, len(logs))
	for i := range logs {
		last[i] = map[string]events.Position{}
	}
	for range rapid.IntRange(1, 50).Draw(rt, "events") {
		f := viewtest.DrawFact(rt)
		for i, log := range logs {
			f := inLog(f, last[i])
			ack := must.Get(log.Append(rt.Context(), jetlog.Append{Facts: []events.Fact{f}}))(rt)
			last[i][f.Subject()] = ack.Position
		}
	}
}

// inLog returns a fact as it is written to one of the logs. The logs number their events differently, so a description
// that was decided on something was decided on the session's last event.
func inLog(f events.Fact, last map[string]events.Position) events.Fact {
	d, ok := f.(*events.SessionDescribed)
	if !ok {
		return f
	}
	own := *d
	if own.After.Seq > 0 {
		own.After = last[f.Subject()]
	}
	return &own
}

// snapshots returns what a view holds of each session, with its positions where those
// compare.
func snapshots(t testing.TB, log *jetlog.Log, v view, exact bool) (out []any) {
	t.Helper()
	for n := range viewtest.Sessions {
		s, _ := must.Two(v.read(t.Context(), log, viewtest.Session(n)))(t)
		if s == nil {
			out = append(out, nil)
			continue
		}
		if exact {
			out = append(out, recenttest.Plain(s))
			continue
		}
		h := s.Head()
		var turns []any
		for _, t := range s.Turns {
			turns = append(turns, t.ID, t.RequestID, t.Status, t.Version, t.Replaces, t.ReplacedBy, texts(t))
		}
		out = append(out, []any{s.Whole, h.Identity, h.Counts, h.Erased != 0, h.ResetAt != 0, turns})
	}
	return out
}

func texts(t *session.Turn) (out []string) {
	if t.Question != nil {
		out = append(out, t.Question.QuestionNeutral)
	}
	if t.Answer != nil {
		out = append(out, t.Answer.AnswerNeutral)
	}
	return out
}

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
					pause(load, 20*time.Millisecond)
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
