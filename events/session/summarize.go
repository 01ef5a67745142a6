package session

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Summary is a text that stands for the turns of a session from its first visible one through another.
type Summary struct {
	ID uuid.UUID
	// At is the sequence of the event that states it, CreatedAt the time of that event.
	At        uint64
	CreatedAt time.Time
	// From and Through are the first and the last turn that it covers, FromPlace and ThroughPlace their places, and
	// Turns is their number.
	From, Through           uuid.UUID
	FromPlace, ThroughPlace uint64
	Turns                   int
	// Fact has the texts; nil in a slim state.
	Fact *events.SessionSummarized

	digest uint64
	// inherited is how many of its first turns a branch shares; covered are all turns, own those that follow.
	inherited    int
	covered, own [sha256.Size]byte
	// extensions is how often its own turns had been extended or pruned, prunes how often the others had been pruned.
	extensions, prunes int
}

// InheritedPrunes returns how often the turns up to a place were pruned that a branch shares and prompts show.
func (s *State) InheritedPrunes(place uint64) (n int) {
	for _, t := range s.Turns {
		if t.Place > place || !s.Shown(t) || segmentOf(t) >= len(s.more().segments) {
			continue
		}
		for x := range t.extended.back() {
			if x.half == "" {
				n++
			}
		}
	}
	return n
}

// Voided reports whether the log says of a summary that it was void.
func (s *State) Voided(id uuid.UUID) bool { return slices.Contains(s.more().voided, id) }

// void notes that a summary is void for ever, and is to leave the log or has left it.
func (s *State) void(id uuid.UUID) Change {
	if s.Voided(id) {
		return Change{Kind: Duplicate}
	}
	now := s.more()
	now.voided = append(slices.Clip(now.voided), id)
	s.rare = &now
	return Change{Kind: Summarized}
}

// Summary returns the last summary of an id, whether or not it stands, or nil.
func (s *State) Summary(id uuid.UUID) *Summary {
	list := s.more().summaries
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

// SummaryAt returns the summary that the event at a sequence states, if it counted, or nil.
func (s *State) SummaryAt(seq uint64) *Summary {
	list := s.more().summaries
	for i := range list {
		if list[i].At == seq {
			return &list[i]
		}
	}
	return nil
}

// Stands reports whether a summary stands: the visible turns from the session's first through its last are exactly
// those that it covers, all of them are finalized, none was extended since, and the log does not say that it was void.
// A branch that does not hold the turns that it shares can tell this only of its own.
func (s *State) Stands(m *Summary) bool {
	if s.Voided(m.ID) {
		return false
	}
	seen, extensions, final := s.visibleThrough(m.ThroughPlace)
	switch {
	case !final, extensions != m.extensions:
		return false
	case len(s.more().segments) > 0:
		return seen == m.covered && s.InheritedPrunes(m.ThroughPlace) == m.prunes
	default:
		return seen == m.own && (m.inherited == 0 || s.sharesShown())
	}
}

// sharesShown reports whether prompts of a branch may show turns that it shares, as far as its own events tell.
func (s *State) sharesShown() bool { return s.Fork().Lineage != "" && s.Boundary == 0 }

// liftSummaries sets the places of a branch's summaries to those that their turns have in it.
func (s *State) liftSummaries() {
	now := s.more()
	now.summaries = slices.Clone(now.summaries)
	for i := range now.summaries {
		m := &now.summaries[i]
		m.FromPlace, m.ThroughPlace = 0, 0
		if t := s.Turn(m.From); t != nil {
			m.FromPlace = t.Place
		}
		if t := s.Turn(m.Through); t != nil {
			m.ThroughPlace = t.Place
		}
	}
	s.rare = &now
}

// Standing returns the summaries that stand, in the order of the log.
func (s *State) Standing() (standing []Summary) {
	for _, m := range s.more().summaries {
		if s.Stands(&m) {
			standing = append(standing, m)
		}
	}
	return standing
}

// KeepSummaries leaves out the summaries for which keep returns false.
func (s *State) KeepSummaries(keep func(Summary) bool) {
	var kept []Summary
	for _, m := range s.more().summaries {
		if keep(m) {
			kept = append(kept, m)
		}
	}
	s.keepSummaries(kept)
}

// keepSummaries sets the summaries, and counts those that don't stand.
func (s *State) keepSummaries(list []Summary) {
	now := s.more()
	now.summaries, now.notStanding = list, 0
	s.rare = &now
	now.notStanding = len(list) - len(s.Standing())
}

// visibleThrough returns the digest of the turns that prompts may show up to a place, how often those of the session's
// own were extended, and whether all are finalized. What extends a shared turn after the fork is not shared.
func (s *State) visibleThrough(place uint64) (digest [sha256.Size]byte, extensions int, final bool) {
	ids, shared := make([]uuid.UUID, 0, len(s.Turns)), len(s.more().segments)
	for _, t := range s.Turns {
		if t.Place > place || !s.Shown(t) {
			continue
		}
		if t.Status != Finalized {
			return digest, 0, false
		}
		ids = append(ids, t.ID)
		if segmentOf(t) >= shared {
			extensions += t.extensions()
		}
	}
	return digestOf(ids), extensions, true
}

// summarize keeps a summary whose turns are final and leave none out. Whether prompts may still show its turns is asked
// when it is read (Stands): a redaction may move the boundary back.
func (s *State) summarize(e events.Recorded, f *events.SessionSummarized) Change {
	id := events.SummaryID(f.SessionID, f.RequestID)
	old := s.Summary(id)
	switch {
	case f.Void:
		return s.void(id)
	case s.Voided(id):
		return anomaly(CodeSecondSummary)
	case slices.ContainsFunc(s.more().summaries, func(m Summary) bool { return m.ID == id && m.digest == e.Digest }):
		return Change{Kind: Duplicate}
	case old != nil && s.Stands(old):
		return anomaly(CodeSecondSummary)
	}
	m := Summary{ID: id, At: e.Position.Seq, CreatedAt: e.Time, Turns: len(f.TurnIDs),
		From: f.TurnIDs[0], Through: f.TurnIDs[len(f.TurnIDs)-1], digest: e.Digest}
	m.inherited = s.sharedAmong(f.TurnIDs)
	own := f.TurnIDs[m.inherited:]
	for i, id := range own {
		t := s.Turn(id)
		if code := Unanswered(t); code != "" {
			return anomaly(code)
		}
		if i == 0 && m.inherited == 0 {
			m.FromPlace = t.Place
		}
		m.ThroughPlace = t.Place
		m.extensions += t.extensions()
	}
	if m.FromPlace < s.ResetAt || !slices.Equal(own, s.between(m.FromPlace, m.ThroughPlace)) {
		return anomaly(CodeSummaryGap)
	}
	m.prunes = f.Prunes
	m.covered, m.own = digestOf(f.TurnIDs), digestOf(own)
	if !s.slim {
		m.Fact = f
	}
	now := s.more() // a clone of the state may share it
	now.summaries = append(slices.Clip(now.summaries), m)
	s.rare = &now
	return Change{Kind: Summarized}
}

// sharedAmong returns how many of the first turns of a summary the session does not have, and may share as a branch.
// Whether it does is asked when the summary is read: only the sessions that it shares them of know.
func (s *State) sharedAmong(ids []uuid.UUID) int {
	if s.Fork().Lineage == "" {
		return 0
	}
	for i, id := range ids {
		if s.Turn(id) != nil {
			return i
		}
	}
	return len(ids)
}

func digestOf(ids []uuid.UUID) [sha256.Size]byte {
	all := make([]byte, 0, len(uuid.Nil)*len(ids))
	for _, id := range ids {
		all = append(all, id[:]...)
	}
	return sha256.Sum256(all)
}

// between returns the turns that a summary from one place through another must cover, with those that prompts show
// before it.
func (s *State) between(from, through uint64) (ids []uuid.UUID) {
	for _, t := range s.Turns {
		open := t.Status == Pending || t.Status == Finalized
		if open && t.Place <= through && (t.Place >= from || t.Place > s.Boundary) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// voidsSummary reports whether more summaries than before the change don't stand.
func (s *State) voidsSummary(c Change) bool {
	switch c.Kind {
	case WasExtended, Corrected, Pruned, TurnGone, Reset, Summarized:
	case Seen, Duplicate, Anomaly, Refused, Noted, Started, Answered, Recorded, Linked, Described, Forked, Branched,
		Erased:
		if !c.NewBoundary {
			return false
		}
	}
	list := s.more().summaries
	if len(list) == 0 {
		return false
	}
	before := s.more().notStanding
	s.keepSummaries(list)
	return s.more().notStanding > before
}
