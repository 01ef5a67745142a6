package audit_test

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/desk"
)

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// day is when the logs of these tests begin; its nanoseconds are more than PostgreSQL's clock has room for.
var day = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// sent counts the appends of facts.
var sent atomic.Int64

// recorded puts a fact into the log's form and reads it back.
func recorded(f events.Fact, seq uint64, at time.Time) events.Recorded {
	return decoded(envelope(f), seq, at)
}

func envelope(f events.Fact) events.Envelope {
	env, err := events.Encode(f, day.Add(time.Duration(sent.Add(1))))
	if err != nil {
		panic(err)
	}
	return env
}

func decoded(env events.Envelope, seq uint64, at time.Time) events.Recorded {
	return events.Decode(env, events.Position{Seq: seq}, at)
}

// journal is a log of one partition in memory. Each event is a second later than the one before.
type journal struct {
	events []events.Recorded
	now    time.Time
	last   uint64
}

func newJournal() *journal { return &journal{now: day} }

func (j *journal) pass(d time.Duration) { j.now = j.now.Add(d) }

// add appends facts.
func (j *journal) add(facts ...events.Fact) {
	for _, f := range facts {
		j.publish(envelope(f))
	}
}

// publish appends whatever a publisher sends.
func (j *journal) publish(env events.Envelope) events.Recorded {
	j.last++
	j.pass(time.Second + 7)
	e := decoded(env, j.last, j.now)
	j.events = append(j.events, e)
	return e
}

// without is the log after some events were physically erased.
func (j *journal) without(gone func(events.Recorded) bool) *journal {
	out := *j
	out.events = slices.DeleteFunc(slices.Clone(j.events), gone)
	return &out
}

// Partitions implements projections.SessionReader.
func (*journal) Partitions() int { return 1 }

// Session implements projections.SessionReader.
func (j *journal) Session(_ context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) {
		for _, e := range j.events {
			if e.SessionID == sessionID && e.Position.Seq > after && e.Position.Seq <= upTo && !yield(e, nil) {
				return
			}
		}
	}
}

// fold is a session, with texts, up to a sequence.
func (j *journal) fold(ctx context.Context, sessionID string, upTo uint64) (*session.State, error) {
	s := session.New(sessionID, rules)
	for e, err := range j.Session(ctx, sessionID, 0, upTo) {
		if err != nil {
			return nil, err
		}
		s.Fold(e)
	}
	return s, nil
}

func (j *journal) state(sessionID string) *session.State {
	s, err := j.fold(context.Background(), sessionID, j.last)
	if err != nil {
		panic(err)
	}
	return s
}

// redact appends the redaction of a turn as the history service states it.
func (j *journal) redact(session string, turn uuid.UUID) {
	j.add(decide.Redact{TurnID: turn}.On(j.state(session)).Facts...)
}

// feed brings a log into a projection as a runner does.
type feed struct {
	t     require.TestingT
	log   *journal
	view  projections.Sink
	judge *projections.Judge
	at    projections.Checkpoint
}

// claim begins where the stored checkpoint is.
func claim(t require.TestingT, log *journal, view projections.Sink) *feed {
	at, err := view.Claim(context.Background(), 0)
	require.NoError(t, err)
	return &feed{t: t, log: log, view: view, judge: projections.NewJudge(log, rules, at.Seq), at: at}
}

// batch judges the next events, at most most of them.
func (f *feed) batch(most int) projections.Batch {
	b := projections.Batch{From: f.at, To: f.at}
	for _, e := range f.log.events {
		if e.Position.Seq <= f.at.Seq || len(b.Events) == most {
			continue
		}
		judged, err := f.judge.Judge(context.Background(), e)
		require.NoError(f.t, err)
		b.Events = append(b.Events, judged)
		b.To.Seq, b.To.EventID = e.Position.Seq, e.ID
	}
	return b
}

// next applies the next events and tells whether there were any.
func (f *feed) next(most int) bool {
	b := f.batch(most)
	if len(b.Events) == 0 {
		return false
	}
	require.NoError(f.t, f.view.Apply(context.Background(), b))
	f.at = b.To
	return true
}

// all applies what is left, in batches of at most most events.
func (f *feed) all(most int) {
	for f.next(most) {
	}
}

// The facts, short.

func id(session, request string) uuid.UUID { return events.TurnID(session, request) }

func started(session, request string) *events.TurnStarted {
	return &events.TurnStarted{TurnID: id(session, request), SessionID: session, RequestID: request,
		Question: question(request)}
}

func question(request string) events.Question {
	return events.Question{
		PipelineName: "pipeline " + request, Consultant: "consultant", Repository: "repository", TranslateChat: true,
		QuestionNeutral: "question " + request, QuestionTranslated: "pytanie " + request,
		QuestionMessages: []byte(`[{"role":"user",  "content":"question ` + request + `"}]`),
		Metadata:         []byte(`{"channel":"web","locale":"pl"}`),
	}
}

func finalized(session, request string) *events.TurnFinalized {
	return &events.TurnFinalized{TurnID: id(session, request), SessionID: session, Answer: answer(request),
		Metadata: []byte(`{"channel":"app"}`)}
}

func answer(request string) events.Answer {
	return events.Answer{
		AnswerNeutral: "answer " + request, AnswerTranslated: "odpowiedź " + request, AnswerTranslatedIsFallback: true,
		AnswerMessages: []byte(`[{"role":"assistant","content":null,"tool_calls":[]}]`),
	}
}

func linked(session, identity string) *events.SessionLinked {
	return &events.SessionLinked{SessionID: session, IdentityID: identity}
}

func corrected(session, request, old string) *events.TurnCorrected {
	return &events.TurnCorrected{
		TurnID: id(session, request), SessionID: session, RequestID: request, ReplacesTurnID: id(session, old),
		Question: question(request), Answer: answer(request),
	}
}

func erased(session string) *events.SessionErased {
	return &events.SessionErased{SessionID: session, ReceiptID: "receipt-1"}
}

// tables are audit tables in a database of their own, and what a test wants to see of them.
type tables struct {
	*audit.Audit
	t    testing.TB
	pool *pgxpool.Pool
	url  string
	name string
	log  projections.LogReader
	desk *desk.Desk
}

// Park does what a runner does with an event that can't be applied.
func (a *tables) Park(ctx context.Context, b projections.Batch, reason string) error {
	hold, err := a.desk.ClaimLetters(ctx, a.Name(), b.From)
	if err != nil {
		return err
	}
	if err := hold.Keep(ctx, b.From.Created, projections.NewDeadLetter(a.Name(), &b.Events[0], reason,
		time.Now())); err != nil {
		return err
	}
	b.Events, b.Parked = nil, b.Events
	return a.Apply(ctx, b)
}

func (a *tables) queue() *desk.Queue { return a.desk.Queue(a, a.log, rules) }

// open opens empty tables for a log.
func open(t testing.TB, log projections.LogReader) *tables {
	t.Helper()
	return openWith(t, audit.Config{URL: pg.URL(t), Log: log})
}

func openWith(t testing.TB, cfg audit.Config) *tables {
	t.Helper()
	cfg.Rules, cfg.Schema = rules, cmp.Or(cfg.Schema, "turnledger")
	a := must.Get(audit.Open(t.Context(), cfg))(t)
	t.Cleanup(a.Close)
	return connected(t, a, cfg.URL, cfg.Schema, cfg.Log)
}

// connected looks at tables that are open.
func connected(t testing.TB, a *audit.Audit, url, schema string, log projections.LogReader) *tables {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(pool.Close)
	return &tables{Audit: a, t: t, pool: pool, url: url, name: schema, log: log, desk: desk.InMemory()}
}

// filled applies a whole log in batches of at most most events.
func filled(t testing.TB, log *journal, most int) *tables {
	t.Helper()
	a := open(t, log)
	claim(t, log, a).all(most)
	return a
}

// names of all tables.
var names = []string{"questions", "answers", "sessions", "session_links", "event_ledger", "security_events",
	"projection_checkpoints"}

// dump returns the rows of each table, without what is no consequence of the log.
func (a *tables) dump() map[string][]string {
	a.t.Helper()
	out := map[string][]string{}
	for _, table := range names {
		out[table] = a.column("select (to_jsonb(t) - '{applied_at,parked_at,epoch}'::text[])::text from " + a.name +
			"." + table + " t order by 1")
	}
	return out
}

// column runs a query of one text column.
func (a *tables) column(sql string, args ...any) []string {
	a.t.Helper()
	found := must.Get(a.pool.Query(context.Background(), sql, args...))(a.t)
	return must.Get(pgx.CollectRows(found, pgx.RowTo[string]))(a.t)
}

func (a *tables) exec(sql string, args ...any) {
	a.t.Helper()
	must.Get(a.pool.Exec(context.Background(), sql, args...))(a.t)
}

// requests lists the turns of a session in their order, each with its status.
func (a *tables) requests(session string) []string {
	a.t.Helper()
	return a.column("select request_id || ' ' || status from turnledger.turns where session_id = $1 order by place, "+
		"record_version", session)
}

func (a *tables) count(table string) int {
	a.t.Helper()
	return len(a.column("select '' from " + a.name + "." + table))
}

// empty takes every row out.
func (a *tables) empty() {
	a.t.Helper()
	a.desk = desk.InMemory()
	a.exec("delete from " + a.name + "." + strings.Join(names, "; delete from "+a.name+"."))
}

func TestMain(m *testing.M) {
	viewtest.Draws(50, 1000) // each history of a property takes PostgreSQL about 0.1 s
	leaks.VerifyTestMain(pg.Runner(m))
}
