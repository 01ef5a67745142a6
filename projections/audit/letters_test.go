package audit_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
)

// At implements projections.LogReader.
func (j *journal) At(_ context.Context, at events.Position) (events.Recorded, bool, error) {
	for _, e := range j.events {
		if e.Position == at {
			return e, true, nil
		}
	}
	return events.Recorded{}, false, nil
}

// current is a log that is another one in each run of a property.
type current struct{ *journal }

// Whichever events are parked, and in whichever order they are retried, while others come
// or afterwards: when no letter is left, the rows are those of a log without a failure.
func TestRetriedDeadLettersLeaveTheRowsOfTheLog(t *testing.T) {
	t.Parallel()
	log := &current{newJournal()}
	one, many := openAll(t, log)
	rapid.Check(t, func(t *rapid.T) {
		log.journal = randomLog(t)
		steps := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "steps"), 0))
		one.empty()
		claim(t, log.journal, one).all(len(log.events) + 1)
		many.empty()
		f := claim(t, log.journal, many)
		for {
			b := f.batch(1 + steps.IntN(4))
			switch {
			case len(b.Events) == 0:
				for len(many.letters(t)) > 0 {
					many.retryOne(t, steps.IntN)
				}
				require.Equal(t, one.dump(), many.dump())
				return
			case len(b.Events) == 1 && steps.IntN(2) == 0:
				f.park(many)
			default:
				require.NoError(t, many.Apply(context.Background(), b))
				f.at = b.To
			}
			if steps.IntN(8) == 0 && len(many.letters(t)) > 0 {
				many.retryOne(t, steps.IntN)
			}
		}
	})
}

func (a *tables) letters(t require.TestingT) []projections.DeadLetter {
	letters, err := a.queue().DeadLetters(context.Background())
	require.NoError(t, err)
	return letters
}

// retryOne retries one of the letters, which pick chooses.
func (a *tables) retryOne(t require.TestingT, pick func(n int) int) {
	letters := a.letters(t)
	done, err := a.queue().RetryDeadLetter(context.Background(), letters[pick(len(letters))].Position)
	require.NoError(t, err)
	require.True(t, done.Applied)
}

// park parks the next event.
func (f *feed) park(a *tables) {
	b := f.batch(1)
	require.NoError(f.t, a.Park(context.Background(), b, "a test"))
	f.at = b.To
}

// refusing makes PostgreSQL refuse a question for what it says.
func (a *tables) refusing(request string) {
	a.exec(fmt.Sprintf("alter table turnledger.questions add constraint poison check (request_id <> '%s')", request))
}

func (a *tables) accepting() { a.exec("alter table turnledger.questions drop constraint poison") }

func TestARetryThatIsRefusedAgainKeepsTheLetter(t *testing.T) {
	t.Parallel()
	log := conversationOf(4)
	want := filled(t, log, 100).dump()
	a := open(t, log)
	a.refusing("b")
	f := claim(t, log, a)
	f.next(4)
	b := f.batch(1)
	err := a.Apply(t.Context(), b)
	require.True(t, projections.IsPermanent(err), "%v", err)
	require.NoError(t, a.Park(t.Context(), b, err.Error()))
	f.at = b.To
	f.all(3)
	before := a.dump()

	letters := a.letters(t)
	require.Len(t, letters, 1)
	require.WithinDuration(t, time.Now(), letters[0].ParkedAt, time.Minute)
	require.Equal(t, err.Error(), letters[0].Reason)
	require.Contains(t, letters[0].Reason, "23514")
	require.False(t, strings.Contains(fmt.Sprint(letters), "question b"), "a text")

	at := letters[0].Position
	done := must.Get(a.queue().RetryDeadLetter(t.Context(), at))(t)
	require.False(t, done.Applied)
	require.Equal(t, 2, done.Attempts)
	require.Equal(t, before, a.dump(), "nothing else has changed")

	drop := projections.Drop{Reason: "a known lie", By: "ada", At: day.Truncate(time.Microsecond)}
	letter := must.Get(a.queue().DropDeadLetter(t.Context(), at, drop))(t)
	require.Equal(t, &drop, letter.Dropped)
	require.Equal(t, []projections.DeadLetter{letter}, a.letters(t))

	a.accepting()
	done = must.Get(a.queue().RetryDeadLetter(t.Context(), at))(t)
	require.True(t, done.Applied)
	require.Equal(t, want, a.dump())
	must.Fail(a.queue().RetryDeadLetter(t.Context(), at))(t, projections.ErrNoDeadLetter)
	must.Fail(a.queue().DropDeadLetter(t.Context(), at, drop))(t, projections.ErrNoDeadLetter)
}

// One letter's session holds another that is refused for ever: it does not stand in its way.
func TestALetterIsRetriedBesideOneThatIsRefusedForEver(t *testing.T) {
	t.Parallel()
	log := conversationOf(4)
	a := open(t, log)
	f := claim(t, log, a)
	f.next(4)
	for range 2 { // the start of b, and its answer
		f.park(a)
	}
	f.park(a)
	at := f.at.Position()
	f.all(3)
	a.refusing("b")
	require.True(t, must.Get(a.queue().RetryDeadLetter(t.Context(), at))(t).Applied)
	require.Equal(t, []string{"r0 pending", "a finalized", "c finalized", "d finalized"}, a.requests("s"))
}

// A runner applies at full speed while letters are retried; neither spoils the other's work.
func TestARetryBesideARunner(t *testing.T) {
	t.Parallel()
	log := conversationOf(60)
	want := filled(t, log, 1000).dump()
	a := open(t, log)
	f := claim(t, log, a)
	for range 10 {
		f.park(a)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.all(1)
	}()
	for len(a.letters(t)) > 0 {
		a.retryOne(t, rand.IntN)
	}
	<-done
	require.Equal(t, want, a.dump())
}

// held is a log that is read no further at one session, until it goes on.
type held struct {
	*journal
	session     string
	reached, on chan struct{}
}

// Session implements projections.SessionReader.
func (h *held) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	if id == h.session {
		h.reached <- struct{}{}
		<-h.on
	}
	return h.journal.Session(ctx, id, after, upTo)
}

// A letter is retried while the runner has planned a later event of its turn, from rows without it.
//
//conformance:h43
func TestARetryWhileItsTurnIsPlanned(t *testing.T) {
	t.Parallel()
	extended := func(id string) events.Fact {
		return &events.TurnExtended{TurnID: events.TurnID("s", "a"), SessionID: "s", ExtensionID: id,
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: id,
				Messages: []byte(`[{"role":"assistant","content":"` + id + `"}]`)}}
	}
	for name, parked := range map[string]int{"an extension": 2, "the answer": 1, "the question": 0} {
		log := newJournal()
		log.add(linked("s", "u"), started("other", "a"), started("s", "a"), finalized("s", "a"), extended("x1"),
			extended("x2"), linked("other", "u"))
		want := filled(t, log, 100).dump()
		h := &held{log, "other", make(chan struct{}), make(chan struct{})}
		a := open(t, h)
		a.log = log
		f := claim(t, log, a)
		f.next(2 + parked)
		f.park(a)
		f.next(2 - parked)
		at := f.at
		f = claim(t, log, a) // a runner that does not hold the other session any more
		f.at.Seq = at.Seq
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.next(2) // the second extension, and a link whose session is read from the log
		}()
		<-h.reached
		a.retryOne(t, rand.IntN)
		close(h.on)
		go func() {
			for range h.reached { // the batch is planned again
			}
		}()
		<-done
		close(h.reached)
		require.Equal(t, want, a.dump(), name)
	}
}

// The runner applies more of a session while a retry reads it: the session is read again, and not put back.
//
//conformance:h43
func TestARetryOfASessionThatGoesOn(t *testing.T) {
	t.Parallel()
	log := conversationOf(2)
	want := filled(t, log, 100).dump()
	a := open(t, log)
	h := &held{log, "s", make(chan struct{}), make(chan struct{})}
	a.log = h
	f := claim(t, log, a)
	f.next(2)
	f.park(a)
	f.next(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.retryOne(t, rand.IntN)
	}()
	<-h.reached
	f.all(100)
	close(h.on)
	go func() {
		for range h.reached { // it is read again
		}
	}()
	<-done
	close(h.reached)
	require.Equal(t, want, a.dump())
}

// A turn was left out by the link, extended, and came in with a kind: a retry of another letter extends it no second
// time.
//
//conformance:h43
func TestARetryExtendsNoTurnTwice(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("s", "a"), finalized("s", "a"))
	log.pass(25 * time.Hour)
	log.add(linked("s", "u"), &events.TurnExtended{TurnID: id("s", "a"), SessionID: "s", ExtensionID: "x",
		Extension: events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"assistant","content":"x"}]`)}},
		started("s", "b"))
	log.add(decide.Describe{SessionID: "s", RequestID: "d",
		Kind: events.KindConversation}.On(log.state("s"), 0).Facts...)
	want := filled(t, log, 100)
	require.Equal(t, []string{"a finalized", "b pending"}, want.requests("s"))
	a := open(t, log)
	f := claim(t, log, a)
	f.next(4)
	f.park(a)
	f.all(1)
	a.retryOne(t, rand.IntN)
	require.Equal(t, want.dump(), a.dump())
}

// An answer without its question would be out of reach of an erasure.
func TestTheAnswerToAParkedQuestionHasNoRow(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"), started("s", "a"), finalized("s", "a"), erased("s"))
	a := open(t, log)
	f := claim(t, log, a)
	f.next(1)
	f.park(a)
	f.next(1)
	require.Zero(t, a.count("answers"))
	f.all(1)
	for len(a.letters(t)) > 0 {
		a.retryOne(t, rand.IntN)
	}
	require.Equal(t, filled(t, log, 10).dump(), a.dump())
}
