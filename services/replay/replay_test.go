package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

func TestEventIsACloudEventWithItsBodyAsItStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	before := time.Now().Add(-time.Second)
	f := asked("a/b <x>", "r", "Who is \"she\"?\n<b>&")
	w.add(f)
	got := w.all(services.EventQuery{})
	require.Len(t, got, 1)
	e := got[0]
	require.Equal(t, "1.0", e.SpecVersion)
	require.Equal(t, f.EventID(), e.ID)
	require.Equal(t, events.Source, e.Source)
	require.Equal(t, events.TypeTurnStarted, e.Type)
	require.Equal(t, "a/b <x>", e.Subject)
	require.Equal(t, events.Position{Seq: 1}, e.Position)
	require.WithinRange(t, e.Time, before, time.Now().Add(time.Second))
	require.WithinRange(t, e.RecordedAt, before, time.Now().Add(time.Second))
	require.Equal(t, map[string]any{"turn_id": f.TurnID.String(), "session_id": "a/b <x>", "request_id": "r",
		"question_neutral": "Who is \"she\"?\n<b>&"}, e.Data)
}

func TestPartitionsComeMergedByRecordedTimeEachInItsOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	var want []string
	for k := range 60 {
		f := asked(fmt.Sprint("s", k%13), fmt.Sprint(k), "q")
		w.add(f)
		want = append(want, f.EventID())
	}
	got := w.all(services.EventQuery{})
	require.Equal(t, want, ids(got))
	partitions := map[int]uint64{}
	for _, e := range got {
		require.Greater(t, e.Position.Seq, partitions[e.Position.Partition])
		partitions[e.Position.Partition] = e.Position.Seq
	}
	require.Len(t, partitions, 4, "the sessions are to fall on every partition")
}

// A reading that goes on from the position of any other gives exactly the rest.
func TestReadingGoesOnAfterAnyPosition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	for k := range 20 {
		w.add(asked(fmt.Sprint("s", k), "r", "q"))
	}
	all := w.all(services.EventQuery{})
	require.Len(t, all, 20)
	for cut := range all {
		seen := events.Cursor{}
		for _, e := range all[:cut] {
			seen.Pass(e.Position)
		}
		q := services.EventQuery{}
		if cut > 0 {
			q.From = must.Get(events.ParsePositions(seen.String()))(t)
		}
		require.Equal(t, ids(all[cut:]), ids(w.all(q)), "from %s", seen)
		if cut > 0 && len(seen) == 2 {
			require.Equal(t, ids(all[:cut]), ids(w.all(services.EventQuery{To: q.From})), "to %s", seen)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a1, a2, b1, link := asked("a", "1", "q"), answered("a", "1", "x"), asked("b", "1", "q"), linked("a", "u")
	w.add(a1, b1, a2, link, asked("c", "1", "q"))
	w.add(linked("c", "other"))

	require.Equal(t, eventIDs(a1, a2, link), ids(w.all(services.EventQuery{SessionID: "a"})))
	require.Empty(t, w.all(services.EventQuery{SessionID: "nobody"}))
	require.Equal(t, eventIDs(a2), ids(w.all(services.EventQuery{Types: []string{events.TypeTurnFinalized}})))
	require.Equal(t, eventIDs(a1, a2), ids(w.all(services.EventQuery{SessionID: "a",
		Types: []string{events.TypeTurnFinalized, events.TypeTurnStarted}})))
	require.Equal(t, eventIDs(a1, a2, link), ids(w.all(services.EventQuery{IdentityID: "u"})),
		"also what came before the link")
	require.Empty(t, w.all(services.EventQuery{IdentityID: "nobody"}))
	gone := &events.IdentityErased{IdentityID: "u", ReceiptID: "r"}
	w.add(gone, &events.IdentityErased{IdentityID: "other", ReceiptID: "r"})
	require.NotContains(t, ids(w.all(services.EventQuery{IdentityID: "u"})), gone.EventID())
	own := ids(w.all(services.EventQuery{IdentityID: "u", Own: services.WithOwn}))
	require.Equal(t, gone.EventID(), own[len(own)-1], "not that of another identity")
	require.Len(t, own, 4)

	all := w.all(services.EventQuery{})
	third := all[2].RecordedAt
	require.Equal(t, ids(all[2:]), ids(w.all(services.EventQuery{Since: third})))
	require.Equal(t, ids(all[:2]), ids(w.all(services.EventQuery{Until: third})))
	require.Equal(t, ids(all[2:3]), ids(w.all(services.EventQuery{Since: third, Until: third.Add(1)})))
	require.Empty(t, w.all(services.EventQuery{Since: time.Now().Add(time.Hour)}))
}

// A link to another identity that a foreign publisher wrote after the session's own is
// an anomaly: it must not show the session to somebody else.
func TestSecondLinkShowsNothingToTheOtherIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.add(asked("s", "1", "private"), linked("s", "owner"), linked("s", "thief"))
	require.Empty(t, w.all(services.EventQuery{IdentityID: "thief"}))
	require.Len(t, w.all(services.EventQuery{IdentityID: "owner"}), 3)
}

func TestQueryThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	for field, q := range map[string]services.EventQuery{
		"session_id":  {SessionID: ".."},
		"identity_id": {SessionID: "s", IdentityID: "u"},
		"type":        {Types: []string{"turn.started"}},
		"from":        {From: []events.Position{{Partition: 2, Seq: 1}}},
		"to":          {To: []events.Position{{Partition: 7, Seq: 1}}},
	} {
		_, err := w.replay.OpenEvents(t.Context(), q)
		var wrong *decide.Invalid
		require.ErrorAs(t, err, &wrong, field)
		require.Equal(t, field, wrong.Field)
	}
	for _, q := range []services.EventQuery{{From: []events.Position{{Seq: 9}}}, {Min: []events.Position{{Seq: 9}}},
		{Min: []events.Position{{Partition: 2, Seq: 1}}}} {
		must.Fail(w.replay.OpenEvents(t.Context(), q))(t, services.ErrPositionNotReached)
	}
}

// The events at the end of the log may be gone: the one that was the head when the
// reading began never comes, and the reading ends all the same.
func TestReadingEndsWhereTheLastEventsWereErased(t *testing.T) {
	t.Parallel()
	server, log := serverAndLog(t, 1)
	w := worldOn(t, log)
	w.add(asked("a", "1", "q"), asked("b", "1", "q"))
	last := w.add(asked("c", "1", "q"))
	stream := must.Get(server.Stream(t.Context(), events.StreamName(0)))(t)
	require.NoError(t, stream.SecureDeleteMsg(t.Context(), last.Seq))
	require.Equal(t, eventIDs(asked("a", "1", ""), asked("b", "1", "")), ids(w.all(services.EventQuery{})))
	require.Empty(t, w.all(services.EventQuery{From: []events.Position{{Seq: 2}}}))
}

func TestFollowerIsGivenWhatComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.add(asked("a", "1", "q"))
	every, one, of := w.open(services.EventQuery{Follow: true}), w.open(services.EventQuery{Follow: true,
		SessionID: "b"}), w.open(services.EventQuery{Follow: true, IdentityID: "u"})
	next(t, every, 1)
	b1, link := asked("b", "1", "q"), linked("b", "u")
	w.add(b1, asked("c", "1", "q"), link)
	require.Len(t, next(t, every, 3), 3)
	require.Equal(t, eventIDs(b1, link), ids(next(t, one, 2)))
	require.Equal(t, eventIDs(link), ids(next(t, of, 1)), "a session that is linked meanwhile joins with its link")
	b2 := asked("b", "2", "q")
	w.add(asked("c", "2", "q"), b2)
	require.Equal(t, eventIDs(b2), ids(next(t, of, 1)))
}

func TestFollowerEndsAtItsBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.add(asked("a", "1", "q"))
	to := w.open(services.EventQuery{Follow: true, To: []events.Position{{Seq: 3}}})
	until := w.open(services.EventQuery{Follow: true, Until: time.Now().Add(5 * time.Second)})
	w.add(asked("a", "2", "q"), asked("a", "3", "q"), asked("a", "4", "q"))
	require.Len(t, rest(t, to), 3)
	require.Len(t, rest(t, until), 4)
	past := w.open(services.EventQuery{Follow: true, SessionID: "a", To: []events.Position{{Seq: 6}}})
	w.add(asked("a", "5", "q"), asked("b", "1", "q"), asked("b", "2", "q"))
	require.Len(t, rest(t, past), 5, "what stands at the end is another session's")
}

// A branch has the identity of its root: once that is erased, nobody reads the branch as the identity's any more, and
// an erasure of the identity takes it all the same.
func TestABranchWithoutItsRootIsNobodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.add(asked("root", "1", "q"), linked("root", "ada"))
	w.add(&events.SessionForked{SessionID: "b", RequestID: "f", FromSessionID: "root", Root: "root"},
		linked("b", "ada"), asked("b", "2", secret))
	of := services.EventQuery{IdentityID: "ada"}
	require.Len(t, w.all(of), 5)
	following := of
	following.Follow = true
	follower := w.open(following)
	next(t, follower, 5)

	w.add(&events.SessionErased{SessionID: "root", ReceiptID: "r"})
	for _, e := range w.all(of) {
		require.Equal(t, "root", e.Subject)
	}
	w.add(asked("b", "3", secret), asked("mine", "1", "q"), linked("mine", "ada"))
	for i, e := range next(t, follower, 2) {
		require.Equal(t, []string{"root", "mine"}[i], e.Subject)
	}

	w.add(&events.IdentityErased{IdentityID: "ada", ReceiptID: "r"})
	noSecret(t, w.all(services.EventQuery{}))
}

const secret = "SECRET"

func serverAndLog(t testing.TB, partitions int) (jetstream.JetStream, *jetlog.Log) {
	t.Helper()
	s := natstest.Server(t)
	return must.Get(jetstream.New(natstest.Connect(t, s)))(t), natstest.LogOn(t, s, partitions)
}

// noSecret holds every line against the text that is gone.
func noSecret(t *testing.T, got []printed) {
	t.Helper()
	for _, e := range got {
		require.NotContains(t, e.line, secret)
	}
}

// Whatever version of a chain is redacted, and wherever that stands, no text of any
// version is printed, and the events keep their places.
func TestRedactedTextIsNotPrinted(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]uuid.UUID{"first": events.TurnID("s", "1"), "middle": events.TurnID("s", "2"),
		"last": events.TurnID("s", "3")} {
		for _, stones := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tombstones=%v", name, stones), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 1)
				w.add(asked("s", "1", secret), answered("s", "1", secret), corrected("s", "1", "2", secret),
					corrected("s", "2", "3", secret), asked("s", "other", "stays"))
				gone := redacted("s", turn)
				if stones {
					gone.Tombstones = chain(t, w, "s")
				}
				w.add(gone, corrected("s", "1", "late", secret))
				for _, q := range []services.EventQuery{{}, {SessionID: "s"}, {To: []events.Position{{Seq: 4}}},
					{Types: []string{events.TypeTurnCorrected}}} {
					noSecret(t, w.all(q))
				}
				got := w.all(services.EventQuery{})
				require.Len(t, got, 7)
				require.Equal(t, map[string]any{"turn_id": events.TurnID("s", "1").String(), "session_id": "s",
					"request_id": "1", "redacted": true}, got[0].Data)
				require.Equal(t, map[string]any{"turn_id": events.TurnID("s", "1").String(), "session_id": "s",
					"redacted": true}, got[1].Data)
				require.Equal(t, map[string]any{
					"turn_id": events.TurnID("s", "2").String(), "session_id": "s", "request_id": "2",
					"replaces_turn_id": events.TurnID("s", "1").String(), "redacted": true,
				}, got[2].Data)
				require.Equal(t, "stays", got[4].Data["question_neutral"])
			})
		}
	}
}

// A redaction of another session's turn is none.
func TestRedactionReachesItsOwnSessionOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.add(asked("s", "1", "stays"), redacted("liar", events.TurnID("s", "1")))
	require.Equal(t, "stays", w.all(services.EventQuery{})[0].Data["question_neutral"])
}

func TestErasedSessionsAreNotPrinted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.add(asked("s", "1", secret), answered("s", "1", secret), asked("other", "1", "stays"))
	w.add(asked("u1", "1", secret), linked("u1", "u"), asked("u2", "1", secret), linked("u2", "u"), linked("other",
		"v"))
	follower := w.open(services.EventQuery{Follow: true})
	next(t, follower, 8)
	w.add(&events.SessionErased{SessionID: "s", ReceiptID: "r"}, &events.IdentityErased{IdentityID: "u",
		ReceiptID: "r"})
	w.add(asked("s", "2", secret), asked("u1", "2", secret))
	w.add(asked("later", "1", secret), linked("later", "u"), asked("later", "2", secret))
	got := w.all(services.EventQuery{})
	require.Len(t, got, 15)
	noSecret(t, got)
	require.Equal(t, "stays", got[2].Data["question_neutral"])
	live := next(t, follower, 7)
	noSecret(t, live[:4]) // what came before the session was linked to the erased identity was nobody's
	noSecret(t, live[5:])
	fresh := worldOn(t, w.log)
	noSecret(t, fresh.all(services.EventQuery{}))
}

// What comes after a redaction is held against it, however soon it comes.
func TestFollowerIsNeverAheadOfRedactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	s := w.open(services.EventQuery{Follow: true})
	for k := range 50 {
		r := fmt.Sprint(k)
		w.add(asked("s", r, "q"), redacted("s", events.TurnID("s", r)), answered("s", r, secret))
	}
	noSecret(t, next(t, s, 150))
}

// Events that state nothing are seen, and their bodies are not.
func TestBodyOfWhatStatesNoFactIsNeverPrinted(t *testing.T) {
	t.Parallel()
	js, log := serverAndLog(t, 1)
	w := worldOn(t, log)
	publish := func(m *nats.Msg) { must.Get(js.PublishMsg(t.Context(), m))(t) }
	publish(&nats.Msg{Subject: events.SessionSubject("s"), Data: []byte(secret)})
	lie := must.Get(events.Encode(asked("s", "1", secret), w0))(t)
	lie.Header[events.HeaderID] = []string{"another\nid"}
	lie.Header[events.HeaderTime] = []string{"\"never\""}
	publish(&nats.Msg{Subject: lie.Subject, Header: nats.Header(lie.Header), Data: lie.Body})
	good := must.Get(events.Encode(asked("s", "2", "x"), w0))(t)
	good.Body = []byte(strings.Replace("\n "+string(good.Body), `"x"`, "\r\n\"caf\xe9\"", 1))
	publish(&nats.Msg{Subject: good.Subject, Header: nats.Header(good.Header), Data: good.Body})
	publish(&nats.Msg{Subject: "turns.1.wrong", Data: []byte(secret)})

	got := w.all(services.EventQuery{})
	require.Len(t, got, 4)
	noSecret(t, got)
	require.Equal(t, map[string]any{"problem": "not_a_cloudevent"}, got[0].Data)
	require.Equal(t, []string{"0:1", "unknown", "unknown", "s"}, []string{got[0].ID, got[0].Type, got[0].Source,
		got[0].Subject})
	require.Equal(t, map[string]any{"problem": "wrong_event_id"}, got[1].Data)
	require.True(t, got[1].Time.IsZero())
	require.Equal(t, "caf\ufffd", got[2].Data["question_neutral"])
	require.Equal(t, map[string]any{"problem": "wrong_subject"}, got[3].Data)
}

// A description that was replaced is not printed, wherever the newer one stands, nor one of an erased session.
func TestAReplacedDescriptionIsNotPrinted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	hash, began := events.RequestHash("d1"), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	w.add(
		&events.SessionDescribed{SessionID: "s", RequestID: "d1", Title: secret},
		&events.SessionDescribed{SessionID: "e", RequestID: "d1", Title: secret},
		&events.SessionDescribed{SessionID: "s", RequestID: "d2", Title: "stands", After: events.Position{Seq: 1},
			Earlier: []string{hash}, CreatedAt: &began},
		&events.SessionDescribed{SessionID: "s", RequestID: "d3", Title: secret},
		&events.SessionErased{SessionID: "e", ReceiptID: "x"},
	)
	for _, q := range []services.EventQuery{{}, {SessionID: "s"}, {To: []events.Position{{Seq: 1}}}} {
		noSecret(t, w.all(q))
	}
	got := w.all(services.EventQuery{})
	require.Len(t, got, 5)
	require.Equal(t, map[string]any{"session_id": "s", "request_id": "d1", "redacted": true}, got[0].Data)
	require.Equal(t, "stands", got[2].Data["title"])
}

// What a prune took out is not printed, wherever the prune stands, nor what repeats it later; what came later by itself
// is. A prune that does not count hides nothing.
func TestPrunedTextIsNotPrinted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	turn := events.TurnID("s", "1")
	extended := func(id, text string) *events.TurnExtended {
		return &events.TurnExtended{TurnID: turn, SessionID: "s", ExtensionID: id, Extension: events.Extension{
			Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool","content":"` + text + `"}]`)}}
	}
	prune := func(id string, change func(*events.TurnPruned)) *events.TurnPruned {
		f := &events.TurnPruned{TurnID: turn, SessionID: "s", PruneID: id, Tombstones: chain(t, w, "s"),
			Question: events.Question{QuestionNeutral: "stays"}, Session: &events.SessionMark{},
			Parts: []events.Part{{ID: "e1", Half: events.HalfAnswer}}}
		if change != nil {
			change(f)
		}
		return f
	}
	w.add(asked("s", "1", secret), answered("s", "1", secret), extended("e1", secret),
		&events.SessionSummarized{SessionID: "s", RequestID: "m", TurnIDs: []uuid.UUID{turn}, SummaryNeutral: secret})
	w.add(prune("wrong", func(f *events.TurnPruned) { f.Tombstones[0].Final.Seq++ }))
	require.Contains(t, w.all(services.EventQuery{})[0].line, secret, "it does not count")
	w.add(prune("p", nil))
	for _, f := range []events.Fact{extended("e1", secret), asked("s", "1", "late "+secret),
		answered("s", "1", "late "+secret), corrected("s", "0", "1", secret)} {
		must.Get(w.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}, Salt: "late"}))(t)
	}
	w.add(extended("e2", "next"), corrected("s", "1", "c", "corrected"))
	for _, q := range []services.EventQuery{{}, {SessionID: "s"}, {To: []events.Position{{Seq: 3}}}} {
		noSecret(t, w.all(q))
	}
	got := w.all(services.EventQuery{})
	require.Len(t, got, 12)
	require.Equal(t, map[string]any{"turn_id": turn.String(), "session_id": "s", "extension_id": "e1",
		"redacted": true}, got[2].Data)
	require.Equal(t, "stays", got[5].Data["question_neutral"])
	require.Contains(t, got[10].line, "next")
	require.Contains(t, got[11].line, "corrected")
}
