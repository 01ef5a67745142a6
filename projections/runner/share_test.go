package runner_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/runner"
)

var rules = session.Rules{SessionTTL: 24 * time.Hour}

const partitions = 8

// shared is a projection with its group.
type shared interface {
	projections.View
	projections.Group
}

// grouped is a view with its group.
type grouped struct {
	projections.View
	projections.Group
}

func withGroup(log *jetlog.Log, v projections.View) shared {
	return grouped{v, desk.Of(log).Members(v.Name(), func(ctx context.Context) (string, error) {
		served, err := v.Served(ctx)
		return served.Store, err
	})}
}

// backend is a store that several processes feed: open connects one more process, and
// same holds what it has against a fold of the log.
type backend struct {
	open func(t testing.TB, log *jetlog.Log) shared
	same func(t testing.TB, log *jetlog.Log, view shared)
}

func onEach(t *testing.T, test func(t *testing.T, b backend)) {
	t.Parallel()
	pg, rd := pg.URL(t), redistest.Start(t)
	for name, b := range map[string]backend{
		"audit": {
			open: func(t testing.TB, log *jetlog.Log) shared {
				return withGroup(log, openAudit(t, pg, "turnledger", log))
			},
			same: func(t testing.TB, log *jetlog.Log, _ shared) {
				fresh := openAudit(t, pg, "fresh", log)
				stop := start(t, log, fresh)
				reachedAll(t, log, fresh)
				stop()
				want := auditRows(t, pg, "fresh")
				require.NotEmpty(t, want)
				require.Equal(t, want, auditRows(t, pg, "turnledger"))
			},
		},
		"redis": {
			open: func(t testing.TB, log *jetlog.Log) shared {
				v := must.Get(redis.New(redis.Config{URL: rd.URL(), Limits: recent.Limits{}, Rules: rules,
					LoadTimeout: hang.Limit}))(t)
				t.Cleanup(v.Close)
				return withGroup(log, v)
			},
			same: func(t testing.TB, log *jetlog.Log, view shared) {
				for s := range shareSessions {
					session := fmt.Sprint("s", s)
					of := view.(grouped).View.(*redis.View)
					snap := must.Get(of.Load(t.Context(), session, log.Partition(session), -1))(t)
					want := natstest.Fold(t, log, session, rules)
					require.Equal(t, recenttest.Plain(want), recenttest.Plain(snap.State), "session %s", session)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

func openAudit(t testing.TB, url, schema string, log *jetlog.Log) *audit.Audit {
	t.Helper()
	a := must.Get(audit.Open(t.Context(), audit.Config{URL: url, Schema: schema, Rules: rules, Log: log}))(t)
	t.Cleanup(a.Close)
	return a
}

func auditRows(t testing.TB, url, schema string) (out []string) {
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, table := range []string{"sessions", "session_links", "questions", "answers", "event_ledger",
		"security_events"} {
		found := must.Get(conn.Query(t.Context(), "select to_jsonb(t)::text from "+schema+"."+table+" t order by 1"))(t)
		for _, r := range must.Get(pgx.CollectRows(found, pgx.RowTo[string]))(t) {
			out = append(out, table+" "+r)
		}
	}
	return out
}

// span is a batch that was committed.
type span struct{ from, to, events uint64 }

// ledger notes what all members of a group committed.
type ledger struct {
	mu    sync.Mutex
	spans map[int][]span
}

// once reports that every event of the log was applied once, and no batch between the
// parts of another.
func (l *ledger) once(t testing.TB, log *jetlog.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range partitions {
		head := must.Get(log.Head(t.Context(), k))(t)
		slices.SortFunc(l.spans[k], func(a, b span) int { return cmp.Compare(a.from, b.from) })
		at, n := uint64(0), uint64(0)
		for _, s := range l.spans[k] {
			require.Equal(t, at, s.from, "partition %d: a batch was applied between, or twice", k)
			at, n = s.to, n+s.events
		}
		require.Equal(t, head.Seq, at)
		require.Equal(t, head.Seq, n)
	}
}

// member is a process that feeds the projection, with connections of its own.
type member struct {
	shared
	book   *ledger
	dead   atomic.Bool
	runner *runner.Runner
	stop   func()
}

func (m *member) Apply(ctx context.Context, b projections.Batch) error {
	if m.dead.Load() {
		return errors.New("killed")
	}
	err := m.shared.Apply(ctx, b)
	if err == nil {
		m.book.mu.Lock()
		defer m.book.mu.Unlock()
		k := b.From.Partition
		m.book.spans[k] = append(m.book.spans[k], span{b.From.Seq, b.To.Seq, uint64(len(b.Events))})
	}
	return err
}

// Leave is not for the dead.
func (m *member) Leave(ctx context.Context, name string) error {
	if m.dead.Load() {
		return nil
	}
	return m.shared.Leave(ctx, name)
}

func (m *member) kill() {
	m.dead.Store(true)
	m.stop()
}

// live returns the partitions that the member feeds.
func (m *member) live(t testing.TB) (own []int) {
	for _, s := range m.runner.Status(t.Context(), time.Now()) {
		if s.State == "live" {
			own = append(own, s.Partition)
		}
	}
	return own
}

func join(t testing.TB, log *jetlog.Log, view shared, book *ledger, beat time.Duration) *member {
	m := &member{shared: view, book: book}
	m.runner = runner.New(log, m, runner.Config{
		Rules: rules, Feeding: runner.Feeding{MaxBatch: 7}, Pause: 20 * time.Millisecond, Group: m, Beat: beat,
	})
	m.stop = natstest.Run(t, m.runner.Run)
	return m
}

// sharedOut reports whether each partition is fed by one member, and each by a fair share.
func sharedOut(t testing.TB, members []*member) bool {
	var all []int
	for _, m := range members {
		own := m.live(t)
		if len(own) < partitions/len(members) {
			return false
		}
		all = append(all, own...)
	}
	slices.Sort(all)
	return slices.Equal(all, []int{0, 1, 2, 3, 4, 5, 6, 7})
}

const shareSessions = 40

// talk records a turn in each session, linked ones among them.
func talk(t testing.TB, log *jetlog.Log, n int) {
	var facts []events.Fact
	for s := range shareSessions {
		session := fmt.Sprint("s", s)
		facts = append(facts, turntest.Turn(session, fmt.Sprint("r", n), "q", strings.Repeat("a", n))...)
		if n == 2 {
			facts = append(facts, &events.SessionLinked{SessionID: session, IdentityID: fmt.Sprint("u", s%3)})
		}
	}
	natstest.Append(t, log, facts...)
}

func reachedAll(t testing.TB, log *jetlog.Log, view projections.View) {
	hang.Until(t, func() bool {
		for k := range partitions {
			head := must.Get(log.Head(t.Context(), k))(t)
			if at, err := view.Applied(t.Context(), k); err != nil || at != head {
				return false
			}
		}
		return true
	})
}

// Three processes share eight partitions; one is killed and the others take its
// partitions over, at the beat that a deployment has: within 10 s, or 30 s on a busy machine.
func TestRunnersShareThePartitionsAndTakeOverTheDeadOnes(t *testing.T) {
	onEach(t, func(t *testing.T, b backend) {
		srv, book := natstest.Server(t), &ledger{spans: map[int][]span{}}
		log := natstest.LogOn(t, srv, partitions)
		var members []*member
		for range 3 {
			own := natstest.LogOn(t, srv, partitions)
			members = append(members, join(t, own, b.open(t, own), book, 0))
		}
		hang.Until(t, func() bool { return sharedOut(t, members) })
		talk(t, log, 1)
		reachedAll(t, log, members[0].shared)
		began := time.Now()
		members[1].kill()
		talk(t, log, 2)
		left := []*member{members[0], members[2]}
		hang.Until(t, func() bool { return sharedOut(t, left) })
		t.Logf("taken over after %s", time.Since(began).Round(100*time.Millisecond))
		reachedAll(t, log, members[0].shared)
		left = append(left, join(t, log, b.open(t, log), book, 0))
		hang.Until(t, func() bool { return sharedOut(t, left) }, "more runners: partitions are given away")
		talk(t, log, 3)
		reachedAll(t, log, members[0].shared)
		for _, m := range left {
			m.stop()
		}
		book.once(t, log)
		b.same(t, log, members[0].shared)
	})
}

// Runners come and are killed at random while turns are recorded: each event is applied
// once, in order, and the view is that of a fresh fold.
func TestRunnersKilledAtRandomLeaveTheViewOfTheLog(t *testing.T) {
	onEach(t, func(t *testing.T, b backend) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		srv, book := natstest.Server(t), &ledger{spans: map[int][]span{}}
		log := natstest.LogOn(t, srv, partitions)
		var members []*member
		more := func() {
			own := natstest.LogOn(t, srv, partitions)
			members = append(members, join(t, own, b.open(t, own), book, 50*time.Millisecond))
		}
		more()
		for turn := range 16 {
			talk(t, log, turn)
			for len(members) < 3 {
				more()
			}
			if rng.IntN(2) == 0 {
				i := rng.IntN(len(members))
				members[i].kill()
				members = slices.Delete(members, i, i+1)
			}
		}
		more()
		last := members[len(members)-1]
		reachedAll(t, log, last.shared)
		for _, m := range members {
			m.stop()
		}
		book.once(t, log)
		b.same(t, log, last.shared)
	})
}
