package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

const (
	ttl    = time.Hour
	secret = "a text that belongs in no error"
)

var rules = conversation.Rules{SessionTTL: ttl}

// fixture is a view on a server of its own, and a log that it follows.
type fixture struct {
	server *redistest.Server
	cfg    redis.Config
	view   *redis.View
	log    *recenttest.Log
	feed   *recenttest.Feed
	raw    rueidis.Client
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{server: redistest.Start(t), log: recenttest.NewLog(rules)}
	f.cfg = redis.Config{URL: f.server.URL(), Limits: recent.Limits{TTL: ttl}, Rules: rules, LoadTimeout: patience}
	f.view = view(t, f.cfg)
	f.feed = recenttest.NewFeed(t, f.log, f.view, 0)
	f.connect(t)
	return f
}

func (f *fixture) connect(t *testing.T) {
	opt := must.Get(rueidis.ParseURL(f.cfg.URL))(t)
	opt.DisableCache = true
	f.raw = must.Get(rueidis.NewClient(opt))(t)
	t.Cleanup(f.raw.Close)
}

func (f *fixture) do(t *testing.T, args ...string) rueidis.RedisResult {
	t.Helper()
	r := f.raw.Do(t.Context(), f.raw.B().Arbitrary(args...).Build())
	require.NoError(t, r.Error())
	return r
}

// turns records turns of a session that just took place.
func (f *fixture) turns(t *testing.T, session string, n int) {
	at := time.Now().Add(-time.Minute)
	for range n {
		r := fmt.Sprint(len(f.log.Events))
		id := recenttest.ID(session, r)
		f.log.Append(t, &events.TurnStarted{TurnID: id, SessionID: session, RequestID: r,
			Question: events.Question{QuestionNeutral: secret}}, at)
		f.log.Append(t, &events.TurnFinalized{TurnID: id, SessionID: session,
			Answer: events.Answer{AnswerNeutral: secret}}, at)
	}
}

func (f *fixture) load(t *testing.T, session string) recent.Snapshot {
	t.Helper()
	return must.Get(f.view.Load(t.Context(), session, 0, -1))(t)
}

func TestRefusesARedisThatEvicts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.Config("allkeys-lru")
	_, err := f.view.Claim(t.Context(), 0)
	require.ErrorIs(t, err, redis.ErrEviction)
	require.ErrorContains(t, err, "redis-cli config set maxmemory-policy noeviction")
	require.ErrorContains(t, err, "allkeys-lru")
	f.server.Config("noeviction")
	must.Get(f.view.Claim(t.Context(), 0))(t)
}

func TestConfigTellsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := redis.New(redis.Config{URL: "redis://user:pass\x7fword@host", Prefix: "a}b",
		Limits: recent.Limits{TTL: -1}})
	require.ErrorContains(t, err, "Redis URL")
	require.ErrorContains(t, err, "prefix")
	require.ErrorContains(t, err, "limits")
	require.NotContains(t, err.Error(), "word")
}

// TestKeysThatVanish has single keys go, as an eviction or a hand does it.
func TestKeysThatVanish(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"h", "t"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.turns(t, "s", 3)
			f.feed.All(3)
			f.do(t, "DEL", f.view.Key(1, kind, "s"))
			require.Nil(t, f.load(t, "s").State)
		})
	}
}

// TestEveryKeyExpires: the TTL after the last activity by recorded time, and all of a
// session at once. The checkpoint stays, and the name of the store.
//
//conformance:h22
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 2)
	f.feed.All(1)
	last := f.log.Events[len(f.log.Events)-1].Time
	for _, kind := range []string{"h", "t"} {
		ms := must.Get(f.do(t, "PTTL", f.view.Key(1, kind, "s")).AsInt64())(t)
		require.WithinDuration(t, last.Add(ttl), time.Now().Add(time.Duration(ms)*time.Millisecond), time.Second)
	}
	f.log.Append(t, &events.SessionErased{SessionID: "s", ReceiptID: "r"}, time.Now())
	f.feed.All(1)
	keys := must.Get(f.do(t, "KEYS", "*").AsStrSlice())(t)
	require.ElementsMatch(t, []string{f.view.Key(1, "cp", "0"), f.view.Key(1, "h", "s"),
		strings.TrimSuffix(f.view.Pointer(), "gen") + "store"}, keys)
}

// TestInSteps cuts each batch into scripts of one session, and holds them to the
// suite all the same.
func TestInSteps(t *testing.T) {
	t.Parallel()
	open := opener(redistest.Start(t))
	recenttest.Run(t, func(t testing.TB, limits recent.Limits, rules conversation.Rules) recenttest.View {
		v := open(t, limits, rules).View.(*redis.View).InSteps()
		return recenttest.View{View: v, Reader: v}
	})
}

// TestEndsBetweenSteps has the process end after the first step of a batch: no
// snapshot shows half of it, and the whole batch can come again.
func TestEndsBetweenSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 1)
	f.turns(t, "o", 1)
	f.feed.All(4)
	for range 2 {
		f.turns(t, "s", 1)
		f.turns(t, "o", 1)
	}
	b := f.feed.Batch(8)
	require.NoError(t, f.view.ApplyFirst(t.Context(), b))
	require.Equal(t, uint64(4), f.load(t, "o").Applied.Seq)
	require.Len(t, f.load(t, "o").State.Turns, 1)
	require.Equal(t, uint64(10), f.load(t, "s").Applied.Seq, "the session is ahead, and says so")
	require.Len(t, f.load(t, "s").State.Turns, 3)
	f.feed.Claim(0)
	require.Equal(t, uint64(4), f.feed.At.Seq)
	f.feed.All(3)
	for _, s := range []string{"s", "o"} {
		require.Equal(t, uint64(12), f.load(t, s).Applied.Seq)
		require.Equal(t, recenttest.Plain(f.log.State(s)), recenttest.Plain(f.load(t, s).State))
	}
}

// TestFullMemory has a Redis refuse a batch: nothing of it is there, and it can come
// again.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 2)
	f.feed.All(4)
	f.do(t, "CONFIG", "SET", "maxmemory", "1")
	f.turns(t, "s", 2)
	f.turns(t, "o", 2)
	b := f.feed.Batch(8)
	err := f.view.Apply(t.Context(), b)
	require.ErrorContains(t, err, "OOM")
	require.NotErrorIs(t, err, projections.ErrFenced)
	require.False(t, projections.IsPermanent(err))
	require.NotContains(t, err.Error(), secret)
	require.Equal(t, uint64(4), f.load(t, "s").Applied.Seq, "reads go on")
	require.Len(t, f.load(t, "s").State.Turns, 2)
	f.do(t, "CONFIG", "SET", "maxmemory", "0")
	f.feed.Apply(b)
	require.Len(t, f.load(t, "s").State.Turns, 4)
}

func TestForeignValuesAreAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 1)
	f.feed.All(2)
	f.do(t, "HSET", f.view.Key(1, "h", "s"), "head", "\x02from a later version")
	_, err := f.view.Load(t.Context(), "s", 0, 1)
	require.ErrorIs(t, err, redis.ErrAnswer)
	require.False(t, strings.Contains(err.Error(), "later version"))
}

func TestClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.view.Close()
	require.Error(t, must.Err(f.view.Load(t.Context(), "s", 0, 1)))
	never := view(t, f.cfg)
	never.Close()
	require.Error(t, must.Err(never.Claim(t.Context(), 0)))
}
