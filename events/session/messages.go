package session

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
)

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
	// Part is the number of the extension that brought it, counted from 1 among all that the turn has, or 0.
	Part int
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
			*to = append(*to, Message{Half: x.Half, Seq: seq, First: seq, Index: i, Raw: raw, Part: c.partAt(seq)})
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
			list[k].Part, list[k].First = i+1, extensions[i].Seq
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
