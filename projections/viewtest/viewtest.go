// Package viewtest is what property tests of views share: logs that are drawn, a view that
// fails while it is fed, and when it has all of a log. For tests.
package viewtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// Sessions is how many sessions a drawn log is about.
const Sessions = 5

// Checks sets how many logs rapid draws in a test, which must not be parallel.
func Checks(t testing.TB, n int) {
	t.Helper()
	before := flag.Lookup("rapid.checks").Value.String()
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", before)) })
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(n)))
}

// Session names a session.
func Session(n int) string { return fmt.Sprint("s", n) }

// DrawFact draws a fact of any kind; some contradict what stands in the log.
func DrawFact(rt *rapid.T) events.Fact {
	session := Session(rapid.IntRange(0, Sessions-1).Draw(rt, "session"))
	request := fmt.Sprint("r", rapid.IntRange(0, 4).Draw(rt, "request"))
	id := events.TurnID(session, request)
	words := fmt.Sprint("drei & <vier> ", rapid.IntRange(0, math.MaxInt16).Draw(rt, "words"))
	q, a := events.Question{QuestionNeutral: words,
		Metadata: []byte(`{"channel":"web"}`)}, events.Answer{AnswerNeutral: "of " + words}
	switch rapid.SampledFrom([]string{"start", "start", "start", "final", "final", "final", "link", "redact", "correct",
		"reset", "erase", "refused"}).Draw(rt, "fact") {
	case "start":
		return &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: q}
	case "final":
		return &events.TurnFinalized{TurnID: id, SessionID: session, Answer: a}
	case "link":
		return &events.SessionLinked{SessionID: session, IdentityID: rapid.SampledFrom([]string{"ada", "bob"}).Draw(rt,
			"identity")}
	case "redact":
		return &events.TurnRedacted{TurnID: id, SessionID: session}
	case "correct":
		next := request + "c"
		return &events.TurnCorrected{TurnID: events.TurnID(session, next), SessionID: session, RequestID: next,
			ReplacesTurnID: id, Question: q, Answer: a}
	case "reset":
		return &events.SessionReset{SessionID: session}
	case "erase":
		return &events.SessionErased{SessionID: session, ReceiptID: "receipt"}
	default:
		return &events.LinkRefused{SessionID: session, IdentityID: "thief"}
	}
}

// View is a view that can be rebuilt, as tests have it.
type View struct {
	projections.View
	projections.Rebuildable
}

// Shaky is a view that fails before or after the commit of some batches. Safe for
// concurrent use.
type Shaky struct {
	View
	// Stop, where it is set, is called before some batches.
	Stop func()
	mu   sync.Mutex
	rng  *rand.Rand
}

// NewShaky makes a view shaky; the seed says when it fails.
func NewShaky(v View, seed uint64) *Shaky {
	return &Shaky{View: v, rng: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a test's dice
}

// Dice returns a number from 0 to n-1.
func (s *Shaky) Dice(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// Apply implements projections.Projection.
func (s *Shaky) Apply(ctx context.Context, b projections.Batch) error {
	dice := s.Dice(7)
	switch {
	case dice == 0:
		return errors.New("broken off before the commit")
	case dice == 1 && s.Stop != nil:
		s.Stop()
	}
	if err := s.View.Apply(ctx, b); err != nil || dice != 2 {
		return err
	}
	return errors.New("broken off after the commit")
}

// CaughtUp reports whether a view has applied all of a log.
func CaughtUp(t testing.TB, log *jetlog.Log, v projections.View) bool {
	t.Helper()
	served, err := v.Served(t.Context())
	require.NoError(t, err)
	for k := range log.Partitions() {
		head, err := log.Head(t.Context(), k)
		require.NoError(t, err)
		if served.Of(k).Seq < head.Seq {
			return false
		}
	}
	return true
}
