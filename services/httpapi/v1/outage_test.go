package v1_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
	"github.com/turnledger/turnledger/services/write"
)

// stores are what a process has beside the log; they fail while they are down.
type stores struct {
	nothing
	down *atomic.Bool
}

func (s stores) fails() error {
	if s.down.Load() {
		return fmt.Errorf("connect: %w", projections.ErrUnavailable)
	}
	return nil
}

func (s stores) Sessions(context.Context, services.SessionsAsk) (services.SessionPage, error) {
	return services.SessionPage{Sessions: []projections.ListedSession{{SessionID: own}}}, s.fails()
}

func (s stores) IdentityTurns(context.Context, services.IdentityAsk) (services.IdentityPage, error) {
	return services.IdentityPage{}, s.fails()
}

func (s stores) Counts(context.Context, services.CountsAsk) (services.CountsPage, error) {
	return services.CountsPage{}, s.fails()
}

func (s stores) Search(context.Context, services.SearchAsk) (services.SearchPage, error) {
	return services.SearchPage{}, s.fails()
}

func (s stores) Similar(context.Context, services.SimilarAsk) ([]services.SimilarHit, error) {
	return nil, s.fails()
}

func (s stores) Projections(context.Context) ([]projections.Status, error) { return nil, s.fails() }

func (s stores) Rebuild(context.Context, string) (uint64, error) { return 1, s.fails() }

func (s stores) CancelRebuild(context.Context, string) (uint64, error) { return 1, s.fails() }

func (s stores) Verify(
	context.Context, string, int, func(done, of uint64) error, func(projections.Difference) error,
) (int, error) {
	return 0, s.fails()
}

func (s stores) Sweep(context.Context) (services.Swept, error) { return services.Swept{}, s.fails() }

func (stores) Name() string { return "recent" }

func (s stores) DeadLetters(context.Context) ([]projections.DeadLetter, error) {
	return []projections.DeadLetter{{Projection: "recent", Position: events.Position{Seq: 1}}}, s.fails()
}

func (s stores) RetryDeadLetter(context.Context, events.Position) (projections.Retried, error) {
	return projections.Retried{Applied: true}, s.fails()
}

func (s stores) DropDeadLetter(
	context.Context, events.Position, projections.Drop,
) (projections.DeadLetter, error) {
	return projections.DeadLetter{}, s.fails()
}

// sometimes reads sessions, but while it is down.
type sometimes struct {
	services.SessionReader
	down *atomic.Bool
}

func (r sometimes) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	if r.down.Load() {
		return services.Reading{}, fmt.Errorf("read: %w", jetlog.ErrUnavailable)
	}
	return r.SessionReader.Read(ctx, ask)
}

// sometimesBuilt builds contexts, but while it is down.
type sometimesBuilt struct {
	services.ContextBuilder
	down *atomic.Bool
}

func (b sometimesBuilt) Build(ctx context.Context, req services.ContextRequest) (services.Context, error) {
	if b.down.Load() {
		return services.Context{}, fmt.Errorf("read: %w", jetlog.ErrUnavailable)
	}
	return b.ContextBuilder.Build(ctx, req)
}

// talking answers each message as the log lets it record them.
type talking struct{ turns services.TurnWriter }

func (c talking) Send(
	ctx context.Context, m services.ChatMessage, _ services.Listener,
) (services.ChatReply, error) {
	t, err := c.turns.StartTurn(ctx, decide.Start{
		SessionID: m.ThreadID, RequestID: uuid.NewString(), Question: events.Question{QuestionNeutral: m.Content},
	})
	return services.ChatReply{ThreadID: m.ThreadID, Turn: t}, err
}

// Parts of a process that can fail.
const (
	theReach = "reach" // the check of what a caller reaches
	theViews = "views" // what is kept beside the log
	theLog   = "log"
)

// asked is a call on a session of the caller's own, which is answered while all is well. needs are the parts that the
// answer needs: while one of them fails, it is 503.
type asked struct{ pattern, query, body, needs string }

// callsInOrder are all calls of the native API. What takes something away stands last. RECEIPT is one of an erasure
// before, TURN a turn of the session, LINE a line of many turns.
var callsInOrder = []asked{
	{"POST " + aSession + "/turns", "", `{"request_id":"r2","question_neutral":"q"}`, "reach log"},
	{"POST " + aTurn + "/finalize", "", `{"answer_neutral":"a"}`, "reach log"},
	{manyTurns, "", `{"session_id":"own","request_id":"m","question_neutral":"q"}`, "reach log"},
	{"PUT " + aSession + "/identity", "", `{"identity_id":"ada"}`, "reach log"},
	{"PATCH " + aSession, "", `{"title":"t"}`, "reach log"},
	{"POST " + aSession + "/fork", "", `{"request_id":"f"}`, "reach log"},
	{"POST " + aSession + "/summaries", "",
		`{"request_id":"m","through_turn_id":"TURN","summary_neutral":"s"}`, "reach log"},
	{"GET " + aSession + "/summaries", "", "", "reach views log"},
	{"GET " + aSession, "", "", "reach views log"},
	{"GET " + aSession + "/turns", "", "", "reach views log"},
	{"GET " + aSession + "/history", "", "", "reach views log"},
	{"POST " + aSession + "/context", "", `{"message":"m"}`, "reach views log"},
	{"GET /v1/identities/{identity_id}/turns", "", "", "views"},
	{"GET /v1/sessions", "", "", "views"},
	{"POST /v1/sessions/query", "", "{}", "views"},
	{"POST /v1/search", "", `{"query":"q"}`, "views"},
	{"POST /v1/similar", "", `{"question":"q"}`, "views"},
	{"GET /v1/stats", "", "", "views"},
	{"GET /v1/events", "?session_id=own", "", "reach log"},
	{"GET /v1/streams/sessions/{session_id}", "", "", "reach views log"},
	{"POST /v1/threads/{thread_id}/messages", "", `{"content":"c"}`, "reach log"},
	{"POST /v1/threads/{thread_id}/messages/stream", "", `{"content":"c"}`, "reach log"},
	{"POST /v1/chat", "", `{"content":"c","thread_id":"own"}`, "reach log"},
	{"POST /v1/chat/stream", "", `{"content":"c","thread_id":"own"}`, "reach log"},
	{"GET /v1/projections", "", "", "views"},
	{"POST /v1/projections/{name}/rebuild", "", "", "views"},
	{"DELETE /v1/projections/{name}/rebuild", "", "", "views"},
	{"GET /v1/streams", "", "", "log"},
	{"POST /v1/streams", "", "", "log"},
	{"GET /v1/deadletters", "", "", "views"},
	{"GET /v1/deadletters/{projection}/{position}", "", "", "views"},
	{"POST /v1/deadletters/{projection}/{position}/retry", "", "", "views"},
	{"POST /v1/deadletters/{projection}/{position}/drop", "", `{"reason":"r"}`, "views"},
	{"POST /v1/retention", "", "", "views"},
	{"GET /v1/keys", "", "", ""},
	{"GET /v1/receipts", "", "", "log"},
	{"GET /v1/receipts/{id}", "", "", "reach log"},
	{"POST " + aTurn + "/correct", "", `{"request_id":"c","answer_neutral":"b"}`, "reach log"},
	{"POST " + aTurn + "/redact", "", "{}", "reach log"},
	{"POST " + aSession + "/reset", "", "{}", "reach log"},
	{"DELETE " + aSession, "", "", "reach log"},
	{"DELETE /v1/identities/{identity_id}", "", "", "log"},
}

const (
	aSession = "/v1/sessions/{session_id}"
	aTurn    = aSession + "/turns/{turn_id}"
)

// notTried are calls that the outage test leaves out, each for a reason.
var notTried = map[string]string{
	"POST /v1/projections/{name}/verify":      "it answers line by line: TestTheStoreOfAViewThatDoesNotAnswer",
	"GET /v1/partitions/{partition}/snapshot": "it is of one piece with the log: services/backup",
	"POST /v1/restore":                        "it replaces the log: services/backup",
}

// failingParts is an API of which parts can be made to fail.
type failingParts struct {
	*stack
	receipt string
	fail    map[string]func()
}

func withFailingParts(t *testing.T, patience time.Duration) *failingParts {
	t.Helper()
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	notes := must.Get(log.Notes(t.Context()))(t)
	tail := replay.New(log, owners.New(log, nil))
	natstest.Run(t, tail.Run)
	reachDown, viewsDown := new(atomic.Bool), new(atomic.Bool)
	beside := stores{down: viewsDown}
	callers := ring{
		"all": {Name: "all", Scopes: scopes}, "ada": {Name: "ada", Scopes: scopes, IdentityID: "ada"},
	}
	links := read.New(log, read.Config{Rules: rules, Deadline: patience})
	f := &failingParts{}
	f.stack = startOn(t, log, func(c *config) {
		c.Open, c.Auth, c.Events, c.Keeper, c.Retention = false, callers, tail, beside, beside
		c.Receipts, c.Streams, c.Backups = eraser.NewReceipts(eraser.On(log), notes, nil), operate.On(log), nothing{}
		c.Keys = func() ([]access.Key, error) { return nil, nil }
		c.Lists, c.Identities, c.Counts, c.Search, c.Similar = beside, beside, beside, beside, beside
		c.Projections, c.DeadLetters = beside, []projections.DeadLetterQueue{beside}
		c.Rules = services.Rules{
			LinkReader: sometimes{links, reachDown}, RefusalTime: time.Millisecond, Deadline: patience,
		}
	})
	c := f.cfg
	written := c.Turns.(*write.Service)
	c.Sessions = sometimes{c.Sessions, viewsDown}
	c.Contexts = sometimesBuilt{c.Contexts, viewsDown}
	c.Chat, c.Erasures, c.Registry = talking{written}, written, prometheus.NewRegistry()
	f.api, f.cfg = newAPI(c), c
	answers := httptest.NewServer(f.api)
	t.Cleanup(answers.Close)
	f.url = answers.URL
	for _, session := range []string{own, "gone"} {
		require.Equal(t, http.StatusCreated, f.as("all", "POST", "/v1/sessions/"+session+"/turns",
			`{"request_id":"r","question_neutral":"q","answer_neutral":"a","identity_id":"ada"}`).status)
	}
	f.receipt = f.as("all", "DELETE", "/v1/sessions/gone", "").body["receipt_id"].(string)
	f.fail = map[string]func(){
		theReach: func() { reachDown.Store(true) }, theViews: func() { viewsDown.Store(true) }, theLog: server.Stop,
	}
	return f
}

// ask makes a call: as a caller who is bound to the identity, or, where that may not, as one for all.
func (f *failingParts) ask(c asked) (answer, error) {
	method, path := fill(c.pattern, own)
	with := strings.NewReplacer("TURN", events.TurnID(own, "r").String())
	path = strings.ReplaceAll(path, "{id}", f.receipt) + c.query
	var a answer
	for _, who := range []string{"ada", "all"} {
		var err error
		a, err = f.try(method, path, with.Replace(c.body), "Authorization", "Bearer "+who)
		if err != nil || a.status != http.StatusForbidden {
			if err == nil && c.pattern == manyTurns && a.status == http.StatusOK {
				a = lineAsAnswer(f.t.(*testing.T), a)
			}
			return a, err
		}
	}
	return a, nil
}

// Where a part of the process fails, no call says that there is nothing, and none shows less than there is: what needs
// the part is 503, and the same call may come again. A call that is new fails the test until it is in callsInOrder.
//
//conformance:l14
func TestAnOutageIsNoAbsence(t *testing.T) {
	t.Parallel()
	well := withFailingParts(t, hang.Limit)
	tried := map[string]bool{}
	for _, c := range callsInOrder {
		a := must.Get(well.ask(c))(t, c.pattern)
		require.Less(t, a.status, 300, "%s: %s", c.pattern, a.raw)
		tried[c.pattern] = true
	}
	for pattern, route := range routes(well.api) {
		require.True(t, tried[pattern] || notTried[pattern] != "" || route.needs == anybody,
			"%s: say in callsInOrder what it needs", pattern)
	}
	for _, part := range []string{theReach, theViews, theLog} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			patience := hang.Limit
			if part == theLog { // it is waited for
				patience = 2 * time.Second
			}
			f := withFailingParts(t, patience)
			f.fail[part]()
			var all sync.WaitGroup
			for _, c := range callsInOrder {
				check := func() {
					a, err := f.ask(c)
					what := fmt.Sprintf("%s, while the %s fails: %d %s", c.pattern, part, a.status, a.raw)
					assert.NoError(t, err, what)
					if strings.Contains(c.needs, part) {
						assert.Equal(t, http.StatusServiceUnavailable, a.status, what)
					} else {
						assert.Less(t, a.status, 300, what)
					}
				}
				if part == theLog { // it is waited for
					all.Go(check)
				} else { // what takes away comes last
					check()
				}
			}
			all.Wait()
		})
	}
}
