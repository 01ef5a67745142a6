package conversation_test

import (
	"reflect"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// invariants of every state on the way.
func (m *machine) invariants(t *rapid.T) {
	s := m.live
	seen := map[uuid.UUID]bool{}
	var counts conversation.Counts
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

func (m *machine) turnInvariants(t *rapid.T, x *conversation.Turn) {
	redacted, answered := x.Status == conversation.Redacted, x.Status == conversation.Finalized ||
		x.Status == conversation.Replaced
	switch {
	case redacted && (x.Question != nil || x.Answer != nil || x.AnswerMetadata != nil):
		t.Fatalf("%s is redacted and has text", x.RequestID)
	case redacted == (x.Redacted == 0) || redacted == x.DeletedAt.IsZero():
		t.Fatalf("%s is half redacted", x.RequestID)
	case !redacted && x.Question == nil, answered && (x.Answer == nil || x.Final == 0 || x.FinalizedAt.IsZero()):
		t.Fatalf("%s has lost its text", x.RequestID)
	case (x.ReplacedBy != uuid.Nil) != (x.Status == conversation.Replaced || redacted &&
		x.StatusBefore == conversation.Replaced):
		t.Fatalf("%s is half replaced", x.RequestID)
	case x.Place > x.Started || x.Corrects() != (x.Version > 1):
		t.Fatalf("%s stands after its start", x.RequestID)
	}
	chain := m.live.Chain(x)
	pruned, gone := chain[len(chain)-1].PrunedAt(), chain[len(chain)-1].Redacted
	for i, v := range chain {
		buried := gone != 0 || i < len(chain)-1 && v.Started < pruned
		if v.Version != i+1 || (v.Status == conversation.Redacted) != buried || v.Place != x.Place {
			t.Fatalf("the versions of %s are not one turn", x.RequestID)
		}
	}
}

func count(s *conversation.State, x *conversation.Turn, c *conversation.Counts) {
	all, shown := &c.Pending, &c.ShownPending
	switch x.Status {
	case conversation.Finalized:
		all, shown = &c.Finalized, &c.ShownFinalized
	case conversation.Redacted, conversation.Replaced:
		return
	case conversation.Pending:
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
	without := conversation.New(m.session, m.rules)
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
	live.KeepSummaries(func(conversation.Summary) bool { return false })
	live.Applied, without.Applied = 0, 0
	if got, want := m.show(without), m.show(live); got != want || !live.Same(without) {
		t.Fatalf("without summaries:\n%s\nwith them:\n%s", got, want)
	}
}

// slim: a state without texts agrees in everything else.
func (m *machine) slim(t *rapid.T) {
	slim := conversation.New(m.session, conversation.Rules{SessionTTL: m.rules.SessionTTL, Slim: true})
	for _, e := range m.log {
		if got, want := m.describe(slim.Fold(e)), m.describe(m.changes[e.Position.Seq]); got != want {
			t.Fatalf("event %d is %s in a slim state and %s in a full one", e.Position.Seq, got, want)
		}
	}
	if slim.Head() != m.live.Head() || len(slim.Turns) != len(m.live.Turns) {
		t.Fatalf("slim: %+v, full: %+v", slim.Head(), m.live.Head())
	}
	for i, x := range m.live.Turns {
		bare := conversation.Bare(*x)
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
			took := c.Kind == conversation.Pruned && named(x, c.Turn.ID) &&
				(x.Position.Seq < e.Position.Seq || m.changes[x.Position.Seq].Reason == conversation.CodeTurnPruned)
			return took || named(x, ids...) && (c.Kind == conversation.TurnGone || x.Position.Seq < e.Position.Seq)
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
func erases(e events.Recorded, c conversation.Change) bool {
	redaction, redacts := e.Fact.(*events.TurnRedacted)
	prune, prunes := e.Fact.(*events.TurnPruned)
	return redacts && c.Kind == conversation.TurnGone && redaction.Session != nil ||
		prunes && c.Kind == conversation.Pruned && prune.Reason == decided
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
