package session

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
)

// prune leaves of a turn what the fact carries, and makes tombstones of the versions that the turn replaced. The turn's
// earlier events may have left the log, partly or all: then the turn is restored from the fact. A fact whose tombstones
// are not what the log says of the turn has no effect.
func (s *State) prune(e events.Recorded, f *events.TurnPruned) Change {
	if t := s.Turn(f.TurnID); t != nil {
		switch old := t.pruning(f.PruneID); {
		case t.Status == Redacted:
			return anomaly(CodeTurnRedacted)
		case t.Status == Replaced:
			return anomaly(CodeTurnReplaced)
		case old != nil && old.digest == e.Digest:
			return Change{Kind: Duplicate, Turn: t}
		case old != nil:
			return anomaly(CodeTurnPruned)
		}
	}
	if !s.restorePruned(f, e) {
		return anomaly(CodeWrongTombstones)
	}
	t := s.Turn(f.TurnID)
	chain := s.Chain(t)
	older := chain[:len(chain)-1]
	for _, v := range older {
		v.bury(e)
	}
	*t = *s.pruned(f, e)
	return Change{Kind: Pruned, Turn: t, Turns: older}
}

// restorePruned restores what the log has lost of a turn and its versions, and reports whether the tombstones of the
// fact then say what the log says. If they don't, it changes nothing.
func (s *State) restorePruned(f *events.TurnPruned, e events.Recorded) bool {
	as := &events.TurnRedacted{TurnID: f.TurnID, Tombstones: f.Tombstones, Session: f.Session}
	missing, fits := s.missing(as, e)
	if !fits {
		return false
	}
	lost := map[string]bool{}
	for _, t := range missing {
		lost[t.RequestID] = true
	}
	for _, stone := range f.Tombstones {
		if lost[stone.RequestID] {
			continue
		}
		have := s.Tombstones([]*Turn{s.Turn(stone.TurnID)}, e.Position.Partition)
		if !bytes.Equal(events.Raw(have[0]), events.Raw(stone)) {
			return false
		}
	}
	if len(missing) == 0 {
		return true
	}
	if s.occupied(f.Tombstones) || !s.plausible(as, e) {
		return false
	}
	s.bringBack(missing)
	s.unfork(f.Tombstones)
	s.restoreHead(as, e.Position.Seq)
	for _, stone := range f.Tombstones { // the mark was not credible: it is counted by itself
		if t := s.Turn(stone.TurnID); t.fromTombstone {
			t.fromTombstone = false
			s.countIn(t)
		}
	}
	return true
}

// countIn counts a turn.
func (s *State) countIn(t *Turn) {
	switch t.Status {
	case Pending:
		s.Pending++
		s.ShownPending += s.shownCount(t)
	case Finalized:
		s.Finalized++
		s.ShownFinalized += s.shownCount(t)
	case Redacted, Replaced:
	}
}

// pruned returns the turn as the fact leaves it. It rests on nothing else, so that it is the same whichever of the
// turn's events the log has lost.
func (s *State) pruned(f *events.TurnPruned, e events.Recorded) *Turn {
	own := f.Tombstones[len(f.Tombstones)-1]
	t := fromTombstone(own)
	t.fromTombstone, t.extended, t.TranslateChat = false, nil, f.TranslateChat
	for i, at := range own.Extended {
		part := f.Parts[i]
		t.note(extension{seq: at.Seq, id: part.ID, half: part.Half, messages: part.Messages})
	}
	t.note(extension{seq: e.Position.Seq, id: f.PruneID, digest: e.Digest})
	s.fill(t, f)
	return t
}

// undo notes what the answer of a turn that was just pruned was before each extension, as far as its messages are left.
func (t *Turn) undo() {
	if t.Answer == nil {
		return
	}
	list := slices.Collect(t.extended.back())
	messages := t.Answer.AnswerMessages
	ends := endsOf(messages)
	for i, n := 0, len(ends); i < len(list); i++ {
		own := *list[i]
		if list[i] = &own; own.half != events.HalfAnswer {
			continue
		}
		u := &undone{answer: *t.Answer}
		u.answer.AnswerMessages = nil
		if n = max(0, n-own.messages); n < len(ends) {
			u.answer = events.Answer{AnswerNeutral: message.AnswerText(cutAfter(messages, ends[:n]))}
		}
		if n > 0 {
			u.cut = ends[n-1]
		}
		own.undone = u
	}
	t.extended = nil
	for _, x := range slices.Backward(list) {
		t.note(*x)
	}
}

// cutAfter returns the messages of a list whose ends are given.
func cutAfter(messages json.RawMessage, ends []int) json.RawMessage {
	if len(ends) == 0 {
		return nil
	}
	return append(bytes.Clone(messages[:ends[len(ends)-1]]), ']')
}

// endsOf returns where each message of a list ends.
func endsOf(messages json.RawMessage) (ends []int) {
	dec := json.NewDecoder(bytes.NewReader(messages))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil
	}
	for dec.More() {
		var m json.RawMessage
		if dec.Decode(&m) != nil {
			return nil
		}
		ends = append(ends, int(dec.InputOffset()))
	}
	return ends
}

// bury makes a tombstone of a turn that a redaction or a prune covers. A version that was buried before is buried anew,
// since the event that did it may have left the log.
func (t *Turn) bury(e events.Recorded) {
	if t.Redacted == 0 {
		t.StatusBefore = t.Status
	}
	t.Status, t.Redacted, t.DeletedAt = Redacted, e.Position.Seq, e.Time
	t.Question, t.Answer, t.AnswerMetadata = nil, nil, nil
	t.TranslateChat, t.startDigest, t.finalDigest = false, 0, 0
	t.LastMessages, t.Asked = 0, false
	t.bare()
}

// pruning returns the turn's prune of an id, or nil.
func (t *Turn) pruning(id string) *extension {
	for x := range t.extended.back() {
		if x.half == "" && x.id == id {
			return x
		}
	}
	return nil
}

// PruneAt returns the sequence of the turn's prune of an id, or 0.
func (t *Turn) PruneAt(id string) uint64 { return t.pruning(id).at() }

// PrunedAt returns the sequence of the last event that pruned the turn, or 0. A tombstone was never pruned.
func (t *Turn) PrunedAt() uint64 {
	if t.extended == nil {
		return 0
	}
	return t.extended.prunedAt
}
