package session_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// TestAnyHistory plays random commands of processes that each have seen another
// part of the log, foreign events, repeated and late ones, and holds every state on
// the way against what must always be so. A failure prints rapid's seed.
func TestAnyHistory(t *testing.T) {
	t.Parallel()
	summaries := 0
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{world: newWorld("s", session.Rules{SessionTTL: 24 * time.Hour})}
		for range 3 {
			m.procs = append(m.procs, session.New(m.session, m.rules))
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
	procs    []*session.State
	accepted []command
	identity string
}

type command struct {
	name   string
	decide func(*session.State) decide.Decision
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
	switch name := rapid.SampledFrom([]string{"start", "start", "whole", "whole",
		"finalize", "finalize", "correct", "redact", "link",
		"reset", "finalize first", "describe", "describe", "summarize", "extend", "extend", "prune",
		"prune"}).Draw(t, "command"); name {
	case "start", "whole":
		c := decide.Start{SessionID: m.session, RequestID: request, IdentityID: identities.Draw(t, "identity"),
			Question: events.Question{QuestionNeutral: words}}
		if name == "whole" {
			c.Answer, c.OnlyNew = &events.Answer{AnswerNeutral: words}, rapid.IntRange(0, 3).Draw(t, "only new") == 0
		}
		return command{name, func(s *session.State) decide.Decision { return c.On(s) }}
	case "finalize", "finalize first":
		c := decide.Finalize{SessionID: m.session, TurnID: id, Answer: events.Answer{AnswerNeutral: words},
			Metadata: []byte(`{"locale":"de"}`)}
		if name == "finalize first" {
			c.RequestID = request
			c.StartFirst = &decide.Start{SessionID: m.session, RequestID: request, IdentityID: identities.Draw(t,
				"identity"), Question: events.Question{QuestionNeutral: words}}
		}
		return command{name, func(s *session.State) decide.Decision { return c.On(s) }}
	case "correct":
		c := decide.Correct{SessionID: m.session, RequestID: request, TurnID: m.turn(requests.Draw(t, "old")),
			AnswerNeutral: &words}
		return command{name, func(s *session.State) decide.Decision {
			return c.On(s,
				s.Turn(c.TurnID))
		}}
	case "redact":
		return command{name, func(s *session.State) decide.Decision {
			return decide.Redact{TurnID: id}.On(s)
		}}
	case "extend":
		c := decide.Extend{SessionID: m.session, TurnID: id, ExtensionID: extensionIDs.Draw(t, "extension"),
			Extension: m.extension(t, words)}
		return command{name, func(s *session.State) decide.Decision { return c.On(s) }}
	case "prune":
		c := m.anyPrune(t, id)
		return command{name, func(s *session.State) decide.Decision { return must.Get(m.prune(s, c))(t) }}
	case "describe":
		c := decide.Describe{SessionID: m.session, RequestID: request, Title: &words,
			Kind:     kinds.Draw(t, "kind"),
			Metadata: map[string]*string{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"): nil, words: &words}}
		return command{name, func(s *session.State) decide.Decision { return c.On(s, 0) }}
	case "summarize":
		c := decide.Summarize{ThroughTurnID: id, Summary: events.SessionSummarized{SessionID: m.session,
			RequestID: request, SummaryNeutral: words}}
		return command{name, func(s *session.State) decide.Decision { return c.On(s) }}
	case "link":
		identity := identities.Filter(func(s string) bool { return s != "" }).Draw(t, "identity")
		return command{name, func(s *session.State) decide.Decision { return decide.Link(s, identity, "") }}
	default:
		return command{name, func(s *session.State) decide.Decision { return decide.Reset(s, "", 0) }}
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

func (m *machine) answered(t *rapid.T, c command, d decide.Decision) {
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
		"recorded": &events.TurnRecorded{TurnID: id, SessionID: m.session, RequestID: request, Question: q, Answer: a},
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
	names := []string{"started", "started", "recorded", "recorded", "finalized", "finalized", "corrected", "corrected",
		"redacted", "linked",
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
	m.append(&events.TurnRecorded{TurnID: m.turn(request), SessionID: m.session, RequestID: request,
		Question: events.Question{QuestionNeutral: words}, Answer: events.Answer{AnswerNeutral: words}})
}

// summary records a summary through a turn that has its answer, if the session lets it.
func (m *machine) summary(t *rapid.T) {
	request := requests.Draw(t, "request")
	for _, x := range m.live.Turns {
		if x.Status != session.Finalized || rapid.Bool().Draw(t, "a later one") {
			continue
		}
		d := decide.Summarize{ThroughTurnID: x.ID, Summary: events.SessionSummarized{
			SessionID: m.session, RequestID: request, SummaryNeutral: "a summary"}}.On(m.live)
		for _, f := range d.Facts {
			if c := m.append(f); c.Kind != session.Summarized {
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
	return slices.ContainsFunc(m.live.Standing(), func(s session.Summary) bool { return s.At == e.Position.Seq })
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
		c.Kind != session.Refused {
		t.Fatalf("the same event again is %s", m.describe(c))
	}
}

func (m *machine) catchUp(t *rapid.T) {
	m.fold(t, rapid.SampledFrom(m.procs).Draw(t, "process"), rapid.Uint64Range(0, m.head).Draw(t, "up to"))
}

// fold delivers to a process what it has not seen yet, as far as upTo. What it
// folds must be what the live state made of it.
func (m *machine) fold(t *rapid.T, s *session.State, upTo uint64) {
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
		if c := s.Fold(e); c.Kind != session.Seen {
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

// invariants of every state on the way.
func (m *machine) invariants(t *rapid.T) {
	s := m.live
	seen := map[uuid.UUID]bool{}
	var counts session.Counts
	for i, x := range s.Turns {
		if seen[x.ID] || x.ID != events.TurnID(m.session, x.RequestID) || s.Turn(x.ID) != x {
			t.Fatalf("%s stands twice, or under another id", x.RequestID)
		}
		seen[x.ID] = true
		if i > 0 && (s.Turns[i-1].Place > x.Place || s.Turns[i-1].Place == x.Place &&
			s.Turns[i-1].Version >= x.Version) {
			t.Fatalf("%s is out of its place", x.RequestID)
		}
		m.turnInvariants(t, x)
		count(s, x, &counts)
	}
	if counts != s.Counts {
		t.Fatalf("%+v are counted, %+v are there", s.Counts, counts)
	}
	if s.Erased != 0 && len(s.Turns) > 0 {
		t.Fatal("an erased session has turns")
	}
	if m.identity == "" {
		m.identity = s.Identity
	}
	if s.Identity != m.identity {
		t.Fatalf("the session went from %q to %q", m.identity, s.Identity)
	}
	for _, p := range m.procs {
		if p.Applied == s.Applied {
			if d := differences(m.world, s, p); d != "" {
				t.Fatalf("two processes have seen the same, and differ:\n%s", d)
			}
		}
	}
}

func (m *machine) turnInvariants(t *rapid.T, x *session.Turn) {
	redacted, answered := x.Status == session.Redacted, x.Status == session.Finalized ||
		x.Status == session.Replaced
	switch {
	case redacted && (x.Question != nil || x.Answer != nil || x.AnswerMetadata != nil):
		t.Fatalf("%s is redacted and has text", x.RequestID)
	case redacted == (x.Redacted == 0) || redacted == x.DeletedAt.IsZero():
		t.Fatalf("%s is half redacted", x.RequestID)
	case !redacted && x.Question == nil, answered && (x.Answer == nil || x.Final == 0 || x.FinalizedAt.IsZero()):
		t.Fatalf("%s has lost its text", x.RequestID)
	case (x.ReplacedBy != uuid.Nil) != (x.Status == session.Replaced || redacted &&
		x.StatusBefore == session.Replaced):
		t.Fatalf("%s is half replaced", x.RequestID)
	case x.Place > x.Started || x.Corrects() != (x.Version > 1):
		t.Fatalf("%s stands after its start", x.RequestID)
	}
	chain := m.live.Chain(x)
	pruned, gone := chain[len(chain)-1].PrunedAt(), chain[len(chain)-1].Redacted
	for i, v := range chain {
		buried := gone != 0 || i < len(chain)-1 && v.Started < pruned
		if v.Version != i+1 || (v.Status == session.Redacted) != buried || v.Place != x.Place {
			t.Fatalf("the versions of %s are not one turn", x.RequestID)
		}
	}
}

func count(s *session.State, x *session.Turn, c *session.Counts) {
	all, shown := &c.Pending, &c.ShownPending
	switch x.Status {
	case session.Finalized:
		all, shown = &c.Finalized, &c.ShownFinalized
	case session.Redacted, session.Replaced:
		return
	case session.Pending:
	}
	*all++
	if s.Shown(x) {
		*shown++
	}
}

// final checks need the whole log once.
func (m *machine) final(t *rapid.T) {
	for _, p := range m.procs {
		m.fold(t, p, m.head)
	}
	m.invariants(t)
	for _, c := range m.accepted {
		if d := c.decide(m.live); len(d.Facts) > 0 && d.Err == nil && c.name != "reset" {
			t.Fatalf("%s was accepted, and asks for %T again", c.name, d.Facts[0])
		}
	}
	m.slim(t)
	m.cloned(t)
	m.erased(t)
	m.summaryless(t)
}

// summaryless: without its summaries the session is the same but for them, and so is what each other event did.
func (m *machine) summaryless(t *rapid.T) {
	without := session.New(m.session, m.rules)
	for _, e := range m.log {
		if e.Type == events.TypeSessionSummarized {
			continue
		}
		got, want := without.Fold(e), m.changes[e.Position.Seq]
		want.VoidsSummary = false
		if m.describe(got) != m.describe(want) {
			t.Fatalf("event %d is %s without summaries, and %s with them", e.Position.Seq, m.describe(got),
				m.describe(want))
		}
	}
	live := m.live.Clone()
	live.KeepSummaries(func(session.Summary) bool { return false })
	live.Applied, without.Applied = 0, 0
	if got, want := m.show(without), m.show(live); got != want || !live.Same(without) {
		t.Fatalf("without summaries:\n%s\nwith them:\n%s", got, want)
	}
}

// slim: a state without texts agrees in everything else.
func (m *machine) slim(t *rapid.T) {
	slim := session.New(m.session, session.Rules{SessionTTL: m.rules.SessionTTL, Slim: true})
	for _, e := range m.log {
		if got, want := m.describe(slim.Fold(e)), m.describe(m.changes[e.Position.Seq]); got != want {
			t.Fatalf("event %d is %s in a slim state and %s in a full one", e.Position.Seq, got, want)
		}
	}
	if slim.Head() != m.live.Head() || len(slim.Turns) != len(m.live.Turns) {
		t.Fatalf("slim: %+v, full: %+v", slim.Head(), m.live.Head())
	}
	for i, x := range m.live.Turns {
		bare := session.Bare(*x)
		if !reflect.DeepEqual(bare, slim.Turns[i]) {
			t.Fatalf("slim: %+v, full: %+v", slim.Turns[i], bare)
		}
	}
}

// cloned: a clone stays as it is while its original goes on, and goes the same way.
func (m *machine) cloned(t *rapid.T) {
	cut := rapid.Uint64Range(0, m.head).Draw(t, "cloned at")
	original := m.at(cut)
	clone, witness := original.Clone(), m.at(cut)
	m.fold(t, original, m.head)
	if d := differences(m.world, witness, clone); d != "" {
		t.Fatalf("the clone went along:\n%s", d)
	}
	m.fold(t, clone, m.head)
	if d := differences(m.world, original, clone); d != "" {
		t.Fatalf("the clone went elsewhere:\n%s", d)
	}
}

// erased: the session is the same when what redactions and erasures cover is gone
// from the log, also where the eraser, which goes from the newest event back, was
// interrupted.
func (m *machine) erased(t *rapid.T) {
	gone := map[uint64]bool{}
	for _, e := range m.log {
		c := m.changes[e.Position.Seq]
		if !erases(e, c) {
			continue
		}
		var ids []uuid.UUID
		for _, x := range c.Turns {
			ids = append(ids, x.ID)
		}
		covered := m.covered(func(x events.Recorded) bool {
			took := c.Kind == session.Pruned && named(x, c.Turn.ID) &&
				(x.Position.Seq < e.Position.Seq || m.changes[x.Position.Seq].Reason == session.CodeTurnPruned)
			return took || named(x, ids...) && (c.Kind == session.TurnGone || x.Position.Seq < e.Position.Seq)
		})
		for _, seq := range covered[:rapid.IntRange(0, len(covered)).Draw(t, "erased so far")] {
			if m.comesAgain(seq) {
				break
			}
			gone[seq] = true
		}
	}
	replaced := m.covered(func(e events.Recorded) bool {
		return e.Type == events.TypeSessionDescribed && e.Position.Seq != m.live.Description().DescribedAt ||
			isSummary(e) && !m.stands(e)
	})
	for _, seq := range replaced[:rapid.IntRange(0, len(replaced)).Draw(t, "replaced so far")] {
		if m.comesAgain(seq) {
			break
		}
		gone[seq] = true
	}
	if m.live.Erased != 0 {
		for _, seq := range m.covered(func(e events.Recorded) bool {
			return e.Position.Seq != m.live.Erased &&
				!links(e) && e.Type != events.TypeSessionBranched
		}) {
			if rapid.Bool().Draw(t, "erased") {
				gone[seq] = true
			}
		}
	}
	if d := differences(m.world, m.live,
		m.world.fold(func(e events.Recorded) bool { return !gone[e.Position.Seq] })); d != "" {
		t.Fatalf("without the erased events %v the session is another:\n%s", gone, d)
	}
}

// comesAgain reports whether the event is a summary that was published once more, and of which the log does not say
// that it is void. The eraser has it say so before it takes one, or the repetition would count.
func (m *machine) comesAgain(seq uint64) bool {
	e := m.log[seq-1]
	f, is := e.Fact.(*events.SessionSummarized)
	return is && !m.live.Voided(events.SummaryID(f.SessionID, f.RequestID)) &&
		slices.ContainsFunc(m.log[seq:], func(x events.Recorded) bool { return x.ID == e.ID })
}

// isSummary reports whether an event brings the text of a summary.
func isSummary(e events.Recorded) bool {
	f, is := e.Fact.(*events.SessionSummarized)
	return is && !f.Void
}

// erases reports whether an event redacted or pruned a turn with the tombstones and the mark that a decision gives it.
func erases(e events.Recorded, c session.Change) bool {
	redaction, redacts := e.Fact.(*events.TurnRedacted)
	prune, prunes := e.Fact.(*events.TurnPruned)
	return redacts && c.Kind == session.TurnGone && redaction.Session != nil ||
		prunes && c.Kind == session.Pruned && prune.Reason == decided
}

func links(e events.Recorded) bool {
	_, link := e.Fact.(*events.SessionLinked)
	return link
}

// covered are the sequences of some events, newest first.
func (m *machine) covered(is func(events.Recorded) bool) []uint64 {
	var out []uint64
	for _, e := range slices.Backward(m.log) {
		if is(e) {
			out = append(out, e.Position.Seq)
		}
	}
	return out
}
