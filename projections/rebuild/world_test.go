package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
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
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/runner"
)

func TestMain(m *testing.M) {
	logs := 3 // each opens two logs and three views
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		logs = 130
	}
	viewtest.Draws(logs, 400)
	leaks.VerifyTestMain(pg.Runner(m))
}

var (
	rules  = session.Rules{SessionTTL: 24 * time.Hour}
	limits = recent.Limits{TTL: 24 * time.Hour, MaxTurns: 1000}
)

// view is a projection and how a test reads it: a session and the position it is
// answered at.
type view struct {
	viewtest.View
	read func(ctx context.Context, log *jetlog.Log, sessionID string) (*session.State, events.Position, error)
}

type opener func(t testing.TB, log *jetlog.Log) view

func ofRecent(v interface {
	projections.View
	projections.Rebuildable
	recent.Reader
}) view {
	return view{viewtest.View{View: v, Rebuildable: v}, func(ctx context.Context, log *jetlog.Log,
		sessionID string) (*session.State, events.Position, error) {
		snap, err := v.Load(ctx, sessionID, log.Partition(sessionID), -1)
		return snap.State, snap.Applied, err
	}}
}

func openMemory(testing.TB, *jetlog.Log) view { return ofRecent(memory.New(limits, rules, nil)) }

// redisOn opens views in a server: rebuild-1, rebuild-2 and so on.
func redisOn(server *redistest.Server) opener {
	var views atomic.Int64
	return func(t testing.TB, _ *jetlog.Log) view {
		v := must.Get(redis.New(redis.Config{URL: server.URL(), Prefix: fmt.Sprint("rebuild-", views.Add(1)),
			Limits: limits, Rules: rules, LoadTimeout: hang.Limit}))(t)
		t.Cleanup(v.Close)
		return ofRecent(v)
	}
}

func openAudit(t testing.TB, log *jetlog.Log) view { return auditOn(t, log, pg.URL(t)) }

func auditOn(t testing.TB, log *jetlog.Log, url string) view {
	a := must.Get(audit.Open(t.Context(), audit.Config{URL: url, Rules: rules, Log: log}))(t)
	t.Cleanup(a.Close)
	return view{viewtest.View{View: a, Rebuildable: a}, func(ctx context.Context, _ *jetlog.Log,
		sessionID string) (*session.State, events.Position, error) {
		return a.SessionTurns(ctx, sessionID, -1)
	}}
}

// onEach runs a test with each of the views that can be rebuilt.
func onEach(t *testing.T, test func(t *testing.T, open opener)) {
	t.Parallel()
	for name, open := range map[string]opener{
		"memory": openMemory, "redis": redisOn(redistest.Start(t)), "audit": openAudit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

// live feeds a view until it is stopped.
func live(t testing.TB, log *jetlog.Log, p projections.Projection) (stop func()) {
	return natstest.Run(t, runner.New(log, p, runner.Config{
		Rules: rules, Feeding: runner.Feeding{MaxBatch: 50}, Pause: 50 * time.Millisecond,
	}).Run)
}

// caughtUp waits until a view has applied all of the log.
func caughtUp(t testing.TB, log *jetlog.Log, v view) {
	t.Helper()
	hang.Until(t, func() bool { return viewtest.CaughtUp(t, log, v) })
}

// fed is a log with turns, and a view that has applied them and is fed until stop.
func fed(t testing.TB, open opener, partitions, sessions, turns int) (log *jetlog.Log, v view, stop func()) {
	t.Helper()
	log = natstest.Log(t, partitions)
	fill(t, log, sessions, turns)
	v = open(t, log)
	stop = live(t, log, v)
	caughtUp(t, log, v)
	return log, v, stop
}

// say appends turn i of a session, with a redaction and a correction now and then. Every
// third session is linked at its third turn, the others at once.
func appendTurn(ctx context.Context, log *jetlog.Log, n, i int) error {
	session, request := viewtest.Session(n), fmt.Sprint("r", i)
	id := events.TurnID(session, request)
	var facts []events.Fact
	if i == 2*(n%3/2) {
		facts = append(facts, &events.SessionLinked{SessionID: session, IdentityID: fmt.Sprint("u", n%4)})
	}
	facts = append(facts,
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: "question " + request, Metadata: []byte(`{"channel":"web"}`)}},
		&events.TurnFinalized{TurnID: id, SessionID: session,
			Answer: events.Answer{AnswerNeutral: "answer " + request}})
	switch i % 7 {
	case 3:
		facts = append(facts, &events.TurnRedacted{TurnID: events.TurnID(session, fmt.Sprint("r", i-2)),
			SessionID: session})
	case 6:
		facts = append(facts, &events.TurnExtended{TurnID: id, SessionID: session, ExtensionID: "e",
			Extension: events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool"}]`),
				AnswerNeutral: "more " + request}})
	case 5:
		facts = append(facts, &events.TurnCorrected{TurnID: events.TurnID(session, request+"c"), SessionID: session,
			RequestID: request + "c", ReplacesTurnID: id, Question: events.Question{QuestionNeutral: "right"},
			Answer: events.Answer{AnswerNeutral: "right"}})
	}
	for _, f := range facts {
		_, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
		// A busy machine: the same event again is no other.
		for again := 0; errors.Is(err, jetlog.ErrUnavailable) && again < 6; again++ {
			_, err = log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func fill(t testing.TB, log *jetlog.Log, sessions, turns int) {
	t.Helper()
	for i := range turns {
		for n := range sessions {
			require.NoError(t, appendTurn(t.Context(), log, n, i))
		}
	}
}

// equalsLog holds a view that has caught up against a fresh fold of the log.
func equalsLog(t testing.TB, log *jetlog.Log, v view, sessions int) {
	t.Helper()
	for n := range sessions {
		got, at := must.Two(v.read(t.Context(), log, viewtest.Session(n)))(t)
		require.NotNil(t, got, viewtest.Session(n))
		want := session.New(viewtest.Session(n), rules)
		for e, err := range log.Session(t.Context(), want.SessionID, 0, at.Seq) {
			require.NoError(t, err)
			want.Fold(e)
		}
		require.Equal(t, want.Head(), got.Head(), viewtest.Session(n))
		held := map[string]any{}
		for _, turn := range got.Turns {
			held[turn.ID.String()] = plainTurn(turn)
		}
		for _, turn := range want.Turns {
			if turn.Status == session.Finalized || turn.Status == session.Pending {
				require.Equal(t, plainTurn(turn), held[turn.ID.String()], "%s %s", viewtest.Session(n), turn.RequestID)
			}
		}
	}
}

func plainTurn(t *session.Turn) any {
	s := session.New("", rules)
	u := *t
	if u.Question != nil {
		q := *u.Question
		q.Metadata = nil // spaces are PostgreSQL's own
		u.Question = &q
	}
	u.AnswerMetadata, u.LastMessages = nil, 0
	s.Turns = []*session.Turn{&u}
	turn, _ := recenttest.Plain(s).(map[string]any)["turns"].([]any)
	return turn[0] // what follows says which events extended it: the tables don't hold that
}
