package decide

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Decision says what a command wants to append to the log, or holds the answer that the log already has. After an
// append the caller decides again, on the state that holds the appended events. Only the second decision is final,
// since another process may have appended first.
type Decision struct {
	// Facts are appended in one atomic batch. With Err they record the refusal.
	Facts []events.Fact
	// Expect: the append must state the session's last sequence, since the answer
	// depends on it.
	Expect bool
	// Turn is the answer if nothing is to be appended. RestsOn is the sequence of the event that the answer rests on.
	Turn    *session.Turn
	RestsOn uint64
	// StatedAt is the sequence of the event that states the command, where that differs from RestsOn;
	// else 0. A caller that did not append this event is a duplicate.
	StatedAt uint64
	// Err refuses the command.
	Err error
}

// Start asks for a turn. Question and Answer are normal (see Policy).
type Start struct {
	SessionID, RequestID, IdentityID string
	Question                         events.Question
	// Answer, where not nil, makes the turn whole: one fact states its question and its answer. The turn's metadata is
	// that of the question.
	Answer     *events.Answer
	SourceHash string
	// OnlyNew leaves a turn that stands as it is: it gets no answer, and its session no link.
	OnlyNew bool
	// Bound: the caller speaks for IdentityID alone, and so may begin a session, which is linked, and go on with one
	// that is the identity's. Every other session is as one that there is not.
	Bound bool
	Busy  Busy
}

// Busy refuses what is new while it returns true for a turn that is pending, or whose answer goes on (the policy
// reject). A nil one refuses nothing.
type Busy func(*session.Turn) bool

// refusal returns the refusal, or nil.
func (b Busy) refusal(s *session.State) error {
	busy := func(t *session.Turn) bool { return b != nil && b(t) }
	if at := slices.IndexFunc(s.Turns, busy); at >= 0 {
		return pendingRefusal(s.Turns[at])
	}
	return nil
}

// On decides a start. A retry of a start that the log has is answered with its turn. An answer that the start
// brings is recorded where the turn has none yet (docs/contract.md#whole-turns).
func (c Start) On(s *session.State) Decision {
	if d, refused := c.refused(s); refused {
		return d
	}
	id := events.TurnID(c.SessionID, c.RequestID)
	t := s.Turn(id)
	var facts []events.Fact
	stays := t != nil && c.OnlyNew
	if c.IdentityID != "" && s.Identity == "" && !stays {
		facts = append(facts, &events.SessionLinked{SessionID: c.SessionID, IdentityID: c.IdentityID})
	}
	expect := len(facts) > 0 || c.Busy != nil
	if t == nil {
		if err := c.Busy.refusal(s); err != nil {
			return Decision{Err: err}
		}
		facts = append(facts, c.fact(id))
	}
	if c.Answer != nil && t != nil && t.Status == session.Pending && !stays {
		facts = append(facts, c.final(t))
	}
	if len(facts) > 0 {
		return Decision{Facts: facts, Expect: expect}
	}
	stated := t.Started
	if c.Answer != nil {
		stated = max(stated, t.Final)
	}
	restsOn := stated
	if c.IdentityID != "" {
		restsOn = max(restsOn, s.LinkedAt)
	}
	return Decision{Turn: t, RestsOn: restsOn, StatedAt: stated}
}

// fact returns the fact that opens the turn.
func (c Start) fact(id uuid.UUID) events.Fact {
	if c.Answer == nil {
		return &events.TurnStarted{TurnID: id, SessionID: c.SessionID, RequestID: c.RequestID, Question: c.Question}
	}
	return &events.TurnRecorded{
		TurnID: id, SessionID: c.SessionID, RequestID: c.RequestID, Question: c.Question,
		Answer: translated(*c.Answer, c.Question.TranslateChat),
	}
}

// final returns the fact of the answer that a start brings to a turn that stands. The turn's own question says whether
// a translation was asked for.
func (c Start) final(stands *session.Turn) *events.TurnFinalized {
	return Finalize{SessionID: c.SessionID, TurnID: stands.ID, Answer: *c.Answer}.fact(stands.TranslateChat)
}

func (c Start) refused(s *session.State) (Decision, bool) {
	if c.Bound && s.Applied > 0 && s.Identity != c.IdentityID {
		return Decision{Err: ErrSessionNotFound}, true
	}
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}, true
	}
	if c.IdentityID != "" && s.Identity != "" && s.Identity != c.IdentityID {
		return refuseLink(s, c.IdentityID, c.SourceHash), true
	}
	if t := s.Turn(events.TurnID(c.SessionID, c.RequestID)); t != nil && t.Corrects() {
		return Decision{Err: ErrRequestIDInUse}, true
	}
	return Decision{}, false
}

func refuseLink(s *session.State, identity, source string) Decision {
	return Decision{
		Err:   ErrLinkedElsewhere,
		Facts: []events.Fact{&events.LinkRefused{SessionID: s.SessionID, IdentityID: identity, SourceHash: source}},
	}
}

// Finalize asks to record the answer of a turn. RequestID may be empty. StartFirst, for development, is the start to
// append if the turn was never started.
type Finalize struct {
	SessionID, RequestID string
	TurnID               uuid.UUID
	Answer               events.Answer
	Metadata             []byte
	// FinishReason, if set, is stored in the log's metadata under FinishKey.
	FinishReason string
	// Usage, if set, is stored in the log's metadata under UsageKey.
	Usage *session.Usage
	// Settings are those of the fact.
	Settings   json.RawMessage
	StartFirst *Start
}

// On decides a finalize. The first answer of a turn stays.
func (c Finalize) On(s *session.State) Decision {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}
	}
	if c.RequestID != "" && events.TurnID(c.SessionID, c.RequestID) != c.TurnID {
		return Decision{Err: ErrTurnMismatch}
	}
	t := s.Turn(c.TurnID)
	switch {
	case t == nil && c.StartFirst == nil:
		return Decision{Err: ErrTurnNotStarted}
	case t == nil:
		return c.whole().On(s)
	case t.Status == session.Redacted:
		return Decision{Err: ErrTurnRedacted}
	case t.Status == session.Pending:
		return Decision{Facts: []events.Fact{c.fact(t.TranslateChat)}}
	default:
		return Decision{Turn: t, RestsOn: t.Final}
	}
}

// whole returns the start of a turn with its answer, for a finalize of a turn that was never started.
func (c Finalize) whole() Start {
	first := *c.StartFirst
	first.Answer = &c.Answer
	first.Question.Metadata = session.MergeMetadata(first.Question.Metadata, c.Metadata)
	return first
}

// fact returns the fact to append.
func (c Finalize) fact(translate bool) *events.TurnFinalized {
	return &events.TurnFinalized{
		TurnID: c.TurnID, SessionID: c.SessionID, Answer: translated(c.Answer, translate), Metadata: c.Metadata,
		Settings: c.Settings,
	}
}

// translated returns an answer. If a translation was asked for but is missing, it has a copy of the neutral answer.
func translated(a events.Answer, asked bool) events.Answer {
	if asked && a.AnswerTranslated == "" && a.AnswerNeutral != "" {
		a.AnswerTranslated, a.AnswerTranslatedIsFallback = a.AnswerNeutral, true
	}
	return a
}

// Link decides a link of the session to an identity. source is a keyed hash of the caller's address, and is
// recorded with a refusal.
func Link(s *session.State, identity, source string) Decision {
	switch {
	case s.Erased != 0:
		return Decision{Err: ErrSessionErased}
	case s.Identity == identity:
		return Decision{RestsOn: s.LinkedAt}
	case s.Identity != "":
		return refuseLink(s, identity, source)
	default:
		link := &events.SessionLinked{SessionID: s.SessionID, IdentityID: identity}
		return Decision{Facts: []events.Fact{link}, Expect: true}
	}
}

// Redact asks to hide a turn, with all its versions, everywhere.
type Redact struct {
	TurnID             uuid.UUID
	Reason, RedactedBy string
	Partition          int
}

// On decides a redaction. The fact carries tombstones of all versions of the turn.
func (c Redact) On(s *session.State) Decision {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}
	}
	t := s.Turn(c.TurnID)
	if t == nil {
		return Decision{Err: ErrTurnNotFound}
	}
	if s.Current(t).Redacted != 0 {
		return Decision{Turn: t, RestsOn: t.Redacted}
	}
	return Decision{Expect: true, Facts: []events.Fact{&events.TurnRedacted{
		TurnID: c.TurnID, SessionID: s.SessionID, IdentityID: s.Identity, Reason: c.Reason, RedactedBy: c.RedactedBy,
		Tombstones: s.Tombstones(s.Chain(t), c.Partition), Session: s.SessionMark(c.Partition),
	}}}
}

// Erase decides to close the session for ever, and to remove its turns from everything. If the session was erased
// before, its first receipt is the answer.
func Erase(s *session.State, f *events.SessionErased) Decision {
	switch {
	case s.Erased != 0:
		return Decision{RestsOn: s.Erased}
	case s.Applied == 0:
		return Decision{Err: ErrSessionNotFound}
	default:
		return Decision{Facts: []events.Fact{f}}
	}
}

// Reset decides a reset. A session without turns since its last reset has
// nothing to reset.
func Reset(s *session.State, reason string, partition int) Decision {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}
	}
	shares := s.Fork().ForkedAt > s.ResetAt // a reset of a branch hides what it shares
	if !shares && !slices.ContainsFunc(s.Turns, func(t *session.Turn) bool { return t.Started > s.ResetAt }) {
		return Decision{RestsOn: s.ResetAt}
	}
	return Decision{Expect: true, Facts: []events.Fact{&events.SessionReset{
		SessionID: s.SessionID, After: events.Position{Partition: partition, Seq: s.Applied}, Reason: reason,
	}}}
}

// Extend asks to append to a half of a turn. ExtensionID names the extension among those of the turn.
type Extend struct {
	SessionID   string
	TurnID      uuid.UUID
	ExtensionID string
	events.Extension
	Metadata []byte
	// Usage and FinishReason, where set, are stored in the metadata as those of Finalize.
	Usage        *session.Usage
	FinishReason string
	Settings     json.RawMessage
}

// On decides an extension, which NormalExtend has checked. The first extension of an id stands.
func (c Extend) On(s *session.State) Decision {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}
	}
	t := s.Turn(c.TurnID)
	if t != nil && t.Status != session.Redacted {
		if at := t.ExtensionAt(c.ExtensionID); at != 0 {
			return Decision{Turn: t, RestsOn: at}
		}
	}
	code := session.Unextendable(t, c.Half)
	if code == "" {
		return Decision{Facts: []events.Fact{&events.TurnExtended{
			TurnID: c.TurnID, SessionID: c.SessionID, ExtensionID: c.ExtensionID, Extension: c.Extension,
			Metadata: c.Metadata, Settings: c.Settings,
		}}}
	}
	return Decision{Err: refusalOf(s, c.TurnID, code)}
}
