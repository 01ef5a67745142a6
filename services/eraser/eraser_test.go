package eraser_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// holding returns the files below a folder that hold a text.
func holding(t testing.TB, dir, text string) []string {
	t.Helper()
	return natstest.Holding(t, text, []string{dir})
}

// All that was said of a redacted turn goes: its extensions, its versions, one that lost its race, and what it asked a
// model with, which is nothing that its tombstone knows. The tombstone stays what it was.
//
//conformance:o41
func TestARedactedTurnLeavesTheLog(t *testing.T) {
	t.Parallel()
	answered := &events.TurnFinalized{TurnID: events.TurnID("s", "r1"), SessionID: "s",
		Answer: events.Answer{AnswerNeutral: "SECRET"}}
	for name, record := range map[string]func(w *world) (gone uuid.UUID){
		"plain": func(w *world) uuid.UUID { return w.turn("s", "r1", "SECRET") },
		"extended": func(w *world) uuid.UUID {
			gone := w.turn("s", "r1", "SECRET")
			w.extend("s", gone, "e1", "SECRET")
			w.extend("s", gone, "e2", "SECRET")
			return gone
		},
		"corrected": func(w *world) uuid.UUID {
			first := w.turn("s", "r1", "SECRET")
			second := w.correct("s", "c1", first, "SECRET")
			w.correct("s", "c2", second, "SECRET")
			w.publish(&events.TurnCorrected{TurnID: events.TurnID("s", "c3"), SessionID: "s", RequestID: "c3",
				ReplacesTurnID: first, Question: events.Question{QuestionNeutral: "SECRET"}, Answer: answered.Answer},
				"")
			return second
		},
		"whole": func(w *world) uuid.UUID {
			w.publish(turntest.Recorded("s", "r1", "SECRET", "SECRET"), "")
			return answered.TurnID
		},
		"whole again and otherwise": func(w *world) uuid.UUID {
			w.publish(turntest.Started("s", "r1", "SECRET"), "")
			w.publish(turntest.Recorded("s", "r1", "SECRET", "SECRET that never counted"), "1")
			w.publish(turntest.Recorded("s", "r1", "SECRET in other words", "SECRET"), "2")
			w.publish(answered, "")
			return answered.TurnID
		},
		"a response": func(w *world) uuid.UUID {
			w.publish(&events.TurnStarted{TurnID: answered.TurnID, SessionID: "s", RequestID: "r1",
				Question: events.Question{QuestionNeutral: "SECRET"},
				Settings: json.RawMessage(`{"request":{"user":"SECRET"}}`)}, "")
			w.publish(answered, "")
			return answered.TurnID
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.erase(inOnePiece(w.log), eraser.Config{})
			other, gone := w.turn("s", "r0", "KEPT"), record(w)
			require.NotEmpty(t, holding(t, w.dir, "SECRET"), "the search finds what there is")
			turns := len(w.state("s").Turns)
			before := w.redact("s", gone)
			w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
			require.Empty(t, holding(t, w.dir, "SECRET"))
			require.NotEmpty(t, holding(t, w.dir, "KEPT"))
			state := w.state("s")
			require.Len(t, state.Turns, turns)
			require.Equal(t, other, state.Turns[0].ID)
			require.Equal(t, before.Turn, *state.Turn(gone), "the tombstone is the same as before")
			session := must.Get(eraser.SessionOfErased(t.Context(), w.notes, events.SessionDigest("s")))(t)
			require.Equal(t, "s", session, "by which a history that has ids of the turn's items is found")
			if name == "a response" {
				session := must.Get(eraser.SessionOfErased(t.Context(), w.notes, gone.String()))(t)
				require.Equal(t, "s", session, "by which a call that went on with it is found again")
			}
			w.extend("s", gone, "late", "SECRET")
			w.publish(turntest.Recorded("s", state.Turn(gone).RequestID, "SECRET", "SECRET"), "late")
			w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
			require.Empty(t, holding(t, w.dir, "SECRET"))
		})
	}
}

// A long session of which much is redacted is read once for what waits, not once for
// each redaction.
func TestRedactionsOfOneSessionGoTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	const turns = 60
	want := []string{events.TypeTurnStarted, events.TypeTurnFinalized}
	w.turn("s", "kept", "KEPT")
	for n := range turns {
		w.turn("s", fmt.Sprint(n), "SECRET")
		want = append(want, events.TypeTurnRedacted)
	}
	for n := range turns {
		w.redact("s", events.TurnID("s", fmt.Sprint(n)))
	}
	before := w.state("s")
	log := &counted{Log: inOnePiece(w.log), reads: map[string]int{}}
	w.erase(log, eraser.Config{Rate: 10_000})
	w.left("s", want...)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.NotEmpty(t, holding(t, w.dir, "KEPT"))
	require.True(t, before.Same(w.state("s")))
	require.Less(t, log.forget()["s"], turns, "three readings for each redaction would be %d", 3*turns)
}

func TestWhatComesLateIsErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	gone := w.turn("s", "r1", "SECRET")
	w.redact("s", gone)
	w.left("s", events.TypeTurnRedacted)

	w.publish(&events.TurnStarted{TurnID: gone, SessionID: "s", RequestID: "r1",
		Question: events.Question{QuestionNeutral: "SECRET again"}}, "late")
	w.publish(&events.TurnFinalized{TurnID: gone, SessionID: "s", Answer: events.Answer{AnswerNeutral: "SECRET again"}},
		"late")
	w.left("s", events.TypeTurnRedacted)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.True(t, w.start("s", "r1", "SECRET").Duplicate, "a late retry brings nothing back")
	require.Empty(t, holding(t, w.dir, "SECRET"))

	must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{Reason: "asked to"}))(t)
	w.left("s", events.TypeSessionErased, events.TypeErasureReceipt)
	w.publish(&events.TurnStarted{TurnID: events.TurnID("s", "r2"), SessionID: "s", RequestID: "r2",
		Question: events.Question{QuestionNeutral: "SECRET late"}}, "")
	w.left("s", events.TypeSessionErased, events.TypeErasureReceipt)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	// The log goes on behind sequences that are no more.
	w.turn("s2", "r1", "text")
}

// A foreign redaction that lacks the tombstones: without the turn's events a replay
// would not know that there was one.
func TestEventsStayWhereTheyAreNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	gone := w.turn("s", "r1", "SECRET")
	foreign := w.publish(&events.TurnRedacted{TurnID: gone, SessionID: "s"}, "")
	other := w.turn("s", "r2", "SECRET-2")
	own := w.redact("s", other).Position
	w.erase(inOnePiece(w.log), eraser.Config{})
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted, events.TypeTurnRedacted)
	require.NotZero(t, w.state("s").Turn(gone).Redacted)
	w.complete(own.String()) // it is said after the events have gone
	require.False(t, w.receipt(foreign.String()).Complete(), "what stays is not said to be gone")
}

func TestAnErasedSessionLeavesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "SECRET")
	w.link("s", "alice")
	w.turn("s", "r2", "SECRET")
	docs := &documents{}
	receipt := must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{Reason: "asked to", By: "ops"}))(t)
	require.Equal(t, receipt, must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{}))(t))
	closed := w.state("s")

	place := &place{name: "recent"}
	known := w.asking(receipt, place)
	r := known()
	require.False(t, r.Complete())
	require.Equal(t, []string{"asked to", "ops"}, []string{r.Reason, r.By})
	require.Equal(t, receipt, w.receipt(r.Position.String(), place).ID, "by its position, too")
	w.erase(inOnePiece(w.log), eraser.Config{Places: []eraser.Place{place}, Documents: docs})
	w.left("s", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
	require.False(t, known().Complete())
	place.follow()
	w.left("s", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt,
		events.TypeErasureReceipt)
	r = known()
	require.True(t, r.Complete())
	require.Equal(t, []string{"log", "recent"}, []string{r.Places[0].Place, r.Places[1].Place})
	require.Equal(t, []int{4, 2}, []int{*r.Places[0].Erased, *r.Places[1].Erased})
	require.WithinRange(t, r.Places[0].At, r.RequestedAt, time.Now())
	require.True(t, closed.Same(w.state("s")))
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.ElementsMatch(t, []uuid.UUID{events.TurnID("s", "r1"), events.TurnID("s", "r2")}, docs.deleted("s"))
}

func TestAnErasedIdentityLeavesTheLog(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"one partition": 1, "four": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, partitions)
			w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Places: []eraser.Place{&place{name: "audit",
				at: map[int]uint64{0: 1 << 40, 1: 1 << 40, 2: 1 << 40, 3: 1 << 40}}}})
			for _, s := range []string{"a", "b", "c", "d", "e"} {
				w.turn(s, "r1", "SECRET "+s)
				w.link(s, "alice")
			}
			w.turn("other", "r1", "KEPT")
			w.link("other", "bob")
			receipt := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{Reason: "left"}))(t)
			again := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
			require.Equal(t, receipt, again)
			var got services.Receipt
			known := w.asking(receipt)
			hang.Until(t, func() bool { got = known(); return got.Complete() && len(got.Places) == 2 })
			require.Equal(t, 10, *got.Places[0].Erased)
			require.Equal(t, "alice", got.IdentityID)
			require.Empty(t, holding(t, w.dir, "SECRET"))

			// What is linked later goes too.
			w.turn("late", "r1", "SECRET late")
			w.link("late", "alice")
			w.left("late", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
			require.Empty(t, holding(t, w.dir, "SECRET"))
			require.Equal(t, []string{events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeSessionLinked},
				w.types("other"))
		})
	}
}

// Each view looks a session up when it is closed: not all of a large identity at once.
func TestSessionsOfAnIdentityAreClosedAsTheyAreErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	for n := range 12 {
		w.turn(fmt.Sprint(n), "r1", "SECRET")
		w.link(fmt.Sprint(n), "alice")
	}
	log := &closedSessions{Log: inOnePiece(w.log)}
	w.erase(log, eraser.Config{Rate: 200})
	// It has seen the links when it has done something behind them.
	w.redact("seen", w.turn("seen", "r1", "SECRET"))
	w.left("seen", events.TypeTurnRedacted)
	w.complete(must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t))
	require.Empty(t, holding(t, w.dir, "SECRET"))
	log.mu.Lock()
	defer log.mu.Unlock()
	require.Equal(t, 2, log.max, "one in hand, and one that waits")
}

// An eraser that dies between two events, and one that is stopped while a view is behind,
// take neither a count nor a time away.
func TestARedactionsReceiptOutlivesTheEraser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	memory := &place{name: "memory"}
	places := []eraser.Place{memory}
	id := w.redact("s", w.correct("s", "c1", w.turn("s", "r1", "SECRET"), "SECRET")).Position.String()
	receipt := w.asking(id, places...)
	m := newMortal(inOnePiece(w.log), 3, false) // an event, settled, and another
	stop := w.erase(m, eraser.Config{Places: places})
	<-m.dead
	stop()
	w.left("s", events.TypeTurnStarted, events.TypeTurnRedacted)
	require.False(t, receipt().Places[0].Done)
	require.Zero(t, receipt().Places[0].At)

	stop = w.erase(inOnePiece(w.log), eraser.Config{Places: places})
	hang.Until(t, func() bool { return receipt().Places[0].Done })
	log := receipt().Places[0]
	require.Equal(t, 3, *log.Erased)
	require.WithinRange(t, log.At, receipt().RequestedAt, time.Now())
	require.False(t, receipt().Complete())
	stop()
	memory.follow()
	require.Zero(t, receipt().Places[1].At, "nobody looks")

	w.erase(inOnePiece(w.log), eraser.Config{Places: places})
	hang.Until(t, func() bool { return !receipt().Places[1].At.IsZero() })
	require.Equal(t, log, receipt().Places[0], "the first time stands")
	require.WithinRange(t, receipt().Places[1].At, log.At, time.Now())
	require.True(t, receipt().Complete())
}

func TestReceiptsThatThereAreNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "text")
	receipts := w.receipts()
	for _, id := range []string{"", "x", "0-0-abc", "9-0-abc", "0:1", "0:77", "7:1", strings.Repeat("9", 300),
		"0-99999999999999999999-x"} {
		must.Fail(receipts.Receipt(t.Context(), id))(t, services.ErrNoReceipt, id)
	}
	redacted := w.redact("s", events.TurnID("s", "r1"))
	require.False(t, w.receipt(redacted.Position.String()).Complete())
	w.erase(inOnePiece(w.log), eraser.Config{})
	w.complete(redacted.Position.String())
	require.Equal(t, []string{events.TypeTurnRedacted}, w.types("s"))
}

// A raw publisher may put the text of a turn on any subject of the log.
func TestWhatComesLateOnAnotherSubjectIsErased(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	var forgotten sync.Map
	var away atomic.Bool
	away.Store(true)
	forget := func(ctx context.Context, at events.Position) error {
		if away.Load() {
			return errors.New("the view is away")
		}
		_, found, err := w.log.At(ctx, at)
		assert.NoError(t, err)
		assert.False(t, found, "who reads the log would write the row again")
		forgotten.Store(at, true)
		return nil
	}
	stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Forget: forget})
	gone := w.turn("redacted", "r1", "text")
	w.redact("redacted", gone)
	w.turn("closed", "r1", "text")
	must.Get(w.history.EraseSession(t.Context(), "closed", services.Erasure{}))(t)

	nc := natstest.Connect(t, s)
	publish := func(subject, session, text string) {
		_, err := nc.Request(subject, fmt.Appendf(nil, `{"session_id":%q,"turn_id":%q,"answer_neutral":%q}`, session, gone, text), hang.Limit)
		require.NoError(t, err)
	}
	other, token := events.SessionSubject("other"), events.SessionSubject("redacted")
	wrong := "turns.0" + token[strings.LastIndex(token, "."):]
	require.NotEqual(t, token, wrong)
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: other, Data: []byte("no JSON")}))
	publish(other, "redacted", "SECRET")
	publish(wrong, "redacted", "SECRET")
	publish(other, "closed", "SECRET")
	publish(other, "alive", "KEPT")
	publish(other, "", "KEPT")
	publish(other, strings.Repeat("long", 100), "KEPT")
	w.gone("SECRET")
	require.Len(t, w.types("other"), 4, "what names nothing that is gone stays")
	stop()
	away.Store(false)
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Forget: forget})
	hang.Until(t, func() bool {
		n := 0
		forgotten.Range(func(any, any) bool { n++; return true })
		return n == 3
	}, "an eraser that comes later tells the view")
}

func (w *world) describe(request, title string, metadata map[string]*string) {
	w.Helper()
	must.Get(w.history.DescribeSession(w.Context(), decide.Describe{
		SessionID: "s", RequestID: request, Title: &title, Metadata: metadata,
	}))(w)
}

// What a description replaces leaves the log and the disk, and so does what comes late; the session stays as it was.
func TestAReplacedDescriptionLeavesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.erase(inOnePiece(w.log), eraser.Config{})
	secret := "SECRET value"
	w.describe("d1", "SECRET first", map[string]*string{"folder": &secret})
	w.turn("s", "r1", "KEPT")
	require.NotEmpty(t, holding(t, w.dir, "SECRET"), "the search finds what there is")
	stop()
	w.describe("d2", "SECRET second", nil)
	w.describe("d3", "KEPT title", map[string]*string{"folder": nil})
	before := w.state("s")
	w.erase(inOnePiece(w.log), eraser.Config{})
	stays := []string{events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeSessionDescribed}
	w.left("s", stays...)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.True(t, before.Same(w.state("s")))

	for _, f := range []*events.SessionDescribed{
		{SessionID: "s", RequestID: "d1", Title: "SECRET again"}, // of a request that the log has
		{SessionID: "s", RequestID: "x", Title: "SECRET stale"},  // decided before the one that stands
		{SessionID: "s", RequestID: "y", Title: "SECRET alone", After: events.Position{Seq: before.Applied}},
	} {
		w.publish(f, "late")
	}
	w.left("s", stays...)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	w.describe("d1", "SECRET late", nil)
	require.True(t, before.Same(w.state("s")), "a late retry brings nothing back")
	w.describe("d4", "KEPT newer", nil)
	w.left("s", stays...)
	require.Equal(t, before.CreatedAt, w.state("s").CreatedAt)
}

// A mirror keeps what the log has erased, also where an eraser dies between the two.
func TestMirrorsAreErasedToo(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	js := must.Get(jetstream.New(natstest.Connect(t, s)))(t)
	var mirrors []jetstream.Stream
	for _, of := range []string{events.StreamName(0), "COPY-" + events.StreamName(0)} {
		mirror := must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY-" + of,
			Mirror: &jetstream.StreamSource{Name: of}}))(t)
		mirrors = append(mirrors, mirror)
	}

	redacted := w.turn("redacted", "r1", "SECRET")
	w.redact("redacted", redacted)
	w.turn("redacted", "r2", "KEPT")
	w.turn("closed", "r1", "SECRET")
	must.Get(w.history.EraseSession(t.Context(), "closed", services.Erasure{}))(t)
	w.publish(&events.TurnFinalized{TurnID: redacted, SessionID: "redacted",
		Answer: events.Answer{AnswerNeutral: "SECRET again"}}, "late")
	w.turn("other", "r1", "KEPT")
	first := must.Get(w.log.Head(t.Context(), 0))(t)
	for _, mirror := range mirrors {
		mirrored(t, mirror, first)
	}
	// An eraser died after it had taken this one out of the log.
	must.Get(overwrite.On(w.log).Erase(t.Context(), events.Position{Seq: 2}))(t)

	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	w.gone("SECRET")
	require.Len(t, holding(t, w.dir, "KEPT"), 3)
}

// mirrored waits until a mirror has come to a position.
func mirrored(t *testing.T, mirror jetstream.Stream, at events.Position) {
	t.Helper()
	hang.Until(t, func() bool {
		info, err := mirror.Info(t.Context()) // a slow server is asked again
		return err == nil && info.State.LastSeq >= at.Seq
	})
}

// lagging is a log whose mirrors are behind.
type lagging struct{ Log }

func (lagging) Mirrors(context.Context, string, events.Position) ([]string, error) {
	return nil, jetlog.ErrUnavailable
}

// A late event that leaves the log before a mirror has come to it holds up nothing, and
// leaves the mirror when that can be told, whoever erases then.
func TestAMirrorThatIsBehindLosesWhatCameLate(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	js := must.Get(jetstream.New(natstest.Connect(t, s)))(t)
	mirror := must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY",
		Mirror: &jetstream.StreamSource{Name: events.StreamName(0)}}))(t)
	gone := w.turn("redacted", "r1", "text")
	progress := eraser.New(on(inOnePiece(w.log)), w.notes, eraser.Config{Rules: rules})
	done := func(seq uint64) {
		hang.Until(t, func() bool {
			at, err := progress.Resume(t.Context(), 0)
			return err == nil && at.Seq >= seq
		})
	}
	redaction := w.redact("redacted", gone)
	stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	done(redaction.Redacted)
	stop()

	late := w.publish(&events.TurnFinalized{TurnID: gone, SessionID: "redacted",
		Answer: events.Answer{AnswerNeutral: "SECRET"}}, "late")
	mirrored(t, mirror, late)
	stop = w.erase(lagging{inOnePiece(w.log)}, eraser.Config{Rate: 1000})
	w.left("redacted", events.TypeTurnRedacted)
	done(late.Seq)
	stop()
	require.Len(t, holding(t, w.dir, "SECRET"), 1, "the mirror's")
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	w.gone("SECRET")
}
