// Package viewtest holds what property tests of views share: random logs, a view that fails while it is fed, and a
// check that a view has applied a whole log. For tests.
package viewtest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Sessions is the number of sessions in a random log.
const Sessions = 5

// Checks sets how many logs rapid draws in a test. The test must not be parallel.
func Checks(t testing.TB, n int) {
	t.Helper()
	before := flag.Lookup("rapid.checks").Value.String()
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", before)) })
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(n)))
}

// Draws sets how many logs rapid draws for each property of a test binary, for a TestMain: the usual number, or that of
// -rapid.checks up to most. A package whose properties need a database calls it, so that a large number does not take
// hours there.
func Draws(usual, most int) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) {
		if asked, err := strconv.Atoi(f.Value.String()); f.Name == "rapid.checks" && err == nil {
			usual = asked
		}
	})
	_ = flag.Set("rapid.checks", strconv.Itoa(min(usual, most))) // a number is never refused
}

// Session returns the id of the n-th session.
func Session(n int) string { return fmt.Sprint("s", n) }

// DrawFact draws a fact of any kind; some facts contradict the log.
func DrawFact(rt *rapid.T) events.Fact {
	session := Session(rapid.IntRange(0, Sessions-1).Draw(rt, "session"))
	request := fmt.Sprint("r", rapid.IntRange(0, 4).Draw(rt, "request"))
	id := events.TurnID(session, request)
	words := fmt.Sprint("drei & <vier> ", rapid.IntRange(0, math.MaxInt16).Draw(rt, "words"))
	q, a := events.Question{QuestionNeutral: words,
		Metadata: []byte(`{"channel":"web"}`)}, events.Answer{AnswerNeutral: "of " + words}
	kinds := []string{"start", "start", "start", "final", "final", "final", "whole", "whole", "extend", "extend",
		"link", "redact", "correct", "reset", "describe", "summarize", "fork", "mark", "erase", "refused"}
	switch rapid.SampledFrom(kinds).Draw(rt, "fact") {
	case "start":
		return &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: q}
	case "final":
		return &events.TurnFinalized{TurnID: id, SessionID: session, Answer: a}
	case "whole":
		return &events.TurnRecorded{TurnID: id, SessionID: session, RequestID: request, Question: q, Answer: a}
	case "extend":
		return &events.TurnExtended{TurnID: id, SessionID: session, Metadata: []byte(`{"channel":"tel"}`),
			ExtensionID: fmt.Sprint("e", rapid.IntRange(0, 2).Draw(rt, "extension")),
			Extension:   DrawExtension(rt, words)}
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
	case "describe":
		// It says that it knows of all requests, so that it counts wherever it stands behind After.
		began := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		f := &events.SessionDescribed{SessionID: session, RequestID: request, Title: words, CreatedAt: &began,
			Kind:  rapid.SampledFrom([]events.SessionKind{"", "", events.KindConversation}).Draw(rt, "kind"),
			After: events.Position{Seq: rapid.Uint64Range(0, 40).Draw(rt, "after")}}
		for n := range 5 {
			f.Earlier = append(f.Earlier, events.RequestHash(fmt.Sprint("r", n)))
		}
		return f
	case "summarize":
		if rapid.IntRange(0, 4).Draw(rt, "void") == 0 {
			return &events.SessionSummarized{SessionID: session, RequestID: request, Void: true}
		}
		return &events.SessionSummarized{SessionID: session, RequestID: request, SummaryNeutral: words,
			TurnIDs: []uuid.UUID{id}}
	case "fork":
		return Mark(rt, session, request).Fork()
	case "mark":
		return Mark(rt, session, request)
	case "erase":
		return &events.SessionErased{SessionID: session, ReceiptID: "receipt"}
	default:
		return &events.LinkRefused{SessionID: session, IdentityID: "thief"}
	}
}

// Mark draws the mark of a branch of a session. The branch is one of the random sessions, too, and shares turns of the
// session, or none. All final turns up to the last one are shared, at whatever sequence they are in a log.
func Mark(rt *rapid.T, session, request string) *events.SessionBranched {
	n, _ := strconv.Atoi(session[1:])
	child := Session((n + rapid.IntRange(1, Sessions-1).Draw(rt, "child")) % Sessions)
	f := &events.SessionBranched{SessionID: session, ChildSessionID: child, RequestID: request, FromSessionID: session,
		Root: session}
	if rapid.Bool().Draw(rt, "shares") {
		f.Segments = []events.Segment{{SessionID: session, ThroughTurnID: events.TurnID(session, request),
			Through: events.Position{Seq: 1 << 40}}}
	}
	return f
}

// DrawPrune draws a prune of a turn as a writer decides it, which may be a redaction. all are the events of the
// session. It returns none where nothing can be taken out.
func DrawPrune(
	rt *rapid.T, s *session.State, all iter.Seq2[events.Recorded, error], turn uuid.UUID,
) []events.Fact {
	drop, at := rapid.IntRange(0, 3).Draw(rt, "message"), -1
	c := decide.Prune{SessionID: s.SessionID, TurnID: turn,
		PruneID: rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(rt, "prune"),
		Keep: func(m session.Message) json.RawMessage {
			if at++; at == drop {
				return nil
			}
			return m.Raw
		}}
	t := s.Turn(turn)
	if _, refused := c.Refused(s); refused {
		return nil
	}
	var brought []events.Recorded
	for e, err := range all {
		require.NoError(rt, err)
		if slices.Contains(t.Sources(), e.Position.Seq) {
			brought = append(brought, e)
		}
	}
	if len(brought) > 0 {
		c.Partition = brought[0].Position.Partition
	}
	return c.On(s, t, session.Messages(t, brought)).Facts
}

// DrawExtension draws what is appended to a half of a turn, with a neutral text or without.
func DrawExtension(rt *rapid.T, words string) events.Extension {
	x := events.Extension{Half: events.HalfAnswer, Messages: rapid.SampledFrom([]json.RawMessage{
		json.RawMessage(`[{"role":"tool","content":"<b>&\u2028","n":123456789012345678901234567890.10}]`),
		json.RawMessage(`[{"role":"assistant","content":"a"} , {"role":"assistant","content":"b"}]`),
	}).Draw(rt, "more messages")}
	if rapid.IntRange(0, 2).Draw(rt, "half") == 0 {
		x.Half = events.HalfQuestion
	}
	switch {
	case rapid.Bool().Draw(rt, "without text"):
	case x.Half == events.HalfQuestion:
		x.QuestionNeutral = "then " + words
	default:
		x.AnswerNeutral = "then " + words
	}
	return x
}

// View is a view that can be rebuilt.
type View struct {
	projections.View
	projections.Rebuildable
}

// Shaky is a view that fails before or after the commit of some batches. Safe for
// concurrent use.
type Shaky struct {
	View
	// Stop, if set, is called before some batches.
	Stop func()
	mu   sync.Mutex
	rng  *rand.Rand
}

// NewShaky makes a view that fails at random; the seed determines when.
func NewShaky(v View, seed uint64) *Shaky {
	return &Shaky{View: v, rng: rand.New(rand.NewPCG(seed, 0))}
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

// CaughtUp reports whether a view has applied all of a log. A log that does not answer in time tells nothing of that.
func CaughtUp(t testing.TB, log *jetlog.Log, v projections.View) bool {
	t.Helper()
	served := must.Get(v.Served(t.Context()))(t)
	for k := range log.Partitions() {
		head, err := log.Head(t.Context(), k)
		if errors.Is(err, jetlog.ErrUnavailable) {
			return false
		}
		require.NoError(t, err)
		if served.Of(k).Seq < head.Seq {
			return false
		}
	}
	return true
}
