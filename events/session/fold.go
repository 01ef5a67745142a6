package session

import (
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/turnledger/turnledger/events"
)

// Change is what one event changed in its session.
type Change struct {
	Kind Kind
	// Reason of an anomaly is one word: a problem of the envelope, or a Code.
	Reason string
	// Turn is the turn that was started, answered, recorded, extended or pruned, or that replaces another one.
	Turn *Turn
	// Turns are the versions that a redaction or an erasure covers, oldest first, those that a pruned turn replaced, or
	// the turn that a correction replaces.
	Turns []*Turn
	// NewBoundary is true if the boundary or the silence moved: forward by a silence or a reset, or back by a redaction
	// that restores them (events.SessionMark) or by a description that sets the session's kind.
	NewBoundary bool
	// Silence is where the last silence of the session ended that is a boundary, as the sequence before the event that
	// ended it; 0 for none. A link leaves out the turns up to it. Those before a reset come with the link.
	Silence uint64
	// VoidsSummary is true if a summary stands no longer, or was void from the beginning.
	VoidsSummary bool
}

// Left returns the turn that a prune has left, or nil.
func (c *Change) Left() *Turn {
	if c.Kind.Group() == GroupGone && c.Turn.Redacted == 0 {
		return c.Turn
	}
	return nil
}

// BackAgain reports whether the boundary moved back, so that prompts show turns that it had hidden.
func (c *Change) BackAgain() bool {
	return c.NewBoundary && (c.Kind.Group() == GroupGone || c.Kind == Described)
}

// Folded folds the events of a session. It stops at the first error.
func Folded(sessionID string, rules Rules, all iter.Seq2[events.Recorded, error]) (*State, error) {
	s := New(sessionID, rules)
	for e, err := range all {
		if err != nil {
			return nil, err
		}
		s.Fold(e)
	}
	return s, nil
}

// UpToLink folds the events of a session, and stops at the link that counts: a session is never linked again.
func UpToLink(sessionID string, all iter.Seq2[events.Recorded, error]) (*State, error) {
	s := New(sessionID, Rules{Slim: true})
	for e, err := range all {
		if err != nil {
			return nil, err
		}
		if s.Fold(e); s.Identity != "" {
			break
		}
	}
	return s, nil
}

// Fold applies one recorded event of the session and returns what it changed. An event that was
// folded before changes nothing.
func (s *State) Fold(e events.Recorded) Change {
	if e.Position.Seq <= s.Applied {
		return Change{Kind: Seen}
	}
	s.Applied = e.Position.Seq
	if e.Fact == nil {
		return s.foldProblem(e)
	}
	if _, receipt := e.Fact.(*events.ErasureReceipt); receipt {
		return Change{Kind: Noted}
	}
	if s.Erased != 0 {
		return afterErasure(e.Fact)
	}
	before, silence := s.Boundary, s.silence
	c := s.foldFact(e)
	switch c.Kind {
	case Started, Answered, Recorded, WasExtended, Linked, Corrected, Reset, Forked:
		s.touch(e)
	case Seen, Duplicate, Anomaly, Pruned, TurnGone, Described, Summarized, Branched,
		Erased, Refused, Noted: // no activity in the conversation
	}
	c.NewBoundary, c.Silence = s.Boundary != before || s.silence != silence, s.silence
	s.count(c)
	c.VoidsSummary = s.voidsSummary(c)
	if s.slim {
		s.resize(c)
	}
	return c
}

// foldProblem folds an event that states no fact.
func (s *State) foldProblem(e events.Recorded) Change {
	if s.Erased == 0 && s.namesGone(e) {
		return anomaly(CodeTurnRedacted)
	}
	return anomaly(e.Problem)
}

// afterErasure folds a fact of a session that is already erased.
func afterErasure(f events.Fact) Change {
	if _, erased := f.(*events.SessionErased); erased {
		return Change{Kind: Duplicate}
	}
	return anomaly(CodeSessionErased)
}

// count updates the counts. After a new boundary, only a turn that this event itself started is shown.
func (s *State) count(c Change) {
	if c.NewBoundary && !c.BackAgain() {
		s.ShownFinalized, s.ShownPending = 0, 0
	}
	switch c.Kind {
	case Started:
		s.Pending++
		s.ShownPending += s.shownCount(c.Turn)
	case Answered:
		s.Pending--
		s.Finalized++
		if shown := s.shownCount(c.Turn); shown > 0 && !c.NewBoundary {
			s.ShownPending -= shown
			s.ShownFinalized += shown
		}
	case Recorded:
		s.countIn(c.Turn)
	case TurnGone:
		for _, t := range c.Turns {
			s.uncount(t)
		}
	case Erased:
		s.Counts = Counts{}
	case Seen, Duplicate, Anomaly, WasExtended, Linked, Corrected, Pruned, Reset, Described, Summarized, Forked,
		Branched,
		Refused, Noted:
	}
}

// uncount subtracts a turn that has just become a tombstone. A turn that was restored from a tombstone alone was never
// counted.
func (s *State) uncount(t *Turn) {
	switch {
	case t.fromTombstone:
		t.fromTombstone = false
	case t.StatusBefore == Pending:
		s.Pending--
		s.ShownPending -= s.shownCount(t)
	case t.StatusBefore == Finalized:
		s.Finalized--
		s.ShownFinalized -= s.shownCount(t)
	}
}

// shownCount returns what a turn adds to the counts of turns after the boundary: 1 or 0.
func (s *State) shownCount(t *Turn) int {
	if t.Place > s.Boundary {
		return 1
	}
	return 0
}

// touch notes activity. In an anonymous session without a kind a long silence before the event is a boundary, and the
// turn that the event opens comes after the boundary.
func (s *State) touch(e events.Recorded) {
	anonymous := s.Identity == "" || s.LinkedAt == e.Position.Seq
	if anonymous && s.Description().Kind == "" && s.silent(e.Time) {
		s.setSilence(e.Position.Seq - 1)
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = e.Time
	}
	s.LastActive = e.Time
}

// setSilence sets the last silence that is a boundary. The boundary is that or the last reset, whichever is later.
func (s *State) setSilence(seq uint64) { s.silence, s.Boundary = seq, max(seq, s.ResetAt) }

// foldFact folds an event by the rule of its fact.
func (s *State) foldFact(e events.Recorded) Change {
	switch f := e.Fact.(type) {
	case *events.TurnStarted:
		return s.start(e, f)
	case *events.TurnFinalized:
		return s.finalize(e, f)
	case *events.TurnRecorded:
		return s.record(e, f)
	case *events.TurnExtended:
		return s.extend(e, f)
	case *events.SessionLinked:
		return s.link(e, f)
	case *events.TurnRedacted:
		return s.redact(e, f)
	case *events.TurnCorrected:
		return s.correct(e, f)
	case *events.TurnPruned:
		return s.prune(e, f)
	case *events.SessionReset:
		return s.reset(e, f)
	case *events.SessionDescribed:
		return s.describe(e, f)
	case *events.SessionForked:
		return s.forked(e, f)
	case *events.SessionBranched:
		return s.branched(e, f)
	case *events.SessionSummarized:
		return s.summarize(e, f)
	case *events.SessionErased:
		return s.erase(e)
	case *events.LinkRefused:
		return Change{Kind: Refused}
	case *events.IdentityErased, *events.ErasureReceipt, nil: // does not belong on a session's subject
	}
	return anomaly(events.ProblemWrongSubject)
}

func (s *State) start(e events.Recorded, f *events.TurnStarted) Change {
	q := f.Question.Digest()
	if t := s.Turn(f.TurnID); t != nil {
		return startedAgain(t, q)
	}
	t := &Turn{
		ID: f.TurnID, RequestID: f.RequestID, Status: Pending, Version: 1,
		Place: e.Position.Seq, Started: e.Position.Seq, CreatedAt: e.Time, startDigest: q,
		TranslateChat: f.TranslateChat, Asked: len(f.Settings) > 0,
	}
	s.fill(t, f)
	s.insert(t)
	return Change{Kind: Started, Turn: t}
}

// record opens a turn with its answer. It answers none that stands.
func (s *State) record(e events.Recorded, f *events.TurnRecorded) Change {
	q := f.Question.Digest()
	if t := s.Turn(f.TurnID); t != nil {
		return startedAgain(t, q)
	}
	t := &Turn{
		ID: f.TurnID, RequestID: f.RequestID, Status: Finalized, Version: 1,
		Place: e.Position.Seq, Started: e.Position.Seq, Final: e.Position.Seq, CreatedAt: e.Time, FinalizedAt: e.Time,
		startDigest: q, finalDigest: f.Answer.Digest(), TranslateChat: f.TranslateChat,
	}
	s.fill(t, f)
	s.insert(t)
	return Change{Kind: Recorded, Turn: t}
}

// startedAgain judges the question of a turn that stands. The same question is a duplicate, whether or not an answer
// comes with it.
func startedAgain(t *Turn, question uint64) Change {
	if t.Corrects() {
		return contradicted(t, CodeRequestIDInUse)
	}
	return stated(t, t.startDigest == question, CodeSecondStart)
}

func (s *State) finalize(e events.Recorded, f *events.TurnFinalized) Change {
	t, a := s.Turn(f.TurnID), f.Answer.Digest()
	if t == nil {
		return anomaly(CodeTurnNotStarted)
	}
	if t.Status != Pending {
		return stated(t, t.finalDigest == a && !t.Corrects(), CodeSecondFinal)
	}
	t.Status, t.Final, t.FinalizedAt, t.finalDigest = Finalized, e.Position.Seq, e.Time, a
	s.fill(t, f)
	return Change{Kind: Answered, Turn: t}
}

// fill adds the texts of a fact to a turn, unless the state is slim, and counts their messages.
func (s *State) fill(t *Turn, f events.Fact) {
	if !s.slim {
		s.rules().Fill(t, f)
	}
	t.countMessages(f)
}

// countMessages counts the messages that a fact brings a turn, and returns how many an extension brings.
func (t *Turn) countMessages(f events.Fact) (more int) {
	texts := events.TextsOf(f)
	if q := texts.Question; q != nil {
		t.LastMessages = countMessages(q.QuestionMessages, q.QuestionNeutral)
	}
	if a := texts.Answer; a != nil {
		t.LastMessages = countMessages(a.AnswerMessages, a.AnswerNeutral)
	}
	if x := texts.Extension; x != nil {
		more = int(countMessages(x.Messages, ""))
		t.LastMessages = uint16(min(int(t.LastMessages)+more, math.MaxUint16)) //nolint:gosec // cut
	}
	return more
}

// countMessages counts the messages of a half, up to 65,535. A text without messages is one.
func countMessages(messages json.RawMessage, text string) uint16 {
	var list []struct{}
	if len(messages) > 0 {
		_ = json.Unmarshal(messages, &list)
	}
	if len(list) == 0 && text != "" {
		return 1
	}
	return uint16(min(len(list), math.MaxUint16))
}

// stated judges a fact that a turn has already. The same words are a duplicate, and other words are an anomaly. For a
// redacted turn even the same words are an anomaly, since they would bring its text back.
func stated(t *Turn, same bool, otherwise string) Change {
	if same && t.Status != Redacted {
		return Change{Kind: Duplicate, Turn: t}
	}
	return contradicted(t, otherwise)
}

// contradicted judges a fact that contradicts a turn. Of a pruned turn it may repeat what the turn has lost.
func contradicted(t *Turn, otherwise string) Change {
	switch {
	case t.Status == Redacted:
		return anomaly(CodeTurnRedacted)
	case t.PrunedAt() != 0:
		return anomaly(CodeTurnPruned)
	}
	return anomaly(otherwise)
}

func (s *State) link(e events.Recorded, f *events.SessionLinked) Change {
	switch s.Identity {
	case "":
		s.Identity, s.LinkedAt = f.IdentityID, e.Position.Seq
		return Change{Kind: Linked}
	case f.IdentityID:
		return Change{Kind: Duplicate}
	default:
		return anomaly(CodeLinkedElsewhere)
	}
}

func (s *State) correct(e events.Recorded, f *events.TurnCorrected) Change {
	if t := s.Turn(f.TurnID); t != nil {
		return stated(t, t.startDigest == e.Digest && t.Replaces == f.ReplacesTurnID, CodeRequestIDInUse)
	}
	old := s.Turn(f.ReplacesTurnID)
	if code := Unanswered(old); code != "" {
		return anomaly(code)
	}
	t := &Turn{
		ID: f.TurnID, RequestID: f.RequestID, Status: Finalized, Version: old.Version + 1,
		Place: old.Place, Started: e.Position.Seq, Final: e.Position.Seq,
		CreatedAt: old.CreatedAt, FinalizedAt: e.Time, Replaces: old.ID, startDigest: e.Digest, finalDigest: e.Digest,
		TranslateChat: f.TranslateChat,
	}
	s.fill(t, f)
	old.Status, old.ReplacedBy, old.LastMessages = Replaced, t.ID, 0
	s.insert(t)
	return Change{Kind: Corrected, Turn: t, Turns: []*Turn{old}}
}

// reset moves the boundary. If another reset was folded after this reset was decided, the event changes nothing: it was
// sent twice or lost a race, and turns that began in between stay shown.
func (s *State) reset(e events.Recorded, f *events.SessionReset) Change {
	switch {
	case f.After.Seq >= e.Position.Seq:
		return anomaly(CodeWrongPosition)
	case f.After.Seq < s.ResetAt:
		return Change{Kind: Duplicate}
	default:
		s.Boundary, s.ResetAt = e.Position.Seq, e.Position.Seq
		return Change{Kind: Reset}
	}
}

// erase removes from the state all that an erasure removes from the log: everything but the link and the marks of
// branches.
func (s *State) erase(e events.Recorded) Change {
	gone := s.Turns
	s.Turns, s.index = nil, nil
	s.HeldDescription = HeldDescription{}
	if marks := s.more().marks; marks != nil {
		s.rare = &rare{marks: marks}
	} else {
		s.rare = nil
	}
	s.Boundary, s.ResetAt, s.silence, s.CreatedAt, s.LastActive = 0, 0, 0, time.Time{}, time.Time{}
	s.Erased, s.ErasedAt = e.Position.Seq, e.Time
	return Change{Kind: Erased, Turns: gone}
}

// Forget closes the session as the erasure of its identity will close it. It is for the time in which the log holds the
// identity's erasure, but not yet the session's.
func (s *State) Forget() {
	s.erase(events.Recorded{Position: events.Position{Seq: max(s.Applied, 1)}})
	s.Counts = Counts{}
}

func anomaly(reason string) Change { return Change{Kind: Anomaly, Reason: reason} }

// Unanswered returns the code of why a turn is none with an answer that stands, which a correction or a summary needs;
// "" if it is one.
func Unanswered(t *Turn) string {
	if t == nil {
		return CodeTurnNotFound
	}
	return [...]string{Pending: CodeTurnPending, Redacted: CodeTurnRedacted, Replaced: CodeTurnReplaced}[t.Status]
}
