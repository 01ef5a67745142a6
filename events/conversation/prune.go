package conversation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
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
	Keep func(Message) json.RawMessage
	// Forget are the sequences of events whose settings are to go, too. Brought are those of the turn (SettingsOf).
	Forget  []uint64
	Brought []events.Brought
}

// SettingsOf returns the settings that events brought, also those that a prune among them has left.
func SettingsOf(brought []events.Recorded) (list []events.Brought) {
	for _, e := range brought {
		if f, pruned := e.Fact.(*events.TurnPruned); pruned {
			list = append(list, f.Brought...)
		}
		if raw := events.TextsOf(e.Fact).Settings; len(raw) > 0 {
			b := events.Brought{Seq: e.Position.Seq, Time: e.Time, Settings: raw}
			if before, _, known := e.Append(); known {
				b.First = e.Position.Seq - before
			}
			list = append(list, b)
		}
	}
	return list
}

// Message is a message of a turn, and where it stands in the log: it is the one of an index among those that the event
// of a sequence brought to the half. A half that has a text and no messages has one message of that text.
type Message struct {
	Half events.Half
	Seq  uint64
	// First is the sequence of the event that brought it first: before the prune that is at Seq, if that is one.
	First uint64
	Index int
	Raw   json.RawMessage
	// Begun is the sequence of the first event of the half, and Number counts its messages from 0.
	Begun  uint64
	Number int
	// part is the number of the extension that brought it, counted from 1 among all that the turn has, or 0.
	part int
}

// Messages returns the messages of a turn. brought are the events that brought its texts, in order.
func Messages(t *Turn, brought []events.Recorded) (list []Message) {
	c := collected{turn: t}
	for _, e := range brought {
		c.take(e)
	}
	for _, half := range [][]Message{c.question, c.answer} {
		for i := range half {
			half[i].Begun, half[i].Number = t.Begun(half[i].Half), i
		}
	}
	return append(c.question, c.answer...)
}

// Begun returns the sequence of the event that brought a half of the turn, as far as it was not extended since: its
// start or its final, or the last event that pruned the turn.
func (t *Turn) Begun(of events.Half) uint64 {
	if of == events.HalfAnswer {
		return max(t.Final, t.PrunedAt())
	}
	return max(t.Started, t.PrunedAt())
}

// collected are messages of a turn, half by half.
type collected struct {
	turn             *Turn
	question, answer []Message
}

func (c *collected) take(e events.Recorded) {
	texts := events.TextsOf(e.Fact)
	if q := texts.Question; q != nil {
		h := half{role: "user", neutral: &q.QuestionNeutral, translated: &q.QuestionTranslated}
		c.question = c.whole(e, events.HalfQuestion, h, q.QuestionMessages)
	}
	if a := texts.Answer; a != nil {
		h := half{role: "assistant", neutral: &a.AnswerNeutral, translated: &a.AnswerTranslated}
		c.answer = c.whole(e, events.HalfAnswer, h, a.AnswerMessages)
	}
	if x := texts.Extension; x != nil {
		to := &c.question
		if x.Half == events.HalfAnswer {
			to = &c.answer
		}
		for i, raw := range listOf(x.Messages) {
			seq := e.Position.Seq
			*to = append(*to, Message{Half: x.Half, Seq: seq, First: seq, Index: i, Raw: raw, part: c.partAt(seq)})
		}
	}
}

// whole returns the messages of a half that an event brings as a whole.
func (c *collected) whole(e events.Recorded, of events.Half, h half, messages json.RawMessage) (list []Message) {
	raw := listOf(messages)
	if len(raw) == 0 && *h.neutral != "" {
		raw = []json.RawMessage{h.first()}
	}
	for i, m := range raw {
		list = append(list, Message{Half: of, Seq: e.Position.Seq, First: e.Position.Seq, Index: i, Raw: m})
	}
	f, pruned := e.Fact.(*events.TurnPruned)
	if !pruned {
		return list
	}
	for i := range list {
		list[i].First = c.turn.Started
		if of == events.HalfAnswer {
			list[i].First = c.turn.Final
		}
	}
	extensions, end := c.turn.Extensions(), len(list)
	for i, p := range slices.Backward(f.Parts) {
		if p.Half != of {
			continue
		}
		for k := max(0, end-p.Messages); k < end; k++ {
			list[k].part, list[k].First = i+1, extensions[i].Seq
		}
		end -= p.Messages
	}
	return list
}

// partAt returns the number of the extension at a sequence.
func (c *collected) partAt(seq uint64) int {
	for x := range c.turn.extended.back() {
		if x.seq == seq {
			return x.number
		}
	}
	return 0
}

func listOf(messages json.RawMessage) (list []json.RawMessage) {
	_ = json.Unmarshal(messages, &list) // a body that was decoded holds a list
	return list
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

// PruneRefused decides a prune as far as that is possible without texts, as CorrectRefused does a correction.
func (s *State) PruneRefused(c Prune) (d Decision, ok bool) {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}, true
	}
	t := s.Turn(c.TurnID)
	if t == nil {
		return Decision{Err: ErrTurnNotFound}, true
	}
	switch t.Status {
	case Redacted:
		return Decision{Err: ErrTurnRedacted}, true
	case Replaced:
		return Decision{Err: s.replacedRefusal(c.TurnID)}, true
	case Pending, Finalized:
	}
	if x := t.pruning(c.PruneID); x != nil {
		return Decision{Turn: t, RestsOn: x.seq}, true
	}
	return Decision{}, false
}

// DecidePrune decides a prune. old is the turn with its texts, and messages are those that it has. If no message is
// left, the turn is redacted; if none goes or changes, the prune is refused.
func (s *State) DecidePrune(c Prune, old *Turn, messages []Message) Decision {
	if d, ok := s.PruneRefused(c); ok {
		return d
	}
	left, changed := c.left(messages)
	switch {
	case len(changed) == 0:
		return Decision{Err: ErrMessageNotFound}
	case len(left) == 0:
		return s.DecideRedact(Redact{c.TurnID, c.Reason, c.RedactedBy, c.Partition})
	}
	t := s.Turn(c.TurnID)
	f := &events.TurnPruned{
		TurnID: c.TurnID, SessionID: c.SessionID, PruneID: c.PruneID, Question: *old.Question,
		Tombstones: s.Tombstones(s.Chain(t), c.Partition), Session: s.sessionMark(c.Partition),
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
		f.QuestionNeutral, f.QuestionTranslated = questionText(f.QuestionMessages), ""
		f.Metadata, _ = without(f.Metadata, FallbackKey)
	}
	if old.Answer != nil {
		f.Answer = *old.Answer
	}
	if changed[events.HalfAnswer] {
		f.AnswerMessages = ofHalf(left, events.HalfAnswer)
		f.AnswerNeutral, f.AnswerTranslated = answerText(f.AnswerMessages), ""
		if f.AnswerTranslatedIsFallback {
			f.AnswerTranslated, f.AnswerTranslatedIsFallback = f.AnswerNeutral, f.AnswerNeutral != ""
		}
	}
	return Decision{Facts: []events.Fact{f}, Expect: true}
}

// left returns the messages that stay, and the halves of which one goes or changes.
func (c Prune) left(messages []Message) (left []Message, changed map[events.Half]bool) {
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

func ofHalf(messages []Message, of events.Half) json.RawMessage {
	var list []json.RawMessage
	for _, m := range messages {
		if m.Half == of {
			list = append(list, m.Raw)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return encode(list)
}

// partsLeft says what is left of the events that extended a turn.
func partsLeft(t *Turn, left []Message) (parts []events.Part) {
	for i, x := range t.Extensions() {
		p := events.Part{ID: x.ID, Half: x.Half}
		for _, m := range left {
			if m.part == i+1 {
				p.Messages++
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// questionText returns the text of a question of messages: those of the user's messages, with an empty line between.
func questionText(messages json.RawMessage) string {
	var texts []string
	for _, m := range message.ParseList(messages) {
		if m.Speaker() == message.User {
			texts = append(texts, m.Texts()...)
		}
	}
	return strings.Join(texts, "\n\n")
}

// answerText returns the text of an answer of messages: that of the assistant's last message that has one.
func answerText(messages json.RawMessage) string {
	for _, m := range slices.Backward(message.ParseList(messages)) {
		if texts := m.Texts(); len(texts) > 0 && m.Speaker() == message.Assistant {
			return strings.Join(texts, "\n\n")
		}
	}
	return ""
}

// Sources returns the sequences of the events that brought the turn's texts, in order: of a pruned turn the prune, and
// what came after it.
func (t *Turn) Sources() (seqs []uint64) {
	from := t.PrunedAt()
	all := []uint64{t.Started, t.Final}
	for _, x := range t.Extensions() {
		if x.Half != "" || x.Seq == from {
			all = append(all, x.Seq)
		}
	}
	for _, seq := range all {
		if seq != 0 && seq >= from {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// Until returns the turn as it was at a sequence, as far as the last prune of it has left that; answered says whether
// it had its answer by then.
func (t *Turn) Until(seq uint64, answered bool) *Turn {
	own := *t
	own.shorten(seq)
	if !answered {
		own.Status, own.Final, own.FinalizedAt, own.Answer, own.AnswerMetadata = Pending, 0, time.Time{}, nil, nil
	}
	return &own
}

// Put puts a turn into its place, or replaces the turn of its id.
func (s *State) Put(t *Turn) {
	if old := s.Turn(t.ID); old != nil {
		*old = *t
		return
	}
	s.insert(t)
}
