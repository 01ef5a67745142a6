package session

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// redact makes every version of the turn a tombstone. Versions whose events have partly or all left the log are
// restored as the tombstones in the fact.
func (s *State) redact(e events.Recorded, f *events.TurnRedacted) Change {
	if t := s.Turn(f.TurnID); t != nil && s.Current(t).Redacted != 0 {
		return Change{Kind: Duplicate, Turn: t}
	}
	if s.restore(f, e) {
		s.unfork(f.Tombstones)
		s.restoreHead(f, e.Position.Seq)
	}
	t := s.Turn(f.TurnID)
	if t == nil {
		return anomaly(CodeTurnNotFound)
	}
	chain := s.Chain(t)
	for _, v := range chain {
		v.bury(e)
	}
	return Change{Kind: TurnGone, Turn: t, Turns: chain}
}

// Chain returns all versions of a turn, oldest first.
func (s *State) Chain(t *Turn) []*Turn {
	for older := s.Turn(t.Replaces); older != nil && replaced(older, t); older = s.Turn(t.Replaces) {
		t = older
	}
	chain := []*Turn{t}
	for newer := s.Turn(t.ReplacedBy); newer != nil && replaced(t, newer); newer = s.Turn(t.ReplacedBy) {
		t = newer
		chain = append(chain, t)
	}
	return chain
}

// Current returns the newest version of a turn.
func (s *State) Current(t *Turn) *Turn {
	chain := s.Chain(t)
	return chain[len(chain)-1]
}

// replaced reports whether both turns agree that newer replaces older. Versions must increase, so that every chain
// ends.
func replaced(older, newer *Turn) bool {
	return older.ReplacedBy == newer.ID && newer.Replaces == older.ID && older.Version < newer.Version
}

// Tombstones returns the tombstones of a chain of versions, in the form that TurnRedacted carries.
func (s *State) Tombstones(chain []*Turn, partition int) []events.Tombstone {
	out := make([]events.Tombstone, len(chain))
	for i, t := range chain {
		out[i] = events.Tombstone{
			TurnID: t.ID, RequestID: t.RequestID,
			Place:    events.Position{Partition: partition, Seq: t.Place},
			Position: events.Position{Partition: partition, Seq: t.Started},
			Status:   t.was().String(), CreatedAt: t.CreatedAt, RecordVersion: t.Version,
			Final:            optional(events.Position{Partition: partition, Seq: t.Final}, t.Final != 0),
			FinalizedAt:      optional(t.FinalizedAt, !t.FinalizedAt.IsZero()),
			ReplacesTurnID:   optional(t.Replaces, t.Replaces != uuid.Nil),
			ReplacedByTurnID: optional(t.ReplacedBy, t.ReplacedBy != uuid.Nil),
		}
		for _, x := range t.Extensions() {
			out[i].Extended = append(out[i].Extended, events.Position{Partition: partition, Seq: x.Seq})
		}
	}
	return out
}

// SessionMark returns the state of the session just before a redaction.
func (s *State) SessionMark(partition int) *events.SessionMark {
	return &events.SessionMark{
		Boundary:  events.Position{Partition: partition, Seq: s.Boundary},
		Silence:   optional(events.Position{Partition: partition, Seq: s.silence}, s.ResetAt != 0),
		CreatedAt: s.CreatedAt, LastActiveAt: s.LastActive,
		Finalized: s.Finalized, Pending: s.Pending, ShownFinalized: s.ShownFinalized, ShownPending: s.ShownPending,
	}
}

// restore adds what the tombstones know and the log has lost: versions without any event left, and answers that are
// gone. It reports whether it added anything. If the tombstones or the mark contradict the log, it ignores them all.
func (s *State) restore(f *events.TurnRedacted, e events.Recorded) bool {
	missing, fits := s.missing(f, e)
	if !fits || len(missing) == 0 || s.occupied(f.Tombstones) || !s.plausible(f, e) {
		return false
	}
	s.bringBack(missing)
	return true
}

// missing returns the versions of which the log has lost something, as the tombstones have them. It reports false if
// the tombstones contradict the log.
func (s *State) missing(f *events.TurnRedacted, e events.Recorded) (missing []*Turn, fits bool) {
	for _, stone := range f.Tombstones {
		want, have := fromTombstone(stone), s.Turn(stone.TurnID)
		if want.Last() >= e.Position.Seq || have != nil && have.contradicts(want) {
			return nil, false
		}
		if have == nil || have.was() < want.Status || have.extensions() < want.extensions() {
			missing = append(missing, want)
		}
	}
	return missing, true
}

// bringBack puts versions in the place of what the log has of them.
func (s *State) bringBack(missing []*Turn) {
	for _, want := range missing {
		if have := s.Turn(want.ID); have != nil {
			have.StatusBefore = have.Status
			s.uncount(have)
			*have = *want
		} else {
			s.insert(want)
		}
	}
}

// occupied reports whether another event of the session stands at a sequence that a tombstone claims
// for its turn.
func (s *State) occupied(stones []events.Tombstone) bool {
	claimed, own := map[uint64]bool{}, map[uuid.UUID]bool{}
	for _, stone := range stones {
		own[stone.TurnID] = true
		claimed[stone.Place.Seq], claimed[stone.Position.Seq], claimed[orZero(stone.Final).Seq] = true, true, true
		for _, at := range stone.Extended {
			claimed[at.Seq] = true
		}
	}
	delete(claimed, 0)
	if claimed[s.LinkedAt] || claimed[s.ResetAt] || claimed[s.Description().DescribedAt] ||
		claimed[s.Fork().ForkedAt] {
		return true
	}
	return slices.ContainsFunc(s.Turns, func(t *Turn) bool {
		return !own[t.ID] && (claimed[t.Place] || claimed[t.Started] || claimed[t.Final] || claimed[t.Redacted] ||
			t.extendedAt(func(seq uint64) bool { return claimed[seq] }))
	})
}

// plausible reports whether a mark can be true of a session that has lost events: the session must have had at least as
// many turns, and have begun no later, than what is left of it.
func (s *State) plausible(f *events.TurnRedacted, e events.Recorded) bool {
	m := s.credibleMark(f)
	if m == nil {
		return true
	}
	shown := 0
	for _, t := range s.Turns {
		if t.Place > m.Boundary.Seq && (t.Status == Pending || t.Status == Finalized) {
			shown++
		}
	}
	return m.Finalized+m.Pending >= s.Finalized+s.Pending && m.ShownFinalized+m.ShownPending >= shown &&
		m.ShownFinalized <= m.Finalized && m.ShownPending <= m.Pending &&
		(!s.Found() || !m.CreatedAt.After(s.CreatedAt)) &&
		!m.LastActiveAt.Before(m.CreatedAt) && !m.LastActiveAt.After(e.Time)
}

// credibleMark returns the mark of a redaction, or nil if there is none or it is not credible. A boundary after the
// present one must stand right before an event that the session has or had. If that event was erased for a later
// redaction, that redaction restores the boundary.
func (s *State) credibleMark(f *events.TurnRedacted) *events.SessionMark {
	m := f.Session
	if m == nil || m.CreatedAt.IsZero() || m.Boundary.Seq > s.Boundary && !s.hadEvent(f.Tombstones, m.Boundary.Seq+1) {
		return nil
	}
	return m
}

// hadEvent reports whether the session has an event at a sequence, or lost it. Only such an event
// is the first after a boundary.
func (s *State) hadEvent(stones []events.Tombstone, seq uint64) bool {
	return seq == s.LinkedAt ||
		slices.ContainsFunc(s.Turns, func(t *Turn) bool {
			return t.Started == seq || t.Final == seq || t.extendedAt(func(at uint64) bool { return at == seq })
		}) ||
		slices.ContainsFunc(stones, func(stone events.Tombstone) bool {
			return stone.Position.Seq == seq || stone.Final != nil && stone.Final.Seq == seq ||
				slices.ContainsFunc(stone.Extended, func(at events.Position) bool { return at.Seq == seq })
		})
}

// contradicts reports whether t can't be what is left of want after some of want's events were erased.
func (t *Turn) contradicts(want *Turn) bool {
	buried := t.Redacted != 0 && (t.StatusBefore != Replaced || want.Status != Replaced) // not by a prune
	return buried || t.Started != want.Started || t.Version != want.Version || t.Replaces != want.Replaces ||
		t.was() > want.Status || t.was() == want.Status && t.ReplacedBy != want.ReplacedBy ||
		t.extendedAt(func(seq uint64) bool {
			return !want.extendedAt(func(at uint64) bool { return at == seq })
		})
}

// was returns the status of a turn, of a tombstone that before its redaction.
func (t *Turn) was() Status {
	if t.Redacted != 0 {
		return t.StatusBefore
	}
	return t.Status
}

// extendedAt reports whether one of the turn's extensions stands at a sequence for which is returns true.
func (t *Turn) extendedAt(is func(seq uint64) bool) bool {
	for x := range t.extended.back() {
		if is(x.seq) {
			return true
		}
	}
	return false
}

// fromTombstone returns the turn as it was before its redaction; redact then makes it a tombstone like any other.
func fromTombstone(stone events.Tombstone) *Turn {
	t := &Turn{
		ID: stone.TurnID, RequestID: stone.RequestID, Place: stone.Place.Seq, Started: stone.Position.Seq,
		Version: stone.RecordVersion, CreatedAt: stone.CreatedAt, fromTombstone: true,
		Status: Status(max(0, slices.Index(statusNames[:], stone.Status))), //nolint:gosec // one of four
		Final:  orZero(stone.Final).Seq, FinalizedAt: orZero(stone.FinalizedAt),
		Replaces: orZero(stone.ReplacesTurnID), ReplacedBy: orZero(stone.ReplacedByTurnID),
	}
	for _, at := range stone.Extended {
		t.note(extension{seq: at.Seq})
	}
	return t
}

// restoreHead restores the session's head from the redaction's mark. Without a mark it restores the times, as far as
// the tombstones have them.
func (s *State) restoreHead(f *events.TurnRedacted, before uint64) {
	m := s.credibleMark(f)
	if m == nil {
		for _, stone := range f.Tombstones {
			s.restoreTimes(stone)
		}
		return
	}
	s.CreatedAt, s.LastActive = m.CreatedAt, m.LastActiveAt
	if m.Boundary.Seq < before {
		s.setSilence(orZero(cmp.Or(m.Silence, &m.Boundary)).Seq)
	}
	s.Counts = Counts{
		Finalized: m.Finalized, Pending: m.Pending,
		ShownFinalized: m.ShownFinalized, ShownPending: m.ShownPending,
	}
	for _, stone := range f.Tombstones {
		if t := s.Turn(stone.TurnID); t != nil {
			t.fromTombstone = false // counted in the mark
		}
	}
}

func (s *State) restoreTimes(stone events.Tombstone) {
	if s.CreatedAt.IsZero() || stone.CreatedAt.Before(s.CreatedAt) {
		s.CreatedAt = stone.CreatedAt
	}
	last := stone.CreatedAt
	if stone.FinalizedAt != nil {
		last = *stone.FinalizedAt
	}
	if last.After(s.LastActive) {
		s.LastActive = last
	}
}

// optional returns a pointer to a value, or nil if isThere is false.
func optional[T any](value T, isThere bool) *T {
	if !isThere {
		return nil
	}
	return &value
}

// orZero returns what p points to, and the zero value for nil.
func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
