package session_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// epoch is when the first event of a world is recorded, if nobody waits first.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one session's log, as the server keeps it, and the live fold of it.
type world struct {
	session string
	rules   session.Rules
	clock   time.Time
	head    uint64
	log     []events.Recorded
	live    *session.State
	changes map[uint64]session.Change
	names   map[uuid.UUID]string
}

func newWorld(sessionID string, rules session.Rules) *world {
	return &world{
		session: sessionID, rules: rules, clock: epoch, live: session.New(sessionID, rules),
		changes: map[uint64]session.Change{}, names: map[uuid.UUID]string{},
	}
}

// turn is the id of the turn that a request opens.
func (w *world) turn(request string) uuid.UUID {
	id := events.TurnID(w.session, request)
	w.names[id] = request
	return id
}

// append records a fact as the log would, and folds it.
func (w *world) append(f events.Fact) session.Change {
	env, err := events.Encode(f, w.clock)
	if err != nil {
		panic(err)
	}
	return w.record(env)
}

func (w *world) record(env events.Envelope) session.Change {
	w.head++
	e := events.Decode(env, events.Position{Seq: w.head}, w.clock)
	w.clock = w.clock.Add(time.Second)
	w.log = append(w.log, e)
	c := w.live.Fold(e)
	w.changes[w.head] = c
	return c
}

// at is the state of a process that has seen the log up to a sequence.
func (w *world) at(seq uint64) *session.State {
	return w.fold(func(e events.Recorded) bool { return e.Position.Seq <= seq })
}

// fold replays the part of the log that keep lets through.
func (w *world) fold(keep func(events.Recorded) bool) *session.State {
	s := session.New(w.session, w.rules)
	for _, e := range w.log {
		if keep(e) {
			s.Fold(e)
		}
	}
	return s
}

// last is the sequence of the session's last event: what a server compares an
// expectation with.
func (w *world) last() uint64 {
	if len(w.log) == 0 {
		return 0
	}
	return w.log[len(w.log)-1].Position.Seq
}

// named reports whether an event states something of one of the turns.
func named(e events.Recorded, turns ...uuid.UUID) bool {
	if f, is := e.Fact.(*events.SessionSummarized); is {
		return slices.ContainsFunc(turns, func(id uuid.UUID) bool { return slices.Contains(f.TurnIDs, id) })
	}
	_, redacts := e.Fact.(*events.TurnRedacted)
	n := events.NamesOf(e.Fact)
	return !redacts && n.TurnID != uuid.Nil &&
		(slices.Contains(turns, n.TurnID) || n.ReplacesTurnID != uuid.Nil && slices.Contains(turns, n.ReplacesTurnID))
}

// name of a turn in outputs: the request that opened it.
func (w *world) name(id uuid.UUID) string {
	if n, ok := w.names[id]; ok {
		return n
	}
	return id.String()
}

func (w *world) describe(c session.Change) string {
	var b strings.Builder
	b.WriteString(c.Kind.String())
	if c.Reason != "" {
		b.WriteString(" " + c.Reason)
	}
	if c.Turn != nil {
		b.WriteString(" turn=" + c.Turn.RequestID)
	}
	for i, t := range c.Turns {
		b.WriteString([]string{" turns=", ","}[min(i, 1)] + t.RequestID)
	}
	if c.NewBoundary {
		b.WriteString(" boundary")
	}
	if c.VoidsSummary {
		b.WriteString(" voids a summary")
	}
	return b.String()
}

// show writes a state down exactly.
func (w *world) show(s *session.State) string {
	var b strings.Builder
	b.WriteString("session")
	optional(&b, "identity", s.Identity)
	optional(&b, "linked", s.LinkedAt)
	fmt.Fprintf(&b, " applied=%d", s.Applied)
	optional(&b, "boundary", s.Boundary)
	optional(&b, "reset", s.ResetAt)
	optional(&b, "erased", s.Erased)
	optional(&b, "created", since(s.CreatedAt))
	optional(&b, "active", since(s.LastActive))
	optional(&b, "finalized", shown(s.Finalized, s.ShownFinalized))
	optional(&b, "pending", shown(s.Pending, s.ShownPending))
	if d := s.Description(); d.DescribedAt != 0 {
		fmt.Fprintf(&b, " described=%d title=%q metadata=%s", d.DescribedAt, d.Title, cmp.Or(d.Metadata, "{}"))
		optional(&b, "kind", d.Kind)
	}
	if f := s.Fork(); f.ForkedAt != 0 {
		fmt.Fprintf(&b, " forked=%d from=%s root=%s", f.ForkedAt, f.From, f.Root)
		for _, g := range f.Segments() {
			fmt.Fprintf(&b, " %s..%s", g.SessionID, g.Through)
		}
	}
	var children []string
	for _, mark := range s.Branches() {
		children = append(children, mark.SessionID)
	}
	for _, child := range slices.Sorted(slices.Values(children)) {
		b.WriteString(" branch=" + child)
	}
	b.WriteString("\n")
	for _, t := range s.Turns {
		b.WriteString(w.turnLine(s, t) + "\n")
	}
	for _, m := range s.Standing() {
		fmt.Fprintf(&b, "summary at=%d from=%s through=%s turns=%d", m.At, w.name(m.From), w.name(m.Through), m.Turns)
		if m.Fact != nil {
			fmt.Fprintf(&b, " %q %q %s", m.Fact.SummaryNeutral, m.Fact.SummaryTranslated, m.Fact.Model)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (w *world) turnLine(s *session.State, t *session.Turn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s v%d %s place=%d started=%d", t.RequestID, t.Version, t.Status, t.Place, t.Started)
	optional(&b, "final", t.Final)
	for i, x := range t.Extensions() {
		fmt.Fprintf(&b, "%s%d", []string{" extended=", ","}[min(i, 1)], x.Seq)
	}
	optional(&b, "gone", t.Redacted)
	if t.Redacted != 0 {
		fmt.Fprintf(&b, " was=%s", t.StatusBefore)
	}
	if t.Corrects() {
		optional(&b, "replaces", w.name(t.Replaces))
	}
	if t.ReplacedBy != uuid.Nil {
		optional(&b, "replaced_by", w.name(t.ReplacedBy))
	}
	if t.TranslateChat {
		b.WriteString(" translate")
	}
	fmt.Fprintf(&b, " created=%s", since(t.CreatedAt))
	optional(&b, "finalized", since(t.FinalizedAt))
	optional(&b, "deleted", since(t.DeletedAt))
	if !s.Shown(t) {
		b.WriteString(" hidden")
	}
	b.WriteString(texts(t))
	return b.String()
}

func texts(t *session.Turn) string {
	var b strings.Builder
	if q := t.Question; q != nil {
		optional(&b, "\n    q", q.QuestionNeutral)
		optional(&b, "\n    qt", q.QuestionTranslated)
		optional(&b, "\n    qm", string(q.QuestionMessages))
	}
	if a := t.Answer; a != nil {
		optional(&b, "\n    a", a.AnswerNeutral)
		optional(&b, "\n    at", a.AnswerTranslated)
		if a.AnswerTranslatedIsFallback {
			b.WriteString(" (fallback)")
		}
		optional(&b, "\n    am", string(a.AnswerMessages))
	}
	optional(&b, "\n    metadata", string(t.Metadata()))
	return b.String()
}

func optional[T comparable](b *strings.Builder, name string, v T) {
	var zero T
	if v != zero {
		if strings.HasPrefix(name, "\n") {
			fmt.Fprintf(b, "%s: %v", name, v)
		} else {
			fmt.Fprintf(b, " %s=%v", name, v)
		}
	}
}

// shown is a count and, where they differ, how many of it are after the boundary.
func shown(all, after int) string {
	switch {
	case all == after && all == 0:
		return ""
	case all == after:
		return fmt.Sprint(all)
	default:
		return fmt.Sprintf("%d/%d", after, all)
	}
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "+" + t.Sub(epoch).String()
}
