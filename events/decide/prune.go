package decide

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// Prune asks to take messages out of a turn. PruneID names the prune among those of the turn.
type Prune struct {
	SessionID, PruneID string
	TurnID             uuid.UUID
	Reason, RedactedBy string
	Partition          int
	// Call names the client's call that the event is written for, or "".
	Call string
	// Keep is called for each message of the turn, in order, and returns the message as it is to stay, or nil if it is
	// to go. It may be called again, on a newer state of the turn.
	Keep func(session.Message) json.RawMessage
	// Forget are the sequences of events whose settings are to go, too. Brought are those of the turn (SettingsOf).
	Forget  []uint64
	Brought []events.Brought
}

// NormalPrune checks a prune by the rules that need no state.
func NormalPrune(c Prune) (Prune, error) {
	if err := ValidIDs("session_id", c.SessionID, "prune_id", c.PruneID); err != nil {
		return c, err
	}
	if events.ValidExtensionID(c.PruneID) != nil {
		return c, &Invalid{"prune_id", "must not end with a space"}
	}
	return c, nil
}

// Refused decides a prune as far as that is possible without texts, as Correct.Refused does a correction.
func (c Prune) Refused(s *session.State) (d Decision, ok bool) {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}, true
	}
	t := s.Turn(c.TurnID)
	if t == nil {
		return Decision{Err: ErrTurnNotFound}, true
	}
	switch t.Status {
	case session.Redacted:
		return Decision{Err: ErrTurnRedacted}, true
	case session.Replaced:
		return Decision{Err: refusalOf(s, c.TurnID, session.CodeTurnReplaced)}, true
	case session.Pending, session.Finalized:
	}
	if at := t.PruneAt(c.PruneID); at != 0 {
		return Decision{Turn: t, RestsOn: at}, true
	}
	return Decision{}, false
}

// On decides a prune. old is the turn with its texts, and messages are those that it has. If no message is
// left, the turn is redacted; if none goes or changes, the prune is refused.
func (c Prune) On(s *session.State, old *session.Turn, messages []session.Message) Decision {
	if d, ok := c.Refused(s); ok {
		return d
	}
	left, changed := c.left(messages)
	switch {
	case len(changed) == 0:
		return Decision{Err: ErrMessageNotFound}
	case len(left) == 0:
		return Redact{c.TurnID, c.Reason, c.RedactedBy, c.Partition}.On(s)
	}
	t := s.Turn(c.TurnID)
	f := &events.TurnPruned{
		TurnID: c.TurnID, SessionID: c.SessionID, PruneID: c.PruneID, Question: *old.Question,
		Tombstones: s.Tombstones(s.Chain(t), c.Partition), Session: s.SessionMark(c.Partition),
		Parts: partsLeft(t, left), Reason: c.Reason, RedactedBy: c.RedactedBy,
	}
	for _, b := range c.Brought {
		if !slices.Contains(c.Forget, b.Seq) {
			f.Brought = append(f.Brought, b)
		}
	}
	f.Metadata, f.TranslateChat = old.Metadata(), t.TranslateChat
	if changed[events.HalfQuestion] {
		f.QuestionMessages = ofHalf(left, events.HalfQuestion)
		f.QuestionNeutral, f.QuestionTranslated = message.QuestionText(f.QuestionMessages), ""
		f.Metadata, _ = session.WithoutMember(f.Metadata, session.FallbackKey)
	}
	if old.Answer != nil {
		f.Answer = *old.Answer
	}
	if changed[events.HalfAnswer] {
		f.AnswerMessages = ofHalf(left, events.HalfAnswer)
		f.AnswerNeutral, f.AnswerTranslated = message.AnswerText(f.AnswerMessages), ""
		if f.AnswerTranslatedIsFallback {
			f.AnswerTranslated, f.AnswerTranslatedIsFallback = f.AnswerNeutral, f.AnswerNeutral != ""
		}
	}
	return Decision{Facts: []events.Fact{f}, Expect: true}
}

// left returns the messages that stay, and the halves of which one goes or changes.
func (c Prune) left(messages []session.Message) (left []session.Message, changed map[events.Half]bool) {
	changed = map[events.Half]bool{}
	for _, m := range messages {
		kept := c.Keep(m)
		if !bytes.Equal(kept, m.Raw) {
			changed[m.Half] = true
		}
		if m.Raw = kept; kept != nil {
			left = append(left, m)
		}
	}
	return left, changed
}

func ofHalf(messages []session.Message, of events.Half) json.RawMessage {
	var list []json.RawMessage
	for _, m := range messages {
		if m.Half == of {
			list = append(list, m.Raw)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return events.Raw(list)
}

// partsLeft says what is left of the events that extended a turn.
func partsLeft(t *session.Turn, left []session.Message) (parts []events.Part) {
	for i, x := range t.Extensions() {
		p := events.Part{ID: x.ID, Half: x.Half}
		for _, m := range left {
			if m.Part == i+1 {
				p.Messages++
			}
		}
		parts = append(parts, p)
	}
	return parts
}
