package redis_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

const (
	ttl    = time.Hour
	secret = "a text that belongs in no error"
)

var rules = session.Rules{SessionTTL: ttl}

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
		f.log.Append(t, turntest.Started(session, r, secret), at)
		f.log.Append(t, turntest.Finalized(session, r, secret), at)
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
	recenttest.Run(t, func(t testing.TB, limits recent.Limits, rules session.Rules) recenttest.View {
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
	f.do(t, "HSET", f.view.Key(1, "h", "s"), "head", "\x04from a later version")
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

// A client that was not let in looks for the servers of a cluster once more, half a second later.
func TestMain(m *testing.M) {
	viewtest.Draws(50, 2000) // each history of a property takes Redis about 0.05 s
	leaks.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

//conformance:i79 h20 h24 h62
func TestConformance(t *testing.T) {
	t.Parallel()
	recenttest.Run(t, opener(redistest.Start(t)))
}

// patience is for a machine that is busy with other tests.
const patience = hang.Limit

// opener returns views that share a server and no key.
func opener(server *redistest.Server) recenttest.Open {
	var views atomic.Int64
	return func(t testing.TB, limits recent.Limits, rules session.Rules) recenttest.View {
		prefix := "test-" + strconv.FormatInt(views.Add(1), 10)
		v := view(t, redis.Config{
			URL: server.URL(), Prefix: prefix, Limits: limits, Rules: rules, LoadTimeout: patience,
		})
		return recenttest.View{View: v, Reader: v}
	}
}

func view(t testing.TB, cfg redis.Config) *redis.View {
	t.Helper()
	v := must.Get(redis.New(cfg))(t)
	t.Cleanup(v.Close)
	return v
}

func BenchmarkLoad(b *testing.B) {
	recenttest.BenchmarkLoad(b, opener(redistest.Start(b)), 1_000, 1_000_000)
}

func BenchmarkApply(b *testing.B) { recenttest.BenchmarkApply(b, opener(redistest.Start(b))) }

// A process that has claimed nothing, since it only reads or has just begun, is told of all partitions that somebody
// feeds.
func TestServedTellsWhatOthersHaveClaimed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := redis.Config{URL: server.URL(), Prefix: "served", Limits: recent.Limits{TTL: time.Hour, MaxTurns: 10},
		LoadTimeout: patience}
	feeding, reading := view(t, cfg), view(t, cfg)
	none := must.Get(reading.Served(t.Context()))(t)
	require.Empty(t, none.At)
	created := time.Now().UTC().Truncate(time.Microsecond)
	var want []projections.Checkpoint
	for _, k := range []int{0, 7, 255} {
		cp := must.Get(feeding.Claim(t.Context(), k))(t)
		cp.Partition, cp.Created = k, created
		to := cp
		to.Seq, to.EventID = uint64(10+k), "an id"
		require.NoError(t, feeding.Apply(t.Context(), projections.Batch{From: cp, To: to}))
		want = append(want, to)
	}
	got := must.Get(reading.Served(t.Context()))(t)
	require.Equal(t, uint64(1), got.Generation)
	require.NotEmpty(t, got.Store)
	require.Equal(t, none.Store, got.Store)
	require.Equal(t, want, got.At)
}

func TestRecordsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := func(label string) string { return rapid.String().Draw(rt, label) }
		number := func(label string) uint64 { return rapid.Uint64().Draw(rt, label) }
		raws := rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage("null"),
			json.RawMessage("[ 1e400,\"\u2028\" ]")})
		raw := func(label string) json.RawMessage { return raws.Draw(rt, label) }
		at := func(label string) time.Time {
			seconds := rapid.Int64Range(-62135596800, 253402300799).Draw(rt, label)
			return time.Unix(seconds, rapid.Int64Range(0, 999999999).Draw(rt, "ns")).UTC()
		}
		q := &events.Question{
			PipelineName: text("p"), Consultant: text("c"), Repository: text("r"),
			TranslateChat: rapid.Bool().Draw(rt, "t"), QuestionNeutral: text("n"), QuestionTranslated: text("q"),
			QuestionMessages: raw("m"), Metadata: raw("d"),
		}
		turn := &session.Turn{
			ID: uuid.New(), RequestID: text("id"), Version: rapid.IntRange(1, 1000).Draw(rt, "v"),
			Place: number("place"), Started: number("started"), CreatedAt: at("created"),
			TranslateChat: q.TranslateChat, Asked: rapid.Bool().Draw(rt, "asked"), Question: q,
			LastMessages: rapid.Uint16().Draw(rt, "messages"),
		}
		if rapid.Bool().Draw(rt, "corrects") {
			turn.Replaces = uuid.New()
		}
		if rapid.Bool().Draw(rt, "finalized") {
			turn.Status, turn.Final, turn.FinalizedAt = session.Finalized, number("f"), at("fa")
			turn.AnswerMetadata = raw("am")
			turn.Answer = &events.Answer{AnswerNeutral: text("a"), AnswerTranslated: text("at"),
				AnswerTranslatedIsFallback: rapid.Bool().Draw(rt, "fb"), AnswerMessages: raw("ams")}
		}
		count := func(label string) int { return rapid.IntRange(-1<<40, 1<<40).Draw(rt, label) }
		head := session.Head{
			Identity: text("i"), LinkedAt: number("l"), Boundary: number("b"), ResetAt: number("r"),
			Erased: number("e"), CreatedAt: at("ca"), LastActive: at("la"),
			Counts: session.Counts{Finalized: count("1"), Pending: count("2"), ShownFinalized: count("3"),
				ShownPending: count("4")},
		}
		if rapid.Bool().Draw(rt, "described") {
			kinds := []events.SessionKind{"", events.KindConversation, events.KindResponse}
			head.HeldDescription = session.DescribedBy(session.Description{DescribedAt: number("at"),
				Title: text("title"), Metadata: text("metadata"), Kind: rapid.SampledFrom(kinds).Draw(rt, "kind")})
		}
		if rapid.Bool().Draw(rt, "forked") {
			head.HeldDescription = head.ForkedBy(session.Fork{ForkedAt: max(number("fork"), 1),
				RequestID: text("fr"), From: text("ff"), Root: text("fo"), Lineage: text("fl")})
		}
		back, backHead := must.Two(redis.Roundtrip(turn, head))(rt)
		require.Equal(rt, turn, back)
		require.Equal(rt, head, backHead)
	})
}

// FuzzRecord reads anything: an error, never a panic or an endless loop.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{"", "\x01", "\x01p", "\x02f0123456789abcdef",
		"\x01f0123456789abcdef\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, record string) { _ = redis.ReadRecord(record) })
}
