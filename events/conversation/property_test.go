package conversation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// TestAnyHistory plays random commands of processes that each have seen another
// part of the log, foreign events, repeated and late ones, and holds every state on
// the way against what must always be so. A failure prints rapid's seed.
func TestAnyHistory(t *testing.T) {
	t.Parallel()
	summaries := 0
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{world: newWorld("s", conversation.Rules{SessionTTL: 24 * time.Hour})}
		for range 3 {
			m.procs = append(m.procs, conversation.New(m.session, m.rules))
		}
		t.Repeat(map[string]func(*rapid.T){
			"command":   m.command,
			"command 2": m.command,
			"raw":       m.raw,
			"whole":     m.whole,
			"summary":   m.summary,
			"again":     m.publishAgain,
			"catch up":  m.catchUp,
			"redeliver": m.redeliver,
			"wait":      m.wait,
			"":          m.invariants,
		})
		m.final(t)
		summaries += len(m.live.Standing())
	})
	require.NotZero(t, summaries, "some summaries stand at the end")
}

type machine struct {
	*world
	procs    []*conversation.State
	accepted []command
	identity string
}

type command struct {
	name   string
	decide func(*conversation.State) conversation.Decision
}

var (
	requests   = rapid.SampledFrom([]string{"r1", "r2", "r3", "r4", "r5"})
	identities = rapid.SampledFrom([]string{"", "", "alice", "bob"})
	wordings   = rapid.SampledFrom([]string{"one", "two"})

	kinds = rapid.SampledFrom([]events.SessionKind{"", "", "", events.KindConversation, events.KindResponse})

	extensionIDs = rapid.SampledFrom([]string{"e1", "e2", "e3"})
)

// extension draws what is appended to a half of a turn, with a neutral text or without.
func (m *machine) extension(t *rapid.T, words string) events.Extension {
	x := events.Extension{Half: rapid.SampledFrom([]events.Half{events.HalfQuestion, events.HalfAnswer,
		events.HalfAnswer}).Draw(t, "half"), Messages: []byte(`[{"role":"x","content":"` + words + `"}]`)}
	if rapid.Bool().Draw(t, "neutral") {
		if x.AnswerNeutral = words; x.Half == events.HalfQuestion {
			x.QuestionNeutral, x.AnswerNeutral = words, ""
		}
	}
	return x
}

func (m *machine) anyCommand(t *rapid.T) command {
	request, words := requests.Draw(t, "request"), wordings.Draw(t, "words")
	id := m.turn(request)
	switch name := rapid.SampledFrom([]string{"start", "start", "finalize", "finalize", "correct", "redact", "link",
		"reset", "finalize first", "describe", "describe", "summarize", "extend", "extend", "prune",
		"prune"}).Draw(t, "command"); name {
	case "start":
		c := conversation.Start{SessionID: m.session, RequestID: request, IdentityID: identities.Draw(t, "identity"),
			Question: events.Question{QuestionNeutral: words}}
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideStart(c) }}
	case "finalize", "finalize first":
		c := conversation.Finalize{SessionID: m.session, TurnID: id, Answer: events.Answer{AnswerNeutral: words},
			Metadata: []byte(`{"locale":"de"}`)}
		if name == "finalize first" {
			c.RequestID = request
			c.StartFirst = &conversation.Start{SessionID: m.session, RequestID: request, IdentityID: identities.Draw(t,
				"identity"), Question: events.Question{QuestionNeutral: words}}
		}
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideFinalize(c) }}
	case "correct":
		c := conversation.Correct{SessionID: m.session, RequestID: request, TurnID: m.turn(requests.Draw(t, "old")),
			AnswerNeutral: &words}
		return command{name, func(s *conversation.State) conversation.Decision {
			return s.DecideCorrect(c,
				s.Turn(c.TurnID))
		}}
	case "redact":
		return command{name, func(s *conversation.State) conversation.Decision {
			return s.DecideRedact(conversation.Redact{TurnID: id})
		}}
	case "extend":
		c := conversation.Extend{SessionID: m.session, TurnID: id, ExtensionID: extensionIDs.Draw(t, "extension"),
			Extension: m.extension(t, words)}
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideExtend(c) }}
	case "prune":
		c := m.anyPrune(t, id)
		return command{name, func(s *conversation.State) conversation.Decision {
			d := must.Get(m.prune(s, c))(t)
			return d
		}}
	case "describe":
		c := conversation.Describe{SessionID: m.session, RequestID: request, Title: &words,
			Kind:     kinds.Draw(t, "kind"),
			Metadata: map[string]*string{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"): nil, words: &words}}
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideDescribe(c, 0) }}
	case "summarize":
		c := conversation.Summarize{ThroughTurnID: id, Summary: events.SessionSummarized{SessionID: m.session,
			RequestID: request, SummaryNeutral: words}}
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideSummarize(c) }}
	case "link":
		identity := identities.Filter(func(s string) bool { return s != "" }).Draw(t, "identity")
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideLink(identity, "") }}
	default:
		return command{name, func(s *conversation.State) conversation.Decision { return s.DecideReset("", 0) }}
	}
}

// command is what a process does: decide on what it has seen, append, look at the
// log up to its own event, and decide again: the verdict.
func (m *machine) command(t *rapid.T) {
	s := rapid.SampledFrom(m.procs).Draw(t, "process")
	c := m.anyCommand(t)
	for attempt := 0; ; attempt++ {
		d, current := c.decide(s), s.Applied == m.last()
		if len(d.Facts) == 0 {
			m.answered(t, c, d)
			return
		}
		if attempt > 2 {
			t.Fatalf("%s is never answered: %v", c.name, d.Facts)
		}
		if d.Expect && !current {
			m.fold(t, s, m.head)
			continue
		}
		for _, f := range d.Facts {
			if change := m.append(f); current && !change.Kind.ChangesView() {
				t.Fatalf("%s asked for %T in no race, and it is %s", c.name, f, m.describe(change))
			}
		}
		m.fold(t, s, m.head)
		if d.Err != nil {
			return
		}
		m.accepted = append(m.accepted, c)
	}
}

func (m *machine) answered(t *rapid.T, c command, d conversation.Decision) {
	switch {
	case d.Err == nil && d.Turn == nil && c.name != "link" && c.name != "reset" && c.name != "describe" &&
		c.name != "summarize":
		t.Fatalf("%s is answered without a turn", c.name)
	case d.RestsOn > m.head, d.Err == nil && d.RestsOn == 0 && c.name != "reset":
		t.Fatalf("%s rests on %d, the head is %d", c.name, d.RestsOn, m.head)
	}
}

func (m *machine) raw(t *rapid.T) {
	request, words := requests.Draw(t, "request"), wordings.Draw(t, "words")
	id := m.turn(request)
	q, a := events.Question{QuestionNeutral: words}, events.Answer{AnswerNeutral: words}
	facts := map[string]events.Fact{
		"started":   &events.TurnStarted{TurnID: id, SessionID: m.session, RequestID: request, Question: q},
		"finalized": &events.TurnFinalized{TurnID: id, SessionID: m.session, Answer: a},
		"extended": &events.TurnExtended{TurnID: id, SessionID: m.session, ExtensionID: extensionIDs.Draw(t,
			"extension"), Extension: m.extension(t, words)},
		"corrected": &events.TurnCorrected{TurnID: id, SessionID: m.session, RequestID: request,
			ReplacesTurnID: m.turn(requests.Draw(t, "old")), Question: q, Answer: a},
		"pruned":   m.rawPrune(t, id, words),
		"redacted": &events.TurnRedacted{TurnID: id, SessionID: m.session},
		"linked":   &events.SessionLinked{SessionID: m.session, IdentityID: "mallory"},
		"refused":  &events.LinkRefused{SessionID: m.session, IdentityID: "mallory"},
		"reset": &events.SessionReset{SessionID: m.session, After: events.Position{Seq: rapid.Uint64Range(0,
			m.head+2).Draw(t, "after")}},
		"described": &events.SessionDescribed{SessionID: m.session, RequestID: request, Title: words,
			After: events.Position{Seq: rapid.Uint64Range(0, m.head+2).Draw(t, "described after")}},
		"forked": &events.SessionForked{SessionID: m.session, RequestID: request, FromSessionID: "from", Root: "root"},
		"branched": &events.SessionBranched{SessionID: m.session, ChildSessionID: words, RequestID: request,
			FromSessionID: m.session, Root: m.session},
		"summarized": &events.SessionSummarized{SessionID: m.session, RequestID: request, SummaryNeutral: words,
			TurnIDs: m.summarizable(t)},
		"voided": &events.SessionSummarized{SessionID: m.session, RequestID: request, Void: true},
		"erased": &events.SessionErased{SessionID: m.session, ReceiptID: "x"},
		"empty":  &events.TurnStarted{TurnID: id, SessionID: m.session, RequestID: request},
		"wrong turn id": &events.TurnStarted{TurnID: m.turn("other"), SessionID: m.session, RequestID: request,
			Question: q},
		"no turn id": &events.TurnFinalized{TurnID: uuid.Nil, SessionID: m.session, Answer: a},
	}
	names := []string{"started", "started", "finalized", "finalized", "corrected", "corrected", "redacted", "linked",
		"extended", "extended", "pruned", "pruned",
		"refused", "reset", "described", "described", "summarized", "summarized", "voided", "forked", "branched",
		"empty",
		"wrong turn id", "no turn id"}
	if rapid.IntRange(0, 9).Draw(t, "rare") == 0 {
		names = []string{"erased"}
	}
	m.append(facts[rapid.SampledFrom(names).Draw(t, "fact")])
}

// whole records a turn with its answer.
func (m *machine) whole(t *rapid.T) {
	request, words := requests.Draw(t, "request"), wordings.Draw(t, "words")
	m.append(&events.TurnStarted{TurnID: m.turn(request), SessionID: m.session, RequestID: request,
		Question: events.Question{QuestionNeutral: words}})
	m.append(&events.TurnFinalized{TurnID: m.turn(request), SessionID: m.session,
		Answer: events.Answer{AnswerNeutral: words}})
}

// summary records a summary through a turn that has its answer, if the session lets it.
func (m *machine) summary(t *rapid.T) {
	request := requests.Draw(t, "request")
	for _, x := range m.live.Turns {
		if x.Status != conversation.Finalized || rapid.Bool().Draw(t, "a later one") {
			continue
		}
		d := m.live.DecideSummarize(conversation.Summarize{ThroughTurnID: x.ID, Summary: events.SessionSummarized{
			SessionID: m.session, RequestID: request, SummaryNeutral: "a summary"}})
		for _, f := range d.Facts {
			if c := m.append(f); c.Kind != conversation.Summarized {
				t.Fatalf("a summary that was decided is %s", m.describe(c))
			}
		}
		return
	}
}

// summarizable draws turns for a summary: mostly those that the session shows from the first on.
func (m *machine) summarizable(t *rapid.T) []uuid.UUID {
	var ids []uuid.UUID
	for _, x := range m.live.Turns {
		if m.live.Shown(x) {
			ids = append(ids, x.ID)
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "wrong turns") == 0 {
		ids = []uuid.UUID{m.turn(requests.Draw(t, "wrong turn"))}
	}
	if len(ids) == 0 {
		return []uuid.UUID{m.turn("none")}
	}
	return ids[:rapid.IntRange(1, len(ids)).Draw(t, "through")]
}

// stands reports whether the event states a summary that stands.
func (m *machine) stands(e events.Recorded) bool {
	return slices.ContainsFunc(m.live.Standing(), func(s conversation.Summary) bool { return s.At == e.Position.Seq })
}

// publishAgain publishes a recorded event once more.
func (m *machine) publishAgain(t *rapid.T) {
	if len(m.log) == 0 {
		return // nothing is recorded yet
	}
	e := rapid.SampledFrom(m.log).Draw(t, "event")
	if e.Fact == nil {
		return
	}
	if c := m.append(e.Fact); c.Kind.ChangesView() && m.changes[e.Position.Seq].Kind.ChangesView() &&
		c.Kind != conversation.Refused {
		t.Fatalf("the same event again is %s", m.describe(c))
	}
}

func (m *machine) catchUp(t *rapid.T) {
	m.fold(t, rapid.SampledFrom(m.procs).Draw(t, "process"), rapid.Uint64Range(0, m.head).Draw(t, "up to"))
}

// fold delivers to a process what it has not seen yet, as far as upTo. What it
// folds must be what the live state made of it.
func (m *machine) fold(t *rapid.T, s *conversation.State, upTo uint64) {
	for _, e := range m.log {
		if e.Position.Seq > upTo || e.Position.Seq <= s.Applied {
			continue
		}
		if got, want := m.describe(s.Fold(e)), m.describe(m.changes[e.Position.Seq]); got != want {
			t.Fatalf("event %d is %s here and %s there", e.Position.Seq, got, want)
		}
	}
}

// redeliver delivers to a process again some of the events that it has seen.
func (m *machine) redeliver(t *rapid.T) {
	s := rapid.SampledFrom(m.procs).Draw(t, "process")
	from := rapid.Uint64Range(0, s.Applied).Draw(t, "from")
	before := s.Clone()
	for _, e := range m.log {
		if e.Position.Seq < from || e.Position.Seq > s.Applied {
			continue
		}
		if c := s.Fold(e); c.Kind != conversation.Seen {
			t.Fatalf("event %d is folded twice: %s", e.Position.Seq, m.describe(c))
		}
	}
	if d := differences(m.world, before, s.Clone()); d != "" {
		t.Fatalf("redelivery changed\n%s", d)
	}
}

func (m *machine) wait(t *rapid.T) {
	m.clock = m.clock.Add(time.Duration(rapid.Int64Range(1, 30).Draw(t, "hours")) * time.Hour)
}

func (m *machine) String() string { return fmt.Sprintf("%d events", len(m.log)) }
