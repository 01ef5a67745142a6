package read_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// patience of the tests' listings that find what they wait for, and of those that don't.
const (
	patience   = hang.Limit
	impatience = 300 * time.Millisecond
)

// tables have applied the log up to a sequence, and hang or fail. Those that are read may be behind those that said so.
type tables struct {
	sessions []projections.ListedSession
	applied  uint64
	behind   []uint64 // by how much each of the next readings is
	// partitions of the log; 0 is 1.
	partitions int
	hang       bool
	err        error
}

func (t *tables) Applied(ctx context.Context, partition int) (events.Position, error) {
	if t.hang {
		<-ctx.Done()
		return events.Position{}, errors.Join(projections.ErrUnavailable, ctx.Err())
	}
	return events.Position{Partition: partition, Seq: t.applied}, t.err
}

// readAt is where the next reading is made.
func (t *tables) readAt() []events.Position {
	at := events.Position{Seq: t.applied}
	if len(t.behind) > 0 {
		at.Seq -= t.behind[0]
		t.behind = t.behind[1:]
	}
	out := []events.Position{at}
	for k := 1; k < t.partitions; k++ {
		out = append(out, events.Position{Partition: k, Seq: t.applied})
	}
	return out
}

func (t *tables) IdentityTurns(context.Context, string, time.Time, time.Time, int,
	string) ([]audit.Turn, []events.Position, string, error) {
	turn := session.Turn{Started: 2}
	return []audit.Turn{{SessionID: "s", IdentityID: "ada", Turn: turn}}, t.readAt(), "next", nil
}

func (t *tables) Sessions(
	context.Context, projections.SessionFilter, int, string,
) ([]projections.ListedSession, []events.Position, string, error) {
	return t.sessions, t.readAt(), "next", nil
}

func (t *tables) Counts(context.Context, projections.CountsFilter) ([]projections.Counts, []events.Position, error) {
	// A partition that the log does not have is one of tables that were made for another log.
	return []projections.Counts{{Started: 1}}, append(t.readAt(), events.Position{Partition: 1, Seq: 9}), t.err
}

func (t *tables) Anomalies(
	context.Context, projections.CountsFilter,
) ([]projections.Anomalies, []events.Position, error) {
	return []projections.Anomalies{{Reason: "unknown", Events: 2}}, t.readAt(), t.err
}

func (t *tables) TurnsByID(context.Context, []uuid.UUID) ([]audit.Turn, []events.Position, error) {
	return nil, t.readAt(), t.err
}

func (t *tables) Recall(context.Context, string, string, int) ([]audit.Recalled, []events.Position, error) {
	return []audit.Recalled{{Question: "q"}}, t.readAt(), t.err
}

func (t *tables) Search(
	context.Context, projections.SearchFilter, int, string,
) ([]projections.Hit, []events.Position, string, error) {
	return []projections.Hit{{SessionID: "s"}}, t.readAt(), "next", t.err
}

// A search waits for the tables, as lists do, and finds nothing of an identity that was erased.
func TestASearchHoldsAllThatTheLogHolds(t *testing.T) {
	t.Parallel()
	log, of := logOf(t, 3), &tables{applied: 3}
	reader := listsOf(log, of)
	page, err := reader.Search(t.Context(), services.SearchAsk{MinPosition: []events.Position{{Seq: 3}}})
	require.NoError(t, err)
	require.Equal(t, services.SearchPage{Mode: services.SearchWords, Hits: []projections.Hit{{SessionID: "s"}},
		Positions: []events.Position{{Seq: 3}}, NextCursor: "next"}, page)
	of.applied = 2
	_, err = impatient(log, of).Search(t.Context(), services.SearchAsk{})
	require.ErrorIs(t, err, services.ErrBehind)
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.IdentityErased{IdentityID: "ada",
		ReceiptID: "r"}}})
	require.NoError(t, err)
	of.applied = 4
	ask := services.SearchAsk{SearchFilter: projections.SearchFilter{IdentityID: "ada"}}
	page, err = reader.Search(t.Context(), ask)
	require.NoError(t, err)
	require.Empty(t, page.Hits)
}

// A list waits for the tables, and has the last turns of anonymous sessions: the newest that is not redacted, cut, from
// a reading that is as new as the list; none of one that has left the recent view.
//
//conformance:h4
func TestAListOfSessionsHoldsAllThatTheLogHolds(t *testing.T) {
	t.Parallel()
	at, now := events.Position{Seq: 3}, time.Now()
	head := session.Head{LastActive: now}
	head.Pending = 1
	old, linked := head, head
	old.LastActive, linked.Identity = now.Add(-2*time.Hour), "ada"
	log, of := logOf(t, 3), &tables{applied: 3, sessions: []projections.ListedSession{
		{SessionID: "fresh", Head: head, Position: at}, {SessionID: "old", Head: old, Position: at},
		{SessionID: "linked", Head: linked, Position: at},
		{SessionID: "empty", Head: session.Head{LastActive: now}, Position: at},
	}}
	long := strings.Repeat("ü", projections.LastTurnText)
	sessions := &readings{state: &session.State{Turns: []*session.Turn{
		{ID: events.TurnID("s", "1"), Status: session.Finalized},
		{ID: events.TurnID("s", "2"), Status: session.Pending,
			Question: &events.Question{QuestionNeutral: long + "more"}, Answer: &events.Answer{AnswerNeutral: long}},
		{ID: events.TurnID("s", "3"), Status: session.Redacted},
		{ID: events.TurnID("s", "4"), Status: session.Replaced},
	}}}
	reader := read.NewLists(log, read.ListsConfig{Sessions: sessions, TTL: time.Hour, Patience: patience,
		Tables: func() (read.Tables, error) { return of, nil }})
	page, err := reader.Sessions(t.Context(), services.SessionsAsk{})
	require.NoError(t, err)
	require.Equal(t, []services.Ask{{SessionID: "fresh", Shown: 1, Pending: true, MinPosition: []events.Position{at}}},
		sessions.asked)
	require.Equal(t, &projections.LastTurn{TurnID: events.TurnID("s", "2"), Status: session.Pending,
		Question: long, Answer: long}, page.Sessions[0].LastTurn)
	for _, s := range page.Sessions[1:] {
		require.Nil(t, s.LastTurn, s.SessionID)
	}
	last := func() *projections.LastTurn {
		page, err := reader.Sessions(t.Context(), services.SessionsAsk{})
		require.NoError(t, err)
		return page.Sessions[0].LastTurn
	}
	sessions.state.Turns = sessions.state.Turns[:1]
	require.Equal(t, session.Finalized, last().Status)
	sessions.state.Erased = 5
	require.Nil(t, last(), "of a session that was erased meanwhile")
	sessions.state, sessions.err = nil, errors.New("refused")
	_, err = reader.Sessions(t.Context(), services.SessionsAsk{})
	require.ErrorIs(t, err, sessions.err)
	of.applied = 2
	_, err = impatient(log, of).Sessions(t.Context(), services.SessionsAsk{})
	require.ErrorIs(t, err, services.ErrBehind)
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.IdentityErased{IdentityID: "ada",
		ReceiptID: "r"}}})
	require.NoError(t, err)
	of.applied, sessions.state, sessions.err = 4, &session.State{}, nil
	page, err = reader.Sessions(t.Context(), services.SessionsAsk{SessionFilter: projections.SessionFilter{
		IdentityID: "ada"}})
	require.NoError(t, err)
	require.Empty(t, page.Sessions, "of an erased identity")
}

// readings answers with one state, and remembers what it was asked.
type readings struct {
	services.SessionReader
	state *session.State
	asked []services.Ask
	err   error
}

func (r *readings) Read(_ context.Context, ask services.Ask) (services.Reading, error) {
	r.asked = append(r.asked, ask)
	return services.Reading{State: r.state}, r.err
}

// Statistics don't wait for the tables, and say how far they are; they wait for a position that was asked for.
func TestStatisticsSayHowFarTheyAre(t *testing.T) {
	t.Parallel()
	log, of := logOf(t, 3), &tables{applied: 2}
	reader := listsOf(log, of)
	ask := services.CountsAsk{MinPosition: []events.Position{{Seq: 2}}, WithAnomalies: true}
	page, err := reader.Counts(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, services.CountsPage{Counts: []projections.Counts{{Started: 1}},
		Anomalies: []projections.Anomalies{{Reason: "unknown", Events: 2}},
		Positions: []events.Position{{Seq: 2}, {Partition: 1, Seq: 9}}, LagEvents: 1}, page)
	of.applied = 5
	page, err = reader.Counts(t.Context(), services.CountsAsk{})
	require.NoError(t, err)
	require.Zero(t, page.LagEvents, "the tables went on meanwhile")
	require.Nil(t, page.Anomalies, "nobody asked for them")
	of.applied, reader = 2, impatient(log, of)
	_, err = reader.Counts(t.Context(), services.CountsAsk{MinPosition: []events.Position{{Seq: 3}}})
	require.ErrorIs(t, err, services.ErrBehind)
	_, err = reader.Counts(t.Context(), services.CountsAsk{MinPosition: []events.Position{{Seq: 4}}})
	require.ErrorIs(t, err, services.ErrPositionNotReached)
	of.hang = true
	_, err = reader.Counts(t.Context(), services.CountsAsk{})
	require.ErrorIs(t, err, services.ErrBehind, "tables that do not answer are not asked for more")
}

// logOf has so many events.
func logOf(t *testing.T, n int) *jetlog.Log {
	t.Helper()
	log := natstest.Log(t, 1)
	for i := range n {
		request := strconv.Itoa(i)
		_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{
			TurnID: events.TurnID("s", request), SessionID: "s", RequestID: request,
			Question: events.Question{QuestionNeutral: "q"},
		}}})
		require.NoError(t, err)
	}
	return log
}

// listsOf reads from tables.
func listsOf(log read.ListsLog, of *tables) *read.Lists { return listsWith(log, of, patience) }

// impatient is listsOf for tables that stay behind.
func impatient(log read.ListsLog, of *tables) *read.Lists { return listsWith(log, of, impatience) }

func listsWith(log read.ListsLog, of *tables, patience time.Duration) *read.Lists {
	return read.NewLists(log, read.ListsConfig{Patience: patience,
		Tables: func() (read.Tables, error) { return of, nil }})
}

func list(t *testing.T, log *jetlog.Log, of *tables, least ...events.Position) (services.IdentityPage, error) {
	t.Helper()
	reader := listsOf(log, of)
	return reader.IdentityTurns(t.Context(), services.IdentityAsk{IdentityID: "ada", MinPosition: least})
}

func TestAListingHoldsAllThatTheLogHolds(t *testing.T) {
	t.Parallel()
	log := logOf(t, 3)
	page, err := list(t, log, &tables{applied: 3}, events.Position{Seq: 2})
	require.NoError(t, err)
	require.Equal(t, "next", page.NextCursor)
	require.Len(t, page.Turns, 1)
	require.Equal(t, events.Position{Seq: 2}, page.Turns[0].Position)
}

// Tables that are behind, or hang, are the audit's fault, and not the log's.
func TestTablesThatAreBehindTheLogAreUnavailable(t *testing.T) {
	t.Parallel()
	log := logOf(t, 3)
	for name, of := range map[string]*tables{"behind": {applied: 2}, "begun": {}, "hang": {hang: true}} {
		for _, least := range [][]events.Position{nil, {{Seq: 3}}} {
			_, err := impatient(log, of).IdentityTurns(t.Context(), services.IdentityAsk{IdentityID: "ada",
				MinPosition: least})
			require.ErrorIs(t, err, services.ErrBehind, name)
			require.NotErrorIs(t, err, services.ErrPositionNotReached, name)
		}
	}
}

// PostgreSQL may fail over to a standby that lags, between the wait for the tables and the reading: what a reading is
// too old for is read again, until the patience ends.
func TestAReadingCountsOnlyAtItsOwnPosition(t *testing.T) {
	t.Parallel()
	log := logOf(t, 3)
	of := &tables{applied: 3}
	least := []events.Position{{Seq: 3}}
	for name, again := range map[string]func(reader *read.Lists) error{
		"sessions": func(reader *read.Lists) error { return second(reader.Sessions(t.Context(), services.SessionsAsk{})) },
		"turns": func(reader *read.Lists) error {
			return second(reader.IdentityTurns(t.Context(), services.IdentityAsk{IdentityID: "ada"}))
		},
		"search": func(reader *read.Lists) error { return second(reader.Search(t.Context(), services.SearchAsk{})) },
		"found": func(reader *read.Lists) error {
			return second(reader.FindTurns(t.Context(), []services.TurnRef{{IdentityID: "ada"}}))
		},
		"recalled": func(reader *read.Lists) error { return second(reader.Recall(t.Context(), "ada", "q", 1)) },
		"counts": func(reader *read.Lists) error {
			return second(reader.Counts(t.Context(), services.CountsAsk{MinPosition: least}))
		},
		"anomalies": func(reader *read.Lists) error {
			return second(reader.Counts(t.Context(), services.CountsAsk{MinPosition: least, WithAnomalies: true}))
		},
	} {
		var before []uint64
		if name == "anomalies" { // the counts are read before them
			before = []uint64{0}
		}
		of.behind = append(before, 1, 0)
		require.NoError(t, again(listsOf(log, of)), name)
		require.Empty(t, of.behind, "%s is read again", name)
		of.behind = append(before, slices.Repeat([]uint64{3}, 1000)...)
		require.ErrorIs(t, again(impatient(log, of)), services.ErrBehind, name)
	}
}

func second[T any](_ T, err error) error { return err }

// erasedTail is a log without an event behind the tables: those that are missing were erased.
type erasedTail struct{ read.ListsLog }

func (erasedTail) Still(context.Context, int, uint64, uint64) (bool, error) { return true, nil }

// Tables that hold all that is left of the log are not behind. Those that have not begun are.
func TestErasedEventsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	of := &tables{applied: 2}
	reader := listsOf(erasedTail{logOf(t, 3)}, of)
	_, err := reader.Sessions(t.Context(), services.SessionsAsk{})
	require.NoError(t, err)
	of.applied = 0
	_, err = impatient(erasedTail{logOf(t, 3)}, of).Sessions(t.Context(), services.SessionsAsk{})
	require.ErrorIs(t, err, services.ErrBehind)
}

// A position is held against its own partition.
func TestAPositionOfOneOfTwoPartitions(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	at, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{
		TurnID: events.TurnID("s", "r"), SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q"},
	}}})
	require.NoError(t, err)
	_, err = list(t, log, &tables{applied: 9, partitions: 2}, at.Position)
	require.NoError(t, err)
}

// Tables that were emptied under way say nothing of a partition that has no events, and nothing is missing there.
func TestAPartitionWithoutEventsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	at := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{
		TurnID: events.TurnID("a", "r"), SessionID: "a", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q"},
	}}}))(t)
	require.Zero(t, at.Position.Partition, "the other one is empty")
	must.Get(list(t, log, &tables{applied: 9, partitions: 1}, at.Position))(t)
}

// A position that the log does not hold is not reached, whatever the tables do.
func TestAPositionThatTheLogDoesNotHoldIsNotReached(t *testing.T) {
	t.Parallel()
	log := logOf(t, 3)
	for _, of := range []*tables{{applied: 3}, {hang: true}} {
		for _, least := range []events.Position{{Seq: 4}, {Partition: 7, Seq: 1}, {Partition: 1, Seq: 1}} {
			_, err := impatient(log, of).IdentityTurns(t.Context(), services.IdentityAsk{IdentityID: "ada",
				MinPosition: []events.Position{least}})
			require.ErrorIs(t, err, services.ErrPositionNotReached)
			require.NotErrorIs(t, err, services.ErrBehind)
		}
	}
}

func TestTablesThatFailAreUnavailable(t *testing.T) {
	t.Parallel()
	log := logOf(t, 1)
	_, err := list(t, log, &tables{err: errors.New("refused")})
	require.ErrorIs(t, err, projections.ErrUnavailable)
	reader := read.NewLists(log, read.ListsConfig{Patience: patience,
		Tables: func() (read.Tables, error) { return nil, projections.ErrUnavailable }})
	_, err = reader.IdentityTurns(t.Context(), services.IdentityAsk{IdentityID: "ada"})
	require.ErrorIs(t, err, projections.ErrUnavailable)
}

// An identity that was erased has no turns, though the tables still hold some.
func TestAnErasedIdentityHasNoTurns(t *testing.T) {
	t.Parallel()
	log := logOf(t, 1)
	_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.IdentityErased{IdentityID: "ada",
		ReceiptID: "r"}}})
	require.NoError(t, err)
	page, err := list(t, log, &tables{applied: 2})
	require.NoError(t, err)
	require.Empty(t, page.Turns)
}
